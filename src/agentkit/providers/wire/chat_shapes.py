"""The parts of a Chat Completions chunk that are read, and how odd chunks are brought into that shape."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from agentkit.core.contracts import JsonValue
from agentkit.providers.wire.clean import encode_json

__all__ = [
    "NO_ERROR",
    "CallPiece",
    "Choice",
    "Chunk",
    "Delta",
    "FullChunk",
    "Function",
    "WireUsage",
    "read_chunk",
    "read_full",
    "read_whole",
    "tidied",
]

NO_ERROR: Final = Raw(b"null")


class Function(Struct, gc=False):
    """Name and argument text of a call, or a piece of them."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(Struct):
    """One piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(Struct):
    """What a chunk adds to the answer."""

    content: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class Details(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class WireUsage(Struct):
    """The token counts that are read; a null is unknown."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None


class Choice(Struct):
    """One choice; only the first is read."""

    delta: Delta | None = None
    finish_reason: str | None = None
    index: int | None = None
    usage: WireUsage | None = None


class Chunk(Struct):
    """The part of a chunk that is read each time; `error` stays raw, whatever it is."""

    choices: list[Choice] | None = None
    usage: WireUsage | None = None
    error: Raw = NO_ERROR


class FullChunk(Chunk):
    """A chunk with what names the answer; read until that is known."""

    id: str | None = None
    model: str | None = None
    service_tier: str | None = None


class _WholeChoice(Choice):
    """A choice of an answer that was not streamed: its message is one large delta."""

    delta: Delta | None = field(default=None, name="message")


class _WholeAnswer(FullChunk):
    choices: list[_WholeChoice] | None = None  # type: ignore[assignment]


read_whole: Final[msgspec.json.Decoder[FullChunk]] = msgspec.json.Decoder(_WholeAnswer)
read_chunk: Final = msgspec.json.Decoder(Chunk)
read_full: Final[msgspec.json.Decoder[Chunk]] = msgspec.json.Decoder(FullChunk)


def tidied(body: JsonValue) -> JsonValue:
    """Return an odd chunk in the usual shape: content in parts, arguments as objects, wrong types left out."""
    if not isinstance(body, dict):
        return {}
    choices = body.get("choices")
    tidy = {
        "choices": [_tidy_choice(choice) for choice in choices] if isinstance(choices, list) else None,
        "usage": _tidy_numbers(body.get("usage")),
        "error": NO_ERROR if body.get("error") is None else Raw(encode_json(body["error"])),
    }
    for name in ("id", "model", "service_tier"):
        tidy[name] = body[name] if isinstance(body.get(name), str) else None
    return tidy  # type: ignore[return-value]


def _tidy_choice(choice: JsonValue) -> JsonValue:
    if not isinstance(choice, dict):
        return {}
    reason = choice.get("finish_reason")
    given = choice.get("delta")
    delta = given if isinstance(given, dict) else {}
    content, thought = _split_content(delta.get("content"))
    reasoning = delta.get("reasoning_content") or delta.get("reasoning") or thought
    calls = delta.get("tool_calls")
    refusal = delta.get("refusal")
    return {
        "delta": {
            "content": content,
            "reasoning": reasoning if isinstance(reasoning, str) else None,
            "refusal": refusal if isinstance(refusal, str) else None,
            "tool_calls": [_tidy_call(call) for call in calls] if isinstance(calls, list) else None,
        },
        "finish_reason": reason if isinstance(reason, str) else None,
        "usage": _tidy_numbers(choice.get("usage")),
    }


def _split_content(content: JsonValue) -> tuple[str | None, str]:
    """Return text and thinking of content that is text or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text, thought = "", ""
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict):
            if isinstance(inner := part.get("text"), str):
                text += inner
            if part.get("type") == "thinking":
                thinking = part.get("thinking")
                thought += thinking if isinstance(thinking, str) else _split_content(thinking)[0] or ""
    return text, thought


def _tidy_call(call: JsonValue) -> JsonValue:
    if not isinstance(call, dict):
        return {}
    given = call.get("function")
    function = given if isinstance(given, dict) else {}
    name, arguments, index, mark = function.get("name"), function.get("arguments"), call.get("index"), call.get("id")
    if arguments is not None and not isinstance(arguments, str):
        arguments = encode_json(arguments).decode()
    return {
        "index": int(index) if isinstance(index, (int, float, str)) and str(index).isdigit() else None,
        "id": None if mark is None else str(mark),
        "function": {"name": name if isinstance(name, str) else None, "arguments": arguments},
    }


def _tidy_numbers(usage: JsonValue) -> JsonValue:
    if not isinstance(usage, dict):
        return None
    tidy: dict[str, JsonValue] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            tidy[name] = _tidy_numbers(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            tidy[name] = int(value)
    return {name: value for name, value in tidy.items() if not name.endswith("_details") or isinstance(value, dict)}
