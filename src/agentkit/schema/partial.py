"""What a beginning of JSON already says."""

from __future__ import annotations

import re

from agentkit.core.contracts import JsonValue
from agentkit.schema.json_text import read_json

__all__ = ["partial_json"]

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]++|\\[^u]|\\u[0-9a-fA-F]{4})*+)(?P<end>"?)|(?P<sign>[{}\[\],:])|(?P<word>[^\s{}\[\],:"]+)""",
    re.DOTALL,
)
_HALF_ESCAPE = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_HALF_PAIR = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
_CLOSERS = {"{": "}", "[": "]"}
_WORDS = ("true", "false", "null")


def partial_json(text: str) -> JsonValue:
    """Return what a beginning of JSON says, open strings and brackets closed; None when it says nothing yet.

    A number at the end of an open list or object is left out, since its next digit may still come. Takes time in
    proportion to the text; never raises.
    """
    if "\ud800" <= text[-1:] <= "\udbff":
        text = text[:-1]
    try:
        return read_json(_completed(text))
    except ValueError:
        return None


def _completed(text: str) -> str:
    """Return the longest beginning that ends with a value, with what closes it."""
    stack: list[str] = []
    cut = 0
    key_next = False
    for token in _TOKEN.finditer(text):
        sign = token["sign"]
        if sign == ",":
            key_next = bool(stack) and stack[-1] == "{"
        elif sign == ":":
            key_next = False
        elif sign is not None and sign in _CLOSERS:
            stack.append(sign)
            key_next, cut = sign == "{", token.end()
        elif sign is not None:
            if not stack or _CLOSERS[stack.pop()] != sign:
                return ""
            key_next, cut = False, token.end()
        elif token["text"] is None:
            if token.end() == len(text) and stack and token["word"] not in _WORDS:
                break
            cut = token.end()
        elif not token["end"]:
            if not key_next and _HALF_ESCAPE.fullmatch(text, token.end()):
                return _whole_pairs(text[: token.end()]) + '"' + _closing(stack)
            break
        elif not key_next:
            cut = token.end()
        if cut and not stack:
            break
    return text[:cut] + _closing(stack)


def _closing(stack: list[str]) -> str:
    return "".join(_CLOSERS[sign] for sign in reversed(stack))


def _whole_pairs(text: str) -> str:
    """Return the text without an escaped first half of a pair at its end."""
    half = _HALF_PAIR.search(text)
    return text if half is None else text[: half.start(1)]
