"""What servers of the Chat Completions protocol send, well-behaved or not, and what it has to become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit.core.contracts import (
    ChatEnd,
    ChatEvent,
    ChatResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    Usage,
)
from agentkit.errors import ContextOverflow, Overloaded, ProviderError, RateLimited, Refused, StreamBroken
from agentkit.providers.wire.chat_decode import ECHO_KIND, ChatDecoder
from agentkit.providers.wire.fold import Asked
from agentkit.testing.turns import sse

USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def piece(index: Any = 0, mark: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    """Return one tool-call delta as a server writes it."""
    return {"index": index, "id": mark, "function": {"name": name, "arguments": arguments}}


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(pieces)}, "finish_reason": None}]}


def text(content: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}], **more}


def end(reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


def read(*chunks: dict[str, Any], done: bool = True, **asked: Any) -> list[ChatEvent]:
    """Return the events of these chunks and an end marker."""
    decoder = ChatDecoder(Asked(provider="openai", model="m", endpoint="http://e", **asked))
    events: list[ChatEvent] = []
    for chunk in chunks:
        events += decoder.feed(sse(chunk))
    return events + (decoder.feed(sse("[DONE]")) if done else []) + decoder.end()


def response(events: list[ChatEvent]) -> ChatResponse:
    last = events[-1]
    assert isinstance(last, ChatEnd)
    return last.response


def made(events: list[ChatEvent]) -> list[tuple[str, str]]:
    """Return name and arguments of the calls, after checking that ids are unique and events agree with the message."""
    message = response(events).message
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    ready = {event.index: event.call for event in events if isinstance(event, ToolCallReady)}
    for index, call in enumerate(message.tool_calls):
        told = [event for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert {(event.id, event.name) for event in told} == {(call.id, call.name)}
        assert ready.get(index, call) == call
    return [(call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(
            [piece(0, "c1", "read_memory", '{"q":"a"}'), piece(0, "c2", "read_page", '{"page":"m","examples":true}')],
            [("read_memory", '{"q":"a"}'), ("read_page", '{"page":"m","examples":true}')],
            id="B1-new-id-in-a-taken-slot",
        ),
        pytest.param(
            [piece(0, "a", "search", '{"query":"x"}'), piece(0, "b", "search", '{"query":"y"}')],
            [("search", '{"query":"x"}'), ("search", '{"query":"y"}')],
            id="B2-one-index-for-all",
        ),
        pytest.param(
            [piece(0, None, "search", '{"query":"x"}'), piece(0, None, "search", '{"query":"y"}')],
            [("search", '{"query":"x"}'), ("search", '{"query":"y"}')],
            id="B2-no-ids-at-all",
        ),
        pytest.param(
            [
                piece(0, None, "w", '{"city":"A"}'),
                piece(0, None, "w", '{"city":"B"}'),
                piece(0, None, "v", '{"c":"C"}'),
            ],
            [("w", '{"city":"A"}'), ("w", '{"city":"B"}'), ("v", '{"c":"C"}')],
            id="B5-each-chunk-from-0",
        ),
        pytest.param(
            [piece(0, "call_1", "f", "{}"), piece(1, None, "g", "{}")],
            [("f", "{}"), ("g", "{}")],
            id="B6-id-only-first",
        ),
        pytest.param([piece(0, "c", "get_weather", None)], [("get_weather", "{}")], id="B10-null-arguments"),
        pytest.param([piece(0, "c", "get_weather", "")], [("get_weather", "{}")], id="B10-empty-arguments"),
        pytest.param(
            [piece(0, "x", "f", '{"a":1}'), piece(1, "x", "f", '{"a":2}')],
            [("f", '{"a":1}'), ("f", '{"a":2}')],
            id="B16-one-id-for-all",
        ),
        pytest.param(
            [
                piece(0, "a", "f", '{"x"'),
                piece(1, "b", "g", '{"y"'),
                piece(0, None, None, ":1}"),
                piece(1, None, None, ":2}"),
            ],
            [("f", '{"x":1}'), ("g", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            [piece(0, "a", "f", '{"x":"} {'), piece(0, "a", None, '{\\"'), piece(0, "a", None, '"}')],
            [("f", '{"x":"} {{\\""}')],
            id="braces-inside-strings",
        ),
        pytest.param(
            [piece(None, "a", "f", '{"x":'), piece(None, None, None, "1}"), piece(None, "b", "g", "{}")],
            [("f", '{"x":1}'), ("g", "{}")],
            id="no-index",
        ),
        pytest.param([piece(0, "a", "f", {"x": 1})], [("f", '{"x":1}')], id="arguments-as-an-object"),
        pytest.param([piece("0", 7, "f", "{}"), piece("1", 8, "g", "{}")], [("f", "{}"), ("g", "{}")], id="odd-types"),
        pytest.param([piece(3, "a", "f", "{}"), piece(5, "b", "g", "{}")], [("f", "{}"), ("g", "{}")], id="gaps"),
    ],
)
def test_pieces_become_the_calls_that_were_meant(pieces: list[dict[str, Any]], expected: list[tuple[str, str]]) -> None:
    """Whatever a server does with index, id and name, calls never mix, alone in a chunk or together."""
    assert made(read(*map(calls, pieces), end("tool_calls"))) == expected
    assert made(read(calls(*pieces), end("stop"))) == expected


def test_ids_differ_from_those_of_the_conversation() -> None:
    """B16: an id that an earlier turn used is replaced, the same way each time."""
    chunks = [calls(piece(0, "list_dir:0", "list_dir", '{"path":"/"}')), end("tool_calls")]
    first, again = (response(read(*chunks, taken={"list_dir:0"}, turn=3)) for _ in range(2))
    assert first.message.tool_calls[0].id != "list_dir:0"
    assert first == again


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([calls(piece(0, "", "", '{"path":"a"}')), end("tool_calls")], id="B8-nameless-call"),
        pytest.param(
            [
                calls(piece(0, None, "w", '{"city":"A"}')),
                calls(piece(0, None, None, '{"city":"B"}')),
                end("tool_calls"),
            ],
            id="B5-nameless-second-object",
        ),
        pytest.param([end("tool_calls", usage=USAGE)], id="B24-reason-without-calls"),
    ],
)
def test_a_turn_the_model_got_wrong_may_be_asked_again(chunks: list[dict[str, Any]]) -> None:
    """A malformed turn is a retryable error, never a call without a name or an empty answer."""
    with pytest.raises(ProviderError) as raised:
        read(*chunks)
    assert (raised.value.code, raised.value.retryable, raised.value.accepted) == ("malformed_turn", True, True)


def test_an_empty_stop_after_tools_is_no_answer() -> None:
    """B5: "stop" with 0 tokens right after tool results is the model's fault, not a final answer."""
    with pytest.raises(ProviderError) as raised:
        read(end("stop", usage={"prompt_tokens": 9, "completion_tokens": 0}), after_tools=True)
    assert raised.value.code == "malformed_turn"
    assert raised.value.usage["input_tokens"] == 9


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([text("hi"), end(usage=USAGE), end(None, usage=USAGE)], id="B18-placeholder-choice"),
        pytest.param(
            [{"choices": [], "prompt_filter_results": []}, text("hi"), end(), {"choices": [], "usage": USAGE}], id="B19"
        ),
        pytest.param([text("hi", usage=USAGE), end(), {"usage": USAGE}], id="B23-usage-on-text"),
        pytest.param(
            [text("hi", usage={"prompt_tokens": 10, "completion_tokens": 1}), end(usage=USAGE)], id="cumulative"
        ),
        pytest.param([text("hi", usage=None), end(), {"choices": None, "usage": USAGE}], id="null-choices"),
        pytest.param(
            [text("hi"), {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}], id="in-the-choice"
        ),
        pytest.param(
            [text("hi"), end(), {"choices": [], "usage": {**USAGE, "prompt_tokens_details": None, "cost": 0.1}}],
            id="more",
        ),
    ],
)
def test_the_last_usage_wins(chunks: list[dict[str, Any]]) -> None:
    """B18 to B23: usage is never added up across chunks, and is read wherever it stands."""
    assert response(read(*chunks)).usage == Usage(10, 5)


