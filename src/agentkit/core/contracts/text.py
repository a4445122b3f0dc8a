"""Text that every store, wire and trace can hold."""

from __future__ import annotations

import re

__all__ = ["clean_data", "clean_text"]

_BAD = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """Return the text with NULs and lone surrogates replaced by U+FFFD; everything else stays as it is.

    Surrogates that form a pair become the character they stand for.
    """
    if text.isascii():
        return text if "\x00" not in text else text.replace("\x00", _REPLACEMENT)
    if "\x00" not in text and _encodes(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _BAD.sub(_REPLACEMENT, joined)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_data(value: object) -> object:
    """Return plain data with every string in it cleaned, keys too; sequences and sets come back as lists."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key) if isinstance(key, str) else key: clean_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean_data(item) for item in value]
    return value
