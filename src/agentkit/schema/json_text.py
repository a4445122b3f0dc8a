"""JSON text as models write it, read into plain data that every store and wire can hold."""

from __future__ import annotations

import json
import re
from typing import cast

import msgspec

from agentkit.core.contracts import JsonValue
from agentkit.core.contracts.text import clean_data, clean_text

__all__ = ["clean_json", "read_answer", "read_json"]

# An escape that may be a NUL or half of a pair; whether it is one is seen after decoding.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def read_json(text: str) -> JsonValue:
    """Return the value of JSON text, NULs and lone surrogates in its strings replaced by U+FFFD.

    Raises ValueError with the reason for what is no JSON, NaN among it, and for nesting too deep to read.
    """
    text = clean_text(text)
    try:
        if _SUSPECT.search(text) is None:
            return cast("JsonValue", msgspec.json.decode(text))
        return cast("JsonValue", clean_data(json.loads(text, parse_constant=_refuse)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_answer(text: str) -> JsonValue:
    """Return the value of JSON text as `read_json` does, also when its strings hold raw line breaks and tabs."""
    try:
        return read_json(text)
    except ValueError:
        try:
            return cast("JsonValue", clean_data(json.loads(clean_text(text), strict=False, parse_constant=_refuse)))
        except (ValueError, RecursionError):
            pass
        raise


def clean_json(text: str) -> str:
    """Return the same JSON without NULs and lone surrogates, escaped or not; text that is no JSON stays broken."""
    if "\\u" not in text or _SUSPECT.search(text) is None:
        return clean_text(text)
    try:
        return json.dumps(read_json(text), ensure_ascii=False)
    except ValueError:
        return clean_text(text)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
