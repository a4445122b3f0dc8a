"""Text that every server takes: no lone surrogates, no NUL; and arguments that are JSON or say that they are not."""

from __future__ import annotations

import base64
import json
import re

import msgspec

from agentkit.core.contracts import JsonValue
from agentkit.core.contracts.text import clean_data

__all__ = [
    "data_url",
    "encode_json",
    "is_json",
    "join_surrogates",
    "mend_escapes",
    "read_json",
    "whole_arguments",
]

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_PAIR_LENGTH = 12
_encoder = msgspec.json.Encoder()
_skim = msgspec.json.Decoder(msgspec.Raw).decode


def join_surrogates(text: str) -> str:
    """Return the text with neighbouring halves joined to their character; lone halves stay."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encode_json(value: object) -> bytes:
    """Return the value as JSON bytes; text in it that no server takes is mended first."""
    try:
        written = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(clean_data(value))
    return _encoder.encode(clean_data(value)) if b"\\u0000" in written else written


def is_json(text: str) -> bool:
    """Return whether the text is one whole JSON value."""
    try:
        _skim(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return True


def mend_escapes(text: str) -> str:
    """Return JSON text with escapes of lone surrogates replaced by U+FFFD."""
    if not _SURROGATE_ESCAPE.search(text):
        return text
    return _ESCAPES.sub(_mended, text)


def read_json(data: bytes) -> JsonValue:
    """Return the JSON value, also when strings in it hold lone surrogates or bad UTF-8; raises ValueError otherwise."""
    try:
        return msgspec.json.decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))  # type: ignore[no-any-return]


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
    found = match.group()
    lone = found[:2] == "\\u" and len(found) < _PAIR_LENGTH
    return "\\ufffd" if lone else found
