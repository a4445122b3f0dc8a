"""A scripted turn as the Responses protocol tells it: output items, each opened, told in deltas and closed."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit.core.contracts import JsonObject, JsonValue, ToolCall, Usage
from agentkit.testing.turn import Turn, cut, sse

__all__ = ["responses_events", "responses_whole"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def responses_whole(turn: Turn) -> JsonObject:
    """Return the finished response, which is also what the last event of a stream carries."""
    items: list[JsonValue] = []
    if turn.reasoning:
        items.append(_reasoning(turn))
    if turn.text:
        items.append(_message([_text(turn.text)], "completed"))
    items += [_call(turn, index, call) for index, call in enumerate(turn.calls)]
    reason = _INCOMPLETE.get(turn.reason)
    return {
        **_response(turn, "completed" if reason is None else "incomplete"),
        "output": items,
        "usage": _usage(turn.usage),
        "incomplete_details": None if reason is None else {"reason": reason},
        "service_tier": "default",
    }


def responses_events(turn: Turn) -> Iterator[bytes]:
    """Yield the events of a stream, numbered; the last says how the response ended."""
    for number, body in enumerate(_events(turn)):
        yield sse({**body, "sequence_number": number}, str(body["type"]))


def _events(turn: Turn) -> Iterator[JsonObject]:
    whole = responses_whole(turn)
    yield {"type": "response.created", "response": _response(turn, "in_progress")}
    yield {"type": "response.in_progress", "response": _response(turn, "in_progress")}
    place = 0
    if turn.reasoning:
        yield from _reasoning_events(turn, place)
        place += 1
    if turn.text:
        yield from _text_events(turn, place)
        place += 1
    for index, call in enumerate(turn.calls):
        yield from _call_events(turn, index, call, place)
        place += 1
    yield {"type": f"response.{whole['status']}", "response": whole}


def _reasoning_events(turn: Turn, place: int) -> Iterator[JsonObject]:
    at: JsonObject = {"item_id": "rs_1", "output_index": place, "summary_index": 0}
    opened = {**_reasoning(turn), "summary": [], "encrypted_content": None}
    part: JsonObject = {"type": "summary_text", "text": turn.reasoning}
    yield {"type": "response.output_item.added", "output_index": place, "item": opened}
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(turn.reasoning, turn.size):
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": turn.reasoning}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": place, "item": _reasoning(turn)}


def _text_events(turn: Turn, place: int) -> Iterator[JsonObject]:
    at: JsonObject = {"item_id": "msg_1", "output_index": place, "content_index": 0}
    part = _text(turn.text)
    yield {"type": "response.output_item.added", "output_index": place, "item": _message([], "in_progress")}
    yield {"type": "response.content_part.added", **at, "part": _text("")}
    for piece in cut(turn.text, turn.size):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": turn.text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": place, "item": _message([part], "completed")}


def _call_events(turn: Turn, index: int, call: ToolCall, place: int) -> Iterator[JsonObject]:
    at: JsonObject = {"item_id": f"fc_{index}", "output_index": place}
    whole = _call(turn, index, call)
    opened = {**whole, "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": place, "item": opened}
    for piece in cut(call.arguments, turn.size):
        yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
    done: JsonObject = {"name": call.name, "arguments": call.arguments}
    yield {"type": "response.function_call_arguments.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": place, "item": whole}


def _response(turn: Turn, status: str) -> JsonObject:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": turn.model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _reasoning(turn: Turn) -> JsonObject:
    summary: list[JsonValue] = [{"type": "summary_text", "text": turn.reasoning}]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": turn.signature}


def _message(parts: list[JsonValue], status: str) -> JsonObject:
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": parts}


def _text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(turn: Turn, index: int, call: ToolCall) -> JsonObject:
    cut_off = turn.reason == "length" and index == len(turn.calls) - 1
    return {
        "id": f"fc_{index}",
        "type": "function_call",
        "status": "incomplete" if cut_off else "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
