"""One scripted turn of a model, written in each protocol: how a well-behaved server would say it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from agentkit.core.contracts import JsonObject, JsonValue, StopReason, ToolCall, Usage

__all__ = ["Protocol", "Turn", "sse", "write_turn"]

Protocol: TypeAlias = Literal["chat", "messages"]

_CHAT_STOP = {"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_MESSAGES_STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
}


class Turn(Struct, frozen=True, kw_only=True):
    """What the model says: `text` and each call's arguments are cut into deltas of `size` characters.

    `reasoning` comes before the text; with the Messages protocol it is a thinking block signed with `signature`.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    signature: str = "c2lnbmVk"
    usage: Usage = Usage(12, 7)
    stop: StopReason | None = None
    model: str = "loopback-model"
    size: int = 5

    @property
    def reason(self) -> StopReason:
        """Return the stop reason: the given one, else the one the calls imply."""
        return self.stop or ("tool_calls" if self.calls else "stop")


def sse(data: JsonValue, event: str = "") -> bytes:
    """Return one server-sent event; text that is no JSON goes out as it is."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def write_turn(turn: Turn, protocol: Protocol, *, stream: bool = True) -> tuple[bytes, ...]:
    """Return the turn's body in pieces: one event each when streamed, else one document."""
    if not stream:
        whole = _chat_whole(turn) if protocol == "chat" else _messages_whole(turn)
        return (json.dumps(whole, ensure_ascii=False).encode(),)
    return tuple(_chat(turn) if protocol == "chat" else _messages(turn))


def _cut(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


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
    for piece in _cut(turn.reasoning, turn.size):
        yield chunk({"reasoning_content": piece})
    for piece in _cut(turn.text, turn.size):
        yield chunk({"content": piece})
    for index, call in enumerate(turn.calls):
        function: JsonObject = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        for piece in _cut(call.arguments, turn.size):
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
            {"type": "thinking_delta", "thinking": piece} for piece in _cut(turn.reasoning, turn.size)
        ]
        signed: JsonObject = {"type": "signature_delta", "signature": turn.signature}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if turn.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in _cut(turn.text, turn.size)],
        )
    for call in turn.calls:
        pieces = ["", *_cut(call.arguments, turn.size)]
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