def test_no_usage_is_unknown_not_zero() -> None:
    """B20: a server that tells no usage leaves it unknown."""
    usage = response(read(text("hi"), end())).usage
    assert (usage.input_tokens, usage.output_tokens) == (None, None)


def test_parts_of_usage() -> None:
    """Cached and reasoning tokens stand beside the totals, in either spelling of caches."""
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}}
    assert response(read(text("x"), end(usage={**USAGE, **details}))).usage == Usage(10, 5, 4, reasoning_tokens=3)
    assert response(read(text("x"), end(usage={**USAGE, "prompt_cache_hit_tokens": 6}))).usage == Usage(10, 5, 6)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "eos", "something_new"])
def test_calls_decide_not_the_reason(reason: str) -> None:
    """B24: complete calls make a tool turn, whatever reason comes with them; the server's word is kept beside."""
    answer = response(read(text("Let me look."), calls(piece(0, "a", "f", "{}")), end(reason)))
    assert (answer.stop_reason, answer.raw_stop_reason) == ("tool_calls", reason)
    assert answer.message.content == "Let me look."


@pytest.mark.parametrize("reason", ["length", "tool_calls", "stop"])
def test_a_cut_call_is_kept_and_not_ready(reason: str) -> None:
    """B25: output at the cap or "length" means cut; the broken text stays, the call is never offered."""
    cut = '{"path":"a","content":"#!/usr/b'
    chunks = [calls(piece(0, "a", "f", '{"x":1}'), piece(1, "b", "write", cut)), end(reason, usage=USAGE)]
    events = read(*chunks, max_tokens=5)
    assert [event.call.id for event in events if isinstance(event, ToolCallReady)] == ["a"]
    answer = response(events)
    assert [call.arguments for call in answer.message.tool_calls] == ['{"x":1}', cut]
    assert answer.stop_reason == "length"


