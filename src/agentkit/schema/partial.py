"""What a beginning of JSON already says."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts import JsonValue

__all__ = ["partial_json"]

_CLOSERS = {"{": "}", "[": "]"}


def partial_json(text: str) -> JsonValue:
    """Return the value of the longest usable beginning, open strings and brackets closed; None when there is none.

    One pass over the text; never raises.
    """
    stack: list[str] = []
    in_string = escaped = False
    clean = 0
    closers = ""
    expects_key = False
    for index, sign in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif sign == "\\":
                escaped = True
            elif sign == '"':
                in_string = False
                if not (stack and stack[-1] == "{" and expects_key):
                    clean, closers = index + 1, _closing(stack)
            continue
        if sign == '"':
            in_string = True
        elif sign in "{[":
            stack.append(sign)
            expects_key = sign == "{"
            clean, closers = index + 1, _closing(stack)
        elif sign in "}]":
            if not stack or _CLOSERS[stack[-1]] != sign:
                break
            stack.pop()
            expects_key = False
            clean, closers = index + 1, _closing(stack)
        elif sign == ":":
            expects_key = False
        elif sign == ",":
            expects_key = bool(stack) and stack[-1] == "{"
            clean, closers = index, _closing(stack)
    if in_string and not (stack and stack[-1] == "{" and expects_key):
        open_text = _decode(_cut_escape(text) + '"' + _closing(stack))
        if open_text is not None:
            return open_text
    if not in_string:
        whole = _decode(text + _closing(stack))
        if whole is not None:
            return whole
    return _decode(text[:clean] + closers)


def _closing(stack: list[str]) -> str:
    return "".join(_CLOSERS[sign] for sign in reversed(stack))


def _cut_escape(text: str) -> str:
    tail = text[-6:]
    start = tail.rfind("\\")
    if start < 0:
        return text
    escape = tail[start:]
    complete = len(escape) >= 6 if escape[1:2] == "u" else len(escape) >= 2
    return text if complete else text[: len(text) - len(escape)]


def _decode(text: str) -> JsonValue:
    try:
        value: JsonValue = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return value
