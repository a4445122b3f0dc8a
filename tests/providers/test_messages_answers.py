"""What servers of the Messages protocol send, and how a turn goes back to them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ModelSettings,
    TextDelta,
    ToolCall,
    ToolCallReady,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentkit.errors import BadRequest, ContextOverflow, Overloaded, ProviderError, RateLimited, Refused, StreamBroken
from agentkit.providers.profiles import find_profile
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.messages_decode import MessagesDecoder
from agentkit.providers.wire.messages_encode import MessagesWriter
from agentkit.testing.turns import sse

ENDPOINT = "https://api.anthropic.com"
START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "claude", "content": [], "usage": {"input_tokens": 25, "output_tokens": 1}},
}
STOP: dict[str, Any] = {"type": "message_stop"}


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def finish(reason: str, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 15, **usage}}


def tool(index: int, *fragments: str, **more: Any) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": "f", "input": {}, **more}
    return [
        opened(index, **block),
        *(delta(index, "input_json_delta", partial_json=one) for one in fragments),
        closed(index),
    ]


def read(*events: dict[str, Any], **asked: Any) -> list[ChatEvent]:
    decoder = MessagesDecoder(Asked(provider="anthropic", model="claude", endpoint=ENDPOINT, **asked))
    told: list[ChatEvent] = []
    for event in events:
        told += decoder.feed(sse(event, event["type"]))
    return told + decoder.end()


def response(events: list[ChatEvent]) -> ChatResponse:
    last = events[-1]
    assert isinstance(last, ChatEnd)
    return last.response


def arguments(*blocks: list[dict[str, Any]], reason: str = "tool_use") -> list[Any]:
    flat = [event for block in blocks for event in block]
    calls = response(read(START, *flat, finish(reason), STOP)).message.tool_calls
    return [msgspec.json.decode(call.arguments) for call in calls]


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        (["", '{"loc":', '"SF"}'], {"loc": "SF"}),
        (['{"file_', 'path":"a.py","cont', 'ent":"x"}'], {"file_path": "a.py", "content": "x"}),
        ([], {}),
        ([""], {}),
    ],
)
def test_fragments_are_one_document(fragments: list[str], expected: object) -> None:
    """B12, B13, B15: the start's {} is a placeholder, fragments are joined and read once, none means no arguments."""
    assert arguments(tool(0, *fragments)) == [expected]


def test_input_given_at_the_start_counts_when_no_fragment_comes() -> None:
    """A gateway that puts the whole input into the start block is understood."""
    assert arguments(tool(0, input={"a": 1}), tool(1, '{"b":2}')) == [{"a": 1}, {"b": 2}]


def test_empty_first_fragment_tells_no_text() -> None:
    """B15: an empty fragment is a piece of a call, never a blank piece of text."""
    assert not any(isinstance(event, TextDelta) for event in read(START, *tool(0, "", "{}"), finish("tool_use"), STOP))


def test_cut_input_is_kept_and_not_ready() -> None:
    """B25: input cut by max_tokens is kept broken and not offered."""
    events = read(START, *tool(0, "{}"), *tool(1, '{"path":"a","content":"#!'), finish("max_tokens"), STOP)
    assert [event.call.id for event in events if isinstance(event, ToolCallReady)] == ["toolu_0"]
    assert response(events).message.tool_calls[1].arguments == '{"path":"a","content":"#!'
    assert response(events).stop_reason == "length"


@pytest.mark.parametrize(
    ("start", "last", "expected"),
    [
        ({"input_tokens": 25, "output_tokens": 1}, {"input_tokens": 25, "cache_read_input_tokens": 0}, Usage(25, 15)),
        ({"input_tokens": 25, "output_tokens": 1}, {}, Usage(25, 15)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 40},
            {},
            Usage(145, 15, 100, 40),
        ),
        (
            {
                "input_tokens": 5,
                "cache_creation_input_tokens": 40,
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30},
            },
            {"output_tokens_details": {"thinking_tokens": 9}},
            Usage(45, 15, 0, 40, 30, 9),
        ),
    ],
)
def test_usage_is_overwritten_and_inclusive(start: dict[str, Any], last: dict[str, Any], expected: Usage) -> None:
    """B21: later numbers replace earlier ones; input counts what was read from and written to caches."""
    message = {**START, "message": {**START["message"], "usage": start}}
    text = [opened(0, type="text", text=""), delta(0, "text_delta", text="x"), closed(0)]
    assert response(read(message, *text, finish("end_turn", **last), STOP)).usage == expected


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "busy"}, Overloaded),
        ({"type": "rate_limit_error", "message": "slow down"}, RateLimited),
        ({"type": "api_error", "message": "oops"}, Overloaded),
        ({"type": "invalid_request_error", "message": "no"}, BadRequest),
        ({"type": "request_too_large", "message": "no"}, ContextOverflow),
    ],
)
def test_error_events(error: dict[str, Any], kind: type[ProviderError]) -> None:
    """B27: an error event in a stream of status 200 is the error its type says, with the usage so far."""
    with pytest.raises(kind) as raised:
        read(START, opened(0, type="text", text=""), {"type": "error", "error": error})
    assert raised.value.usage["input_tokens"] == 25


def test_no_message_stop_is_a_broken_stream() -> None:
    """A stream without message_stop is not an answer, even when its stop reason came."""
    with pytest.raises(StreamBroken):
        read(
            START, opened(0, type="text", text=""), delta(0, "text_delta", text="It is"), closed(0), finish("end_turn")
        )


