"""The parts of a Chat Completions chunk, or of a whole answer, that are read."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

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
