"""Odd chunks and answers of the Chat Completions protocol, brought into the shape that is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.providers.wire.chat_shapes import NO_ERROR, FullChunk
from agentkit.providers.wire.clean import read_json, told_json, whole_number

__all__ = ["documents", "is_failure", "tidied"]

_DECODER: Final = json.JSONDecoder()
_PARTS: Final = ("text", "content", "output_text")


def documents(data: bytes) -> Iterator[JsonObject]:
    """Yield the JSON objects in these bytes, alone, in a list, or one after the other; other values mean nothing.

    Raises ValueError for what is no JSON.
    """
    for value in _values(data):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield item


def _values(data: bytes) -> Iterator[JsonValue]:
    try:
        yield read_json(data)
    except ValueError:
        text = data.decode("utf-8", "replace").strip()
        place = 0
        while place < len(text):
            value, place = _DECODER.raw_decode(text, place)
            yield value
            while place < len(text) and (text[place].isspace() or text[place] == ","):
                place += 1


def tidied(body: JsonObject) -> FullChunk:
    """Return an odd chunk in the usual shape: content in parts, arguments as objects, wrong types left out."""
    choices = body.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    groq = body.get("x_groq")
    tidy = {
        "choices": [_choice(choice) for choice in choices] if isinstance(choices, list) else None,
        "usage": _numbers(body.get("usage")),
        "x_groq": {"usage": _numbers(groq.get("usage")), "error": _raw(groq.get("error"))}
        if isinstance(groq, dict)
        else None,
        "error": _raw(body.get("error")),
    }
    for name in ("id", "model", "service_tier", "object"):
        tidy[name] = body[name] if isinstance(body.get(name), str) else None
    return msgspec.convert(tidy, FullChunk)


def is_failure(body: JsonValue) -> bool:
    """Return whether an object without choices and usage tells of an error, in one of the ways servers do that."""
    if not isinstance(body, dict):
        return False
    if body.get("object") == "error" or body.get("type") == "error" or "detail" in body:
        return True
    return "code" in body and isinstance(body.get("message"), str)


def _raw(value: JsonValue) -> Raw:
    return NO_ERROR if value is None else Raw(told_json(value))


def _choice(choice: JsonValue) -> JsonObject:
    if not isinstance(choice, dict):
        return {}
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    index = choice.get("index")
    return {
        "delta": _delta(choice.get("delta")),
        "message": _delta(choice.get("message")),
        "finish_reason": reason if isinstance(reason, str) else None,
        "index": whole_number(index),
        "usage": _numbers(choice.get("usage")),
    }


def _delta(given: JsonValue) -> JsonValue:
    if not isinstance(given, dict):
        return None
    content, thought = _split_content(given.get("content"))
    reasoning = given.get("reasoning_content") or given.get("reasoning") or thought
    calls = given.get("tool_calls")
    refusal = given.get("refusal")
    legacy = given.get("function_call")
    if isinstance(calls, dict):
        calls = [calls] if "function" in calls else list(calls.values())
    return {
        "content": content,
        "reasoning": reasoning if isinstance(reasoning, str) else None,
        "refusal": refusal if isinstance(refusal, str) else None,
        "tool_calls": [_call(call) for call in calls] if isinstance(calls, list) else None,
        "function_call": _function(legacy) if isinstance(legacy, dict) else None,
    }


def _split_content(content: JsonValue) -> tuple[str | None, str]:
    """Return text and thinking of content that is text, a part, or a list of parts."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, dict):
        content = [content]
    text, thought = "", ""
    for part in content if isinstance(content, list) else []:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            text += next((inner for name in _PARTS if isinstance(inner := part.get(name), str)), "")
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                thought += thinking if isinstance(thinking, str) else _split_content(thinking)[0] or ""
    return text, thought


def _call(call: JsonValue) -> JsonObject:
    if not isinstance(call, dict):
        return {}
    given, mark = call.get("function"), call.get("id")
    return {
        "index": whole_number(call.get("index")),
        "id": str(mark) if isinstance(mark, (str, int, float)) else None,
        "function": _function(given if isinstance(given, dict) else {}),
    }


def _function(given: JsonObject) -> JsonObject:
    name, arguments = given.get("name"), given.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = told_json(arguments).decode()
    return {"name": name if isinstance(name, str) else None, "arguments": arguments}


def _numbers(usage: JsonValue) -> JsonValue:
    if not isinstance(usage, dict):
        return None
    tidy: JsonObject = {}
    for name, value in usage.items():
        tidy[name] = _numbers(value) if name.endswith("_details") else whole_number(value)
    return tidy