def test_a_call_cut_before_its_arguments_is_not_taken_for_one_without() -> None:
    """B25: a name and then the cap is a cut call, not a call with {}."""
    events = read(calls(piece(0, "b", "delete_all")), end("length", usage=USAGE))
    assert not any(isinstance(event, ToolCallReady) for event in events)
    assert len(response(events).message.tool_calls) == 1


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        ({"error": {"message": "queue full", "code": 429}}, RateLimited),
        ({"error": {"message": "queue full", "code": "429"}, "choices": []}, RateLimited),
        (
            {"error": {"message": "too long", "code": "context_length_exceeded", "type": "invalid_request_error"}},
            ContextOverflow,
        ),
        ({"error": {"message": "boom"}, "choices": None}, Overloaded),
        ({"error": "boom"}, Overloaded),
        ({"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"code": 502, "message": "bad"}}, Overloaded),
        ({"object": "error", "message": "boom", "code": 500}, Overloaded),
    ],
)
def test_errors_inside_a_stream(chunk: dict[str, Any], kind: type[ProviderError]) -> None:
    """B27: an error after status 200 is the error its code says, with the usage so far, and runs no half-built call."""
    with pytest.raises(kind) as raised:
        read(text("x", usage=USAGE), calls(piece(0, "a", "f", "{}")), chunk)
    assert raised.value.usage["input_tokens"] == 10
    assert raised.value.accepted is not False


