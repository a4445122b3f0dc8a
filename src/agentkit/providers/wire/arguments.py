"""What the text of a call's arguments means in the end: none, an object, an object told twice over, or broken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from agentkit.providers.wire.clean import is_json, mend_escapes

__all__ = ["same_arguments", "settled_arguments"]

_MOST_LAYERS = 3  # how often text is taken out of text that holds it


def settled_arguments(text: str, pieces: Sequence[str]) -> str:
    """Return the arguments as they were meant, "" for none; text that is no JSON comes back as it is.

    `pieces` are what it came in: a server may tell the whole so far with each. JSON inside a JSON string is unpacked.
    """
    text = mend_escapes(text).strip()
    if text in ("", "null"):
        return ""
    if text[0] == '"':
        return _unpacked(text)
    if len(pieces) > 1 and pieces[-1].startswith(pieces[0]) and not is_json(text):
        whole = mend_escapes(pieces[-1]).strip()
        if is_json(whole) and all(later.startswith(earlier) for earlier, later in pairwise(pieces)):
            return whole
    return text


def same_arguments(one: str, other: str) -> bool:
    """Return whether both texts are the same JSON."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _unpacked(text: str) -> str:
    inner = text
    for _ in range(_MOST_LAYERS):
        try:
            found = msgspec.json.decode(inner, type=str).strip()
        except (msgspec.MsgspecError, UnicodeEncodeError):
            return text
        if found in ("", "null"):
            return ""
        if found[0] == "{" and is_json(found):
            return mend_escapes(found)
        inner = found
    return text
