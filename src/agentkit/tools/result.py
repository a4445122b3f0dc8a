"""What a tool returned, as the model reads it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import cast

import msgspec

from agentkit.core.contracts import FilePart, ImagePart, Part, TextPart, ToolMessage, ToolResult
from agentkit.core.contracts.text import clean_text

__all__ = ["MAX_BATCH_CHARS", "MAX_RESULT_CHARS", "describe_error", "fit_batch", "render_result"]

MAX_RESULT_CHARS = 100_000
MAX_BATCH_CHARS = 200_000
_LEFT_OUT = re.compile(r"\n\[\.\.\. (\d+) characters left out \.\.\.\]\n")
_LONG_JSON = 4_096  # shorter than this, binary data inside is not worth a second look
_BINARY = (bytes, bytearray, memoryview)
_PARTS = (TextPart, ImagePart, FilePart)
_PDF = b"%PDF-"


def render_result(value: object, most: int = MAX_RESULT_CHARS) -> ToolResult:
    """Return the value as a tool result: text as it is, parts as parts, data as JSON, None as no text.

    Bytes become an image, a PDF or text where they are one, and a note of their size otherwise; a long value with
    bytes inside has such notes in their place. Text beyond `most`
    characters in all loses its middle, with a note of how much is missing; NULs and lone surrogates become U+FFFD.
    """
    if isinstance(value, str):
        return ToolResult(_text(value, most))
    if value is None:
        return ToolResult("")
    if isinstance(value, ToolResult):
        return _bounded(value, most)
    if isinstance(value, _PARTS):
        return ToolResult(_parts((value,), most))
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _PARTS) for item in value):
        return ToolResult(_parts(tuple(value), most))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(value), most)
    return ToolResult(_text(_as_json(value), most))


def describe_error(error: BaseException, most: int = MAX_RESULT_CHARS) -> str:
    """Return the type and message of what a tool raised, bounded like its results."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as broken:
        message = f"its message cannot be read ({type(broken).__name__})"
    return _text(f"{name}: {message}" if message else name, most)


def fit_batch(answers: dict[int, ToolMessage], most: int = MAX_BATCH_CHARS) -> None:
    """Shorten the longest answers of one turn in place until all their text together has at most `most` characters.

    Answers below the level that fits stay whole; what is left out is noted in each, on top of the limit.
    """
    sizes = sorted(_size(answer.content) for answer in answers.values())
    if sum(sizes) <= most:
        return
    level, left = 0, most
    for number, size in enumerate(sizes):
        level = left // (len(sizes) - number)
        if size > level:
            break
        left -= size
    for position, answer in answers.items():
        content = answer.content
        if _size(content) > level:
            cut = shortened(content, level) if isinstance(content, str) else _parts(content, level)
            answers[position] = msgspec.structs.replace(answer, content=cut)


def shortened(text: str, most: int) -> str:
    """Return a text that is longer than `most` characters without its middle, and how much of it is gone by now."""
    head = most * 2 // 3
    end = len(text) - (most - head)
    before = sum(int(note[1]) - len(note[0]) for note in _LEFT_OUT.finditer(text, head, end))
    return f"{text[:head]}\n[... {end - head + before} characters left out ...]\n{text[end:]}"


def _size(content: str | tuple[Part, ...]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) for part in content if isinstance(part, TextPart))


def _text(text: str, most: int) -> str:
    text = clean_text(text)
    return text if len(text) <= most else shortened(text, most)


def _bounded(result: ToolResult, most: int) -> ToolResult:
    content = result.content
    bounded = _text(content, most) if isinstance(content, str) else _parts(content, most)
    return result if bounded == content else msgspec.structs.replace(result, content=bounded)


def _parts(parts: tuple[Part, ...], most: int) -> tuple[Part, ...]:
    """Return the parts, their texts sharing the characters there are."""
    left, kept = most, list[Part]()
    for part in parts:
        if isinstance(part, TextPart):
            text = _text(part.text, left)
            left = max(left - len(part.text), 0)
            part = part if text == part.text else TextPart(text)
        kept.append(part)
    return tuple(kept)


def _from_bytes(data: bytes, most: int) -> ToolResult:
    kind = _image_kind(data)
    if kind:
        return ToolResult((ImagePart(data=data, media_type=kind),))
    if data.startswith(_PDF):
        return ToolResult((FilePart(data=data, media_type="application/pdf"),))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return ToolResult(_note(data))
    return ToolResult(_text(text, most))


def _image_kind(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _as_json(value: object) -> str:
    dump = getattr(value, "model_dump_json", None)
    try:
        if callable(dump) and not isinstance(value, type):
            return cast("str", dump())
        try:
            encoded = msgspec.json.encode(value, enc_hook=_other)
            return encoded.decode() if len(encoded) < _LONG_JSON else _without_binary(value, encoded)
        except UnicodeEncodeError:  # half a pair somewhere inside, which is cleaned as text
            return json.dumps(msgspec.to_builtins(value, enc_hook=_other), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _without_binary(value: object, encoded: bytes) -> str:
    """Return the JSON with a note in the place of each binary value, which would be read as a long line of base64."""
    found = False

    def note(data: object) -> str:
        nonlocal found
        found = True
        return _note(cast("bytes", data))

    plain = msgspec.to_builtins(value, enc_hook=_other, builtin_types=_BINARY)
    text = json.dumps(plain, default=note, ensure_ascii=False, separators=(",", ":"))
    return text if found else encoded.decode()


def _note(data: bytes | bytearray | memoryview) -> str:
    return f"[{memoryview(data).nbytes} bytes of binary data, not shown]"


def _other(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
