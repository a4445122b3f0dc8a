"""The parts of a Chat Completions chunk, or of a whole answer, that are read."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.providers.wire.clean import read_json

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
    "told_usage",
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
    """What a chunk adds to the answer, or all that a message says; `function_call` is the form before tools."""

    content: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    function_call: Function | None = None


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
    """One choice; only the first is read. A whole answer has a `message`, as has an odd server's stream."""

    delta: Delta | None = None
    finish_reason: str | None = None
    index: int | None = None
    usage: WireUsage | None = None
    message: Delta | None = None


class Groq(Struct):
    """What one server puts beside the usual fields: usage, and why a stream was ended early."""

    usage: WireUsage | None = None
    error: Raw = NO_ERROR


class Chunk(Struct):
    """The part of a chunk that is read each time; `error` stays raw, whatever it is."""

    choices: list[Choice] | None = None
    usage: WireUsage | None = None
    error: Raw = NO_ERROR
    x_groq: Groq | None = None


class FullChunk(Chunk):
    """A chunk with what names the answer; read until that is known."""

    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    object: str | None = None


read_chunk: Final = msgspec.json.Decoder(Chunk)
read_full: Final[msgspec.json.Decoder[Chunk]] = msgspec.json.Decoder(FullChunk)


class _ToldChoice(Struct):
    usage: JsonValue = None


class _Told(Struct):
    """Where servers put the usage of an answer, as they said it."""

    usage: JsonValue = None
    choices: list[_ToldChoice] | None = None
    x_groq: _ToldChoice | None = None


_read_told: Final = msgspec.json.Decoder(_Told).decode


def told_usage(data: bytes | JsonObject) -> JsonObject:
    """Return the usage object of a chunk as the server said it, empty where there is none."""
    try:
        told = _read_told(data) if isinstance(data, bytes) and data else msgspec.convert(data or {}, _Told)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _odd_usage(data)
    places = [told.usage, *(choice.usage for choice in told.choices or ()), told.x_groq and told.x_groq.usage]
    return next((place for place in places if isinstance(place, dict)), {})


def _odd_usage(data: bytes | JsonObject) -> JsonObject:
    try:
        body = read_json(data) if isinstance(data, bytes) else data
    except (ValueError, RecursionError):
        return {}
    usage = body.get("usage") if isinstance(body, dict) else None
    return usage if isinstance(usage, dict) else {}
