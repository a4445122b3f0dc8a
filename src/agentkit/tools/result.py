"""What a tool returned, as the model reads it."""

from __future__ import annotations

import dataclasses
from typing import cast

import msgspec

from agentkit.core.contracts import FilePart, ImagePart, Part, TextPart, ToolResult
from agentkit.core.contracts.text import clean_text

__all__ = ["MAX_RESULT_CHARS", "render_result"]

MAX_RESULT_CHARS = 100_000
_PARTS = (TextPart, ImagePart, FilePart)


def render_result(value: object, most: int = MAX_RESULT_CHARS) -> ToolResult:
    """Return the value as a tool result: text as it is, parts as parts, data as JSON.

    Text beyond `most` characters loses its middle, with a note of how much is missing.
    """
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(shortened(clean_text(value), most))
    if value is None:
        return ToolResult("")
    if isinstance(value, _PARTS):
        return ToolResult((_short_part(value, most),))
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _PARTS) for item in value):
        return ToolResult(tuple(_short_part(item, most) for item in value))
    if isinstance(value, (bytes, bytearray)):
        return ToolResult((FilePart(data=bytes(value), media_type="application/octet-stream"),))
    return ToolResult(shortened(clean_text(_as_json(value)), most))


def shortened(text: str, most: int) -> str:
    """Return the text with its middle left out when it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n[... {len(text) - most} characters left out ...]\n{end}"


def _short_part(part: Part, most: int) -> Part:
    return TextPart(shortened(clean_text(part.text), most)) if isinstance(part, TextPart) else part


def _as_json(value: object) -> str:
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return cast("str", dump())
    try:
        return msgspec.json.encode(value, enc_hook=_other).decode()
    except (TypeError, ValueError, UnicodeEncodeError):
        return str(value)


def _other(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
