"""Text that every store, wire and trace can hold."""

from __future__ import annotations

import re

__all__ = ["clean_text"]

_BAD = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """Return the text with NULs and lone surrogates replaced by U+FFFD; everything else stays as it is.

    Surrogates that form a pair become the character they stand for.
    """
    if text.isascii():
        return text if "\x00" not in text else text.replace("\x00", _REPLACEMENT)
    if _BAD.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _BAD.sub(_REPLACEMENT, joined)