def test_an_error_in_a_whole_answer() -> None:
    """B27: an answer of status 200 with an error in place of choices is that error."""
    with pytest.raises(Overloaded):
        ChatDecoder(Asked()).whole(json.dumps({"id": None, "choices": None, "error": {"code": 500}}).encode())


@pytest.mark.parametrize("done", [True, False])
def test_no_finish_reason_is_a_broken_stream(done: bool) -> None:
    """A stream that ends cleanly without a finish reason is not an answer, with or without [DONE]."""
    with pytest.raises(StreamBroken) as raised:
        read(text("The answer is", usage=USAGE), done=done)
    assert raised.value.usage["output_tokens"] == 5


def test_a_finish_reason_without_done_is_an_answer() -> None:
    """Servers that leave [DONE] out are taken at their finish reason, also with no blank line at the end."""
    assert response(read(text("ok"), end(), done=False)).message.content == "ok"
    decoder = ChatDecoder(Asked())
    decoder.feed(sse(text("ok")) + sse(end()).rstrip())
    assert response(decoder.end()).message.content == "ok"


@pytest.mark.parametrize(
    "chunks",
    [
        [
            {"choices": [{"delta": {"refusal": "I can't "}}]},
            {"choices": [{"delta": {"refusal": "help"}}]},
            end(usage=USAGE),
        ],
        [text("I can't help"), end("content_filter", usage=USAGE)],
    ],
)
def test_refusals_are_errors_with_usage(chunks: list[dict[str, Any]]) -> None:
    """B35: a refusal is told apart from text that fits no schema; it is billed and not asked again."""
    with pytest.raises(Refused) as raised:
        read(*chunks)
    assert raised.value.text == "I can't help"
    assert raised.value.usage["output_tokens"] == 5
    assert not raised.value.retryable


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_where_the_server_wants_it(field: str) -> None:
    """B44: readable reasoning is kept; for a server that needs it back it is an item of that server."""
    chunks = [{"choices": [{"delta": {field: part}}]} for part in ("h", "m")]
    events = read(*chunks, calls(piece(0, "a", "f", "{}")), end("tool_calls"), echo="content")
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["h", "m"]
    item = response(events).message.opaque[0]
    assert (item.owner, item.kind, item.data) == (("http://e", "m"), ECHO_KIND, "hm")
    assert response(read(*chunks, text("x"), end())).message.opaque == ()


def test_text_is_told_as_it_is() -> None:
    """B31: empty deltas tell nothing, white space is text, parts are read, halves of pairs are joined."""
    events = read(text(""), text("\n\n"), text(None), text([{"type": "text", "text": "a"}]), end())
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["\n\n", "a"]
    decoder = ChatDecoder(Asked())
    told = decoder.feed(
        b'data: {"choices":[{"delta":{"content":"x\\ud83d"}}]}\n\ndata: {"choices":[{"delta":{"content":"\\ude00\\ud83d"}}]}\n\n'
    )
    told += decoder.feed(sse(end())) + decoder.end()
    assert response(told).message.content == "x😀\ufffd"
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "x😀\ufffd"


def test_lone_halves_in_arguments_are_mended() -> None:
    """B48: an escape of half a pair in arguments becomes U+FFFD, a whole pair stays."""
    events = read(calls(piece(0, "a", "f", '{"t":"\\ud83c \\ud83d\\ude00"}')), end("tool_calls"))
    assert json.loads(made(events)[0][1]) == {"t": "\ufffd 😀"}


def test_noise_between_events_means_nothing() -> None:
    """Comments, unknown fields, event names and other choices' absence do not disturb an answer."""
    decoder = ChatDecoder(Asked())
    stream = (
        b": ping\n\nretry: 100\n\nid: 1\nevent: message\n"
        + sse(text("a"))
        + b"\n\n\n: x\n"
        + sse(end())
        + sse("[DONE]")
    )
    events = decoder.feed(stream) + decoder.end()
    assert response(events).message.content == "a"
    assert decoder.done
