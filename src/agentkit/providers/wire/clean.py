"""Text that every server and store takes, also out of pieces; arguments that are JSON or say that they are not."""

from __future__ import annotations

import base64
import json
import math
import re

import msgspec

from agentkit.core.contracts import JsonValue
from agentkit.core.contracts.text import clean_data, clean_text

__all__ = [
    "TextJoiner",
    "count_of",
    "data_url",
    "encode_json",
    "is_json",
    "mend_escapes",
    "read_json",
    "told_json",
    "whole_arguments",
    "whole_number",
]

_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000))|\\."
)
_BAD_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_LARGEST = 2**63
_DIGITS = 18
_encoder = msgspec.json.Encoder()
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class TextJoiner:
    """Cleans text that comes in pieces: halves of a character that meet are joined, lone ones and NULs replaced."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = ""

    def add(self, text: str) -> str:
        """Return what can be told with this piece; a half at its end waits for the other."""
        text, self.held = self.held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.held = text[:-1], text[-1]
        return clean_text(text)

    def rest(self) -> str:
        """Return what still waited, as U+FFFD."""
        held, self.held = self.held, ""
        return clean_text(held)


def encode_json(value: object) -> bytes:
    """Return the value as JSON bytes; text in it that no server takes is mended first."""
    try:
        written = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(clean_data(value))
    return _encoder.encode(clean_data(value)) if b"\\u0000" in written else written


def told_json(value: JsonValue) -> bytes:
    """Return JSON that came over a wire as bytes again, also where it holds numbers beyond 64 bits."""
    try:
        return encode_json(value)
    except OverflowError:
        return json.dumps(value).encode()


def is_json(text: str) -> bool:
    """Return whether the text is one whole JSON value."""
    try:
        _skim(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def mend_escapes(text: str) -> str:
    """Return JSON text with NULs and lone surrogates in it, and their escapes, replaced by U+FFFD."""
    text = clean_text(text)
    return _ESCAPES.sub(_mended, text) if _BAD_ESCAPE.search(text) else text


def read_json(data: bytes) -> JsonValue:
    """Return the JSON value, also when strings in it hold lone surrogates or bad UTF-8; raises ValueError otherwise."""
    try:
        return msgspec.json.decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))  # type: ignore[no-any-return]


def whole_number(value: JsonValue) -> int | None:
    """Return a number, or text that is one, as a whole number of 64 bits; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and -_LARGEST <= value < _LARGEST else None


def count_of(value: JsonValue) -> int | None:
    """Return a number of tokens; None for what cannot be one."""
    number = whole_number(value)
    return None if number is None or number < 0 else number


def whole_arguments(arguments: str) -> str:
    """Return call arguments that every server can read: `{}` for none, broken text as the value of one field."""
    text = arguments.strip()
    if not text:
        return "{}"
    if text.startswith("{") and is_json(text):
        return arguments
    return encode_json({"unparsed_arguments": arguments}).decode()


def data_url(data: bytes, media_type: str) -> str:
    """Return the bytes as a data URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _mended(match: re.Match[str]) -> str:
    return "\\ufffd" if match.group(1) else match.group()