def test_refusal_is_an_error_with_usage() -> None:
    """B35: a refusal carries what was said and what it cost."""
    last = finish("refusal", output_tokens=0)
    last["delta"]["stop_details"] = {"category": "cyber", "explanation": "Not this."}
    with pytest.raises(Refused) as raised:
        read(START, last, STOP)
    assert (raised.value.text, raised.value.usage["input_tokens"], raised.value.retryable) == ("Not this.", 25, False)


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "length"),
        ("pause_turn", "pause"),
        ("new_one", "stop"),
    ],
)
def test_stop_reasons(reason: str, ours: str) -> None:
    """Each stop reason has its word here, a new one is a stop; the server's own stays beside."""
    text = [opened(0, type="text", text=""), delta(0, "text_delta", text="x"), closed(0)]
    answer = response(read(START, *text, finish(reason), STOP))
    assert (answer.stop_reason, answer.raw_stop_reason) == (ours, reason)


def test_unknown_events_and_blocks_do_not_disturb() -> None:
    """Kinds of events, blocks and deltas that are newer than this reader are passed over."""
    events = read(
        START,
        {"type": "ping"},
        {"type": "brand_new", "x": 1},
        opened(0, type="hologram", data="?"),
        delta(0, "hologram_delta", data="!"),
        closed(0),
        opened(1, type="text", text=""),
        delta(1, "text_delta", text="ok"),
        closed(1),
        finish("end_turn"),
        STOP,
    )
    assert response(events).message.content == "ok"


THINKING = [
    opened(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me "),
    delta(0, "thinking_delta", thinking="see."),
    delta(0, "signature_delta", signature="EqQBsig+/="),
    closed(0),
    opened(1, type="thinking", thinking="", signature=""),
    delta(1, "signature_delta", signature="empty-but-signed"),
    closed(1),
    opened(2, type="redacted_thinking", data="b3BhcXVl"),
    closed(2),
    opened(3, type="text", text=""),
    delta(3, "text_delta", text="I will look."),
    closed(3),
    *tool(4, '{"a": 1}'),
]
BLOCKS = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBsig+/="},
    {"type": "thinking", "thinking": "", "signature": "empty-but-signed"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "text", "text": "I will look."},
    {"type": "tool_use", "id": "toolu_4", "name": "f", "input": {"a": 1}},
]


def sent_back(message: AssistantMessage, *, model: str = "claude", endpoint: str = ENDPOINT) -> list[Any]:
    """Return the content of that message in the next request's body."""
    messages = (UserMessage("hi"), message, *(ToolMessage(call.id, "3") for call in message.tool_calls))
    writer = MessagesWriter(find_profile("anthropic"), endpoint, model)
    body = json.loads(writer.write(ChatRequest(messages, settings=ModelSettings()), messages, 100))
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"][: 2 + bool(message.tool_calls)]
    return body["messages"][1]["content"]


def test_thinking_goes_back_as_it_came() -> None:
    """B45: the next request holds every block in its order, signatures byte for byte, streamed or whole."""
    streamed = response(read(START, *THINKING, finish("tool_use"), STOP)).message
    assert sent_back(streamed) == BLOCKS
    body = {"id": "msg_1", "model": "claude", "content": BLOCKS, "stop_reason": "tool_use", "usage": {}}
    decoder = MessagesDecoder(Asked(provider="anthropic", model="claude", endpoint=ENDPOINT))
    assert response(decoder.whole(json.dumps(body).encode())).message == streamed


@pytest.mark.parametrize("elsewhere", [{"model": "claude-other"}, {"endpoint": "https://proxy.example"}])
def test_thinking_is_not_shown_to_others(elsewhere: dict[str, str]) -> None:
    """B45: another model or endpoint gets the text and the calls without the blocks that only their owner reads."""
    message = response(read(START, *THINKING, finish("tool_use"), STOP)).message
    assert [block["type"] for block in sent_back(message, **elsewhere)] == ["text", "tool_use"]


def test_a_changed_message_keeps_its_thinking_first() -> None:
    """Text replaced by a layer above goes out changed, after the signed blocks."""
    message = response(read(START, *THINKING, finish("tool_use"), STOP)).message
    changed = msgspec.structs.replace(message, content="Masked.", tool_calls=(ToolCall("toolu_4", "f", '{"a": 2}'),))
    blocks = sent_back(changed)
    assert blocks[:3] == BLOCKS[:3]
    assert blocks[3:] == [
        {"type": "text", "text": "Masked."},
        {"type": "tool_use", "id": "toolu_4", "name": "f", "input": {"a": 2}},
    ]


def test_results_of_one_turn_stand_together_and_first() -> None:
    """All results of a turn go into the one user message after it, before what the user says next."""
    calls = (ToolCall("a", "f", ""), ToolCall("b", "f", " \n"))
    messages = (
        UserMessage("hi"),
        AssistantMessage("", calls),
        ToolMessage("a", "1"),
        ToolMessage("b", "2", is_error=True),
        UserMessage("and?"),
    )
    body = json.loads(
        MessagesWriter(find_profile("anthropic"), ENDPOINT, "m").write(ChatRequest(messages), messages, 100)
    )
    assert [block["input"] for block in body["messages"][1]["content"]] == [{}, {}]
    last = body["messages"][2]["content"]
    assert [(block["type"], block.get("tool_use_id"), block.get("is_error")) for block in last] == [
        ("tool_result", "a", None),
        ("tool_result", "b", True),
        ("text", None, None),
    ]
