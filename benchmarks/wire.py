"""The bytes a Chat Completions server sends, built once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from benchmarks.task import ANSWER, ARGUMENTS, DELTA, MODEL, TOOL_NAME

Json = dict[str, Any]

_COMMON: Json = {
    "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
    "created": 1764547200,
    "model": MODEL,
    "service_tier": "default",
    "system_fingerprint": "fp_06737a9306",
}
_JSON_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_bench\r\ncontent-length: %d\r\n\r\n"
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"x-request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_TAIL = b"0\r\n\r\n"


def usage(prompt: int, completion: int) -> Json:
    """Return a usage object with the details a real server sends."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _whole(message: Json, finish: str, tokens: int) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "refusal": None, "annotations": [], **message},
        "logprobs": None,
        "finish_reason": finish,
    }
    body = _encode({"object": "chat.completion", **_COMMON, "choices": [choice], "usage": usage(50, tokens)})
    return _JSON_HEAD % len(body) + body


def _call(index: int) -> Json:
    return {"id": f"call_{index}", "type": "function", "function": {"name": TOOL_NAME, "arguments": ARGUMENTS}}


@lru_cache
def tool_call(index: int) -> bytes:
    """Return a whole answer that calls the tool; ids differ by `index`."""
    return _whole({"content": None, "tool_calls": [_call(index)]}, "tool_calls", 12)


@lru_cache
def text_answer(deltas: int = 0) -> bytes:
    """Return a whole text answer: the short one, or the text of a stream of `deltas`."""
    return _whole({"content": DELTA * deltas or ANSWER}, "stop", deltas or 9)


def _event(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def _chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event(_encode({"object": "chat.completion.chunk", **_COMMON, "choices": [choice], "usage": None}))


def _closing(finish: str, tokens: int) -> Iterator[bytes]:
    yield _chunk({}, finish)
    last = {"object": "chat.completion.chunk", **_COMMON, "choices": [], "usage": usage(50, tokens)}
    yield _event(_encode(last))
    yield _event(b"[DONE]")


@lru_cache
def stream_answer(deltas: int = 0) -> tuple[bytes, ...]:
    """Return the pieces of a streamed text answer, one HTTP chunk an event, usage included."""
    texts = [DELTA] * deltas or [ANSWER]
    head = _chunk({"role": "assistant", "content": "", "refusal": None})
    return (head, *(_chunk({"content": text}) for text in texts), *_closing("stop", deltas or 9))


@lru_cache
def stream_tool_call(index: int) -> tuple[bytes, ...]:
    """Return the pieces of a streamed answer that calls the tool."""
    call = _call(index)
    first = {"index": 0, **call, "function": {"name": TOOL_NAME, "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": ARGUMENTS}}
    return (
        _chunk({"role": "assistant", "content": None, "tool_calls": [first], "refusal": None}),
        _chunk({"tool_calls": [rest]}),
        *_closing("tool_calls", 12),
    )
