"""One scripted turn of a model, written in each protocol: how a well-behaved server would say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from agentkit.core.contracts import JsonObject, JsonValue, Usage
from agentkit.testing.turn import Turn, cut, sse
from agentkit.testing.turns_responses import responses_events, responses_whole

__all__ = ["Protocol", "Turn", "protocol_of", "sse", "write_turn"]

Protocol: TypeAlias = Literal["chat", "messages", "responses"]

_CHAT_STOP = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_MESSAGES_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "context_window": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def protocol_of(path: str) -> Protocol:
    """Return the protocol that is spoken at this path of a server."""
    return "messages" if "messages" in path else "responses" if "responses" in path else "chat"


def write_turn(turn: Turn, protocol: Protocol, *, stream: bool = True) -> tuple[bytes, ...]:
    """Return the turn's body in pieces: one event each when streamed, else one document."""
    if not stream:
        return (json.dumps(_WHOLE[protocol](turn), ensure_ascii=False).encode(),)
    return tuple(_STREAMED[protocol](turn))


def _chat_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _chat(turn: Turn) -> Iterator[bytes]:
    base: JsonObject = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": turn.model}

    def chunk(delta: JsonObject, reason: str | None = None) -> bytes:
        return sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in cut(turn.reasoning, turn.size):
        yield chunk({"reasoning_content": piece})
    for piece in cut(turn.text, turn.size):
        yield chunk({"content": piece})
    for index, call in enumerate(turn.calls):
        function: JsonObject = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in cut(call.arguments, turn.size):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _CHAT_STOP.get(turn.reason, "stop"))
    yield sse({**base, "choices": [], "usage": _chat_usage(turn.usage)})
    yield sse("[DONE]")


def _chat_whole(turn: Turn) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _CHAT_STOP.get(turn.reason, "stop")}
    return {"id": "chatcmpl-1", "model": turn.model, "choices": [choice], "usage": _chat_usage(turn.usage)}


def _messages_usage(usage: Usage) -> JsonObject:
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": None if usage.input_tokens is None else usage.input_tokens - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output_tokens,
    }


def _messages(turn: Turn) -> Iterator[bytes]:
    start = {**_messages_usage(turn.usage), "output_tokens": 1}
    message: JsonObject = {"id": "msg_1", "type": "message", "role": "assistant", "model": turn.model, "content": []}
    yield sse({"type": "message_start", "message": {**message, "usage": start}}, "message_start")
    yield sse({"type": "ping"}, "ping")
    for index, (block, deltas) in enumerate(_blocks(turn)):
        yield sse({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start")
        for delta in deltas:
            yield sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    end: JsonObject = {"stop_reason": _MESSAGES_STOP.get(turn.reason, "end_turn"), "stop_sequence": None}
    usage: JsonObject = {"output_tokens": turn.usage.output_tokens}
    yield sse({"type": "message_delta", "delta": end, "usage": usage}, "message_delta")
    yield sse({"type": "message_stop"}, "message_stop")


def _blocks(turn: Turn) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    if turn.reasoning:
        deltas: list[JsonObject] = [
            {"type": "thinking_delta", "thinking": piece} for piece in cut(turn.reasoning, turn.size)
        ]
        signed: JsonObject = {"type": "signature_delta", "signature": turn.signature}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if turn.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in cut(turn.text, turn.size)],
        )
    for call in turn.calls:
        pieces = ["", *cut(call.arguments, turn.size)]
        block: JsonObject = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _messages_whole(turn: Turn) -> JsonObject:
    content: list[JsonValue] = []
    if turn.reasoning:
        content.append({"type": "thinking", "thinking": turn.reasoning, "signature": turn.signature})
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in turn.calls
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": content,
        "stop_reason": _MESSAGES_STOP.get(turn.reason, "end_turn"),
        "stop_sequence": None,
        "usage": _messages_usage(turn.usage),
    }


_WHOLE: dict[Protocol, Callable[[Turn], JsonObject]] = {
    "chat": _chat_whole,
    "messages": _messages_whole,
    "responses": responses_whole,
}
_STREAMED: dict[Protocol, Callable[[Turn], Iterator[bytes]]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": responses_events,
}
