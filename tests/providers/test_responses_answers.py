"""What servers of the Responses protocol send, well-behaved or not, and what it has to become."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import (
    ChatEnd,
    ChatEvent,
    ChatResponse,
    ChatStart,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    Usage,
)
from agentkit.errors import (
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    StreamBroken,
)
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.responses_decode import ResponsesDecoder
from agentkit.testing.turns import Turn, sse, write_turn

ASKED = Asked(provider="openai", model="m", endpoint="http://e/v1")
USAGE: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
Event = dict[str, Any]


def called(
    index: int | None, *pieces: str, item: str = "", name: str = "f", call: str = "", added: bool = True
) -> list[Event]:
    """Return the events of one call, up to its last piece of arguments."""
    item, call = item or f"fc_{index}", call or f"call_{index}"
    at = {"item_id": item} if index is None else {"item_id": item, "output_index": index}
    opened = {"type": "function_call", "id": item, "call_id": call, "name": name, "arguments": ""}
    start = [{"type": "response.output_item.added", **at, "item": opened}] if added else []
    return [*start, *({"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in pieces)]


def closed(index: int | None, arguments: str, *, item: str = "", name: str = "f", call: str = "") -> Event:
    """Return the event that closes a call with its whole arguments."""
    item, call = item or f"fc_{index}", call or f"call_{index}"
    whole = {"type": "function_call", "id": item, "call_id": call, "name": name, "arguments": arguments}
    return {"type": "response.output_item.done", "item": whole, **({} if index is None else {"output_index": index})}


def said(*pieces: str, index: int = 0, part: int = 0) -> list[Event]:
    """Return the deltas of a text."""
    at = {"item_id": f"msg_{index}", "output_index": index, "content_index": part}
    return [{"type": "response.output_text.delta", **at, "delta": piece} for piece in pieces]


def message(*texts: str, index: int = 0, **more: Any) -> Event:
    """Return a whole message item."""
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": parts, **more}


def ended(status: str = "completed", **more: Any) -> Event:
    """Return the last event."""
    response = {"id": "resp_1", "model": "m-1", "status": status, "usage": USAGE, "incomplete_details": None, **more}
    return {"type": f"response.{status}", "response": response}


def read(*events: Event | list[Event], **asked: Any) -> list[ChatEvent]:
    """Return what a stream of these events becomes."""
    decoder = ResponsesDecoder(msgspec.structs.replace(ASKED, **asked))
    told: list[ChatEvent] = []
    for group in events:
        for event in group if isinstance(group, list) else [group]:
            told += decoder.feed(sse(json.dumps(event), event.get("type", "")))
    return told + decoder.end()


def whole(*output: Event, **more: Any) -> list[ChatEvent]:
    """Return what an answer in one piece becomes."""
    body = {**ended(**more)["response"], "output": output}
    return ResponsesDecoder(ASKED).whole(json.dumps(body).encode())


def response(events: list[ChatEvent]) -> ChatResponse:
    """Return the answer of the last event."""
    end = events[-1]
    assert isinstance(end, ChatEnd)
    return end.response


def ready(events: list[ChatEvent]) -> list[tuple[str, str, Any]]:
    """Return id, name and arguments of the calls that may run."""
    calls = [event.call for event in events if isinstance(event, ToolCallReady)]
    return [(call.id, call.name, json.loads(call.arguments)) for call in calls]


def text_of(events: list[ChatEvent]) -> str:
    """Return the text that was told."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


TWO = [("call_1", "f", {"a": 1}), ("call_2", "g", {"b": 2})]
DONE = [closed(0, '{"a": 1}', call="call_1"), closed(1, '{"b": 2}', call="call_2", name="g")]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [
                *called(0, '{"a"', call="call_1"),
                *called(1, '{"b"', call="call_2", name="g"),
                *called(1, ": 2}", added=False),
                *called(0, ": 1}", added=False),
                *DONE,
            ],
            id="interleaved, by item",
        ),
        pytest.param(
            [
                *called(0, '{"a"', item="x", call="call_1"),
                *called(0, '{"b"', item="y", call="call_2", name="g"),
                *called(0, ": 1}", item="x", added=False),
                *called(0, ": 2}", item="y", added=False),
            ],
            id="every call at index 0",
        ),
        pytest.param(
            [
                *called(0, item="added-1", call="call_1"),
                *called(0, '{"a": 1}', item="other-1", added=False),
                closed(0, '{"a": 1}', item="done-1", call="call_1"),
                *called(1, item="added-2", call="call_2", name="g"),
                *called(1, '{"b": 2}', item="other-2", added=False),
                closed(1, '{"b": 2}', item="done-2", call="call_2", name="g"),
            ],
            id="another id in each event",
        ),
        pytest.param(
            [
                *called(None, '{"a": 1}', item="x", call="call_1"),
                closed(None, '{"a": 1}', item="x", call="call_1"),
                *called(None, '{"b": 2}', item="x", call="call_2", name="g"),
                closed(None, '{"b": 2}', item="x", call="call_2", name="g"),
            ],
            id="one item id for all, no index",
        ),
        pytest.param(
            [
                *called(0, '{"a": 1}', item="x", added=False),
                closed(0, '{"a": 1}', item="x", call="call_1"),
                *called(0, '{"b": 2}', item="y", added=False),
                closed(0, '{"b": 2}', item="y", call="call_2", name="g"),
            ],
            id="every call at index 0, unannounced",
        ),
        pytest.param(
            [
                closed(None, '{"a": 1}', item="x", call="call_1"),
                closed(None, '{"b": 2}', item="x", call="call_2", name="g"),
            ],
            id="only whole items, of one id",
        ),
        pytest.param(DONE, id="only whole items"),
        pytest.param(
            [
                *called(0, '{"a"', call="call_1"),
                *called(0, ": 9", added=False),
                DONE[0],
                *called(1, call="call_2", name="g"),
                {"type": "response.function_call_arguments.done", "item_id": "fc_1", "arguments": '{"b": 2}'},
                DONE[1],
            ],
            id="the whole item beats its pieces",
        ),
        pytest.param([*called(0, '{"a": 1}', call="call_1"), DONE[0], DONE[1], DONE[1]], id="an item told twice"),
    ],
)
def test_b3_pieces_join_their_own_call(events: list[Event]) -> None:
    """B3: names and arguments of parallel calls never cross, whatever the server does with ids and indexes."""
    told = read(events, ended(output=[]))
    assert ready(told) == TWO
    assert response(told).stop_reason == "tool_calls"


def test_b3_calls_only_in_the_finished_response() -> None:
    """B3: calls that no event told are read from the response at the end, and not told twice."""
    items = [event["item"] for event in DONE]
    assert ready(read(ended(output=items))) == TWO
    assert ready(read(called(0, '{"a": 1}', call="call_1"), DONE[0], ended(output=items))) == TWO
    renamed = [{**item, "id": f"new-{item['id']}"} for item in items]
    assert ready(read(DONE, ended(output=renamed))) == TWO
    open_calls = [*called(None, '{"a": 1}', call="call_1"), *called(None, '{"b"', call="call_2", name="g")]
    assert ready(read(open_calls, ended(output=renamed))) == TWO


def test_b16_ids_are_unique_in_the_conversation() -> None:
    """B16: one id for every call, or one used before, becomes ids of ours, the same each time."""
    calls = [*called(0, "{}", call="same"), *called(1, "{}", call="same"), *called(2, "{}", call="old")]
    ids = [call_id for call_id, _, _ in ready(read(calls, ended(), taken={"old"}, turn=3))]
    assert ids[0] == "same"
    assert len({*ids, "old"}) == 4
    assert ids == [call_id for call_id, _, _ in ready(read(calls, ended(), taken={"old"}, turn=3))]


def test_b10_no_arguments_are_an_empty_object() -> None:
    """B10, B11: a call without arguments, however that is said, is complete."""
    for item in ({"arguments": ""}, {"arguments": None}, {"arguments": {}}, {"arguments": "{}"}, {}):
        event = closed(0, "")
        event["item"] = {**event["item"], **item}
        assert ready(read(called(0), event, ended())) == [("call_0", "f", {})]


@pytest.mark.parametrize(
    "last",
    [
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[closed(0, '{"a": 1')["item"]]),
        ended("completed", usage={**USAGE, "output_tokens": 20}),
    ],
)
def test_b25_a_cut_call_never_runs(last: Event) -> None:
    """B25: arguments cut by the cap stay in the message as they came and are not offered, also when nobody says so."""
    events = read(called(0, '{"a": 1'), last, max_tokens=20)
    assert ready(events) == []
    assert response(events).message.tool_calls == (ToolCall("call_0", "f", '{"a": 1'),)
    assert response(events).stop_reason == "length"


def test_b25_a_call_cut_before_its_arguments_never_runs() -> None:
    """B25: the last call of an answer cut by the cap, without any argument yet, is not one without arguments."""
    assert ready(read(called(0), ended("incomplete", incomplete_details={"reason": "max_output_tokens"}))) == []


def test_b24_calls_decide() -> None:
    """B24: a completed response with calls ends for the calls, and without them it stops."""
    assert response(read(DONE[0], ended())).stop_reason == "tool_calls"
    assert response(read(said("hi"), ended())).stop_reason == "stop"


def test_a_server_that_cannot_say_incomplete_is_judged_by_the_cap() -> None:
    """Text at the cap from a server without incomplete_details is cut; with that field it is what the server says."""
    last = ended(usage={**USAGE, "output_tokens": 20})
    assert response(read(said("hi"), last, max_tokens=20)).stop_reason == "stop"
    del last["response"]["incomplete_details"]
    assert response(read(said("hi"), last, max_tokens=20)).stop_reason == "length"


@pytest.mark.parametrize(
    ("status", "reason", "ours"),
    [
        ("completed", None, "stop"),
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "some_future_reason", "length"),
        ("incomplete", None, "length"),
    ],
)
def test_how_a_response_ends(status: str, reason: str | None, ours: str) -> None:
    """Each way of ending has its word here; what is not complete is cut, whatever the reason is called."""
    details = None if reason is None else {"reason": reason}
    for events in (
        read(said("hi"), ended(status, incomplete_details=details)),
        whole(message("hi"), status=status, incomplete_details=details),
    ):
        answer = response(events)
        assert (answer.stop_reason, answer.raw_stop_reason) == (ours, reason or status)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20},
                "output_tokens": 30,
                "output_tokens_details": {"reasoning_tokens": 9},
            },
            Usage(100, 30, 60, 20, 0, 9),
        ),
        ({"input_tokens": 3.0, "output_tokens": None, "input_tokens_details": None}, Usage(3, None)),
        ({"input_tokens": "many", "output_tokens": True}, Usage(None, None, None, None, None, None)),
        (None, Usage(None, None, None, None, None, None)),
    ],
)
def test_b21_usage_is_inclusive_and_none_is_not_zero(usage: Event | None, expected: Usage) -> None:
    """B19, B21: input counts cached parts and output reasoning; a number that never came stays unknown."""
    assert response(read(said("x"), ended(usage=usage))).usage == expected
    assert response(whole(message("x"), usage=usage)).usage == expected


def test_b18_b20_usage_is_never_added_up() -> None:
    """B18, B20: usage in several events is taken once, the last value of each number."""
    early = {"type": "response.in_progress", "response": {"usage": {"input_tokens": 10, "output_tokens": 1}}}
    assert response(read(early, said("x"), early, ended())).usage == Usage(10, 5)


def test_units_tier_and_names() -> None:
    """Web searches are counted beside the tokens; tier, model and ids are what the server says at the end."""
    created = {"type": "response.created", "response": {"id": "resp_1", "model": "m-0", "service_tier": "auto"}}
    last = ended(service_tier="flex", tool_usage={"web_search": {"num_requests": 2}})
    events = read(created, said("x"), last)
    answer = response(events)
    assert events[0] == ChatStart("m-0", "openai", "resp_1")
    assert (answer.model, answer.response_id, answer.service_tier) == ("m-1", "resp_1", "flex")
    assert answer.usage.units == (("web_searches", 2),)


ERRORS: list[tuple[Event, type[ProviderError]]] = [
    ({"code": "rate_limit_exceeded", "message": "slow down"}, RateLimited),
    ({"code": "insufficient_quota", "message": "slow down"}, RateLimited),
    ({"code": "server_error", "message": "slow down"}, Overloaded),
    ({"code": "context_length_exceeded", "message": "slow down"}, ContextOverflow),
    ({"code": "invalid_prompt", "message": "slow down"}, BadRequest),
    ({"code": "invalid_image_format", "message": "slow down"}, BadRequest),
    ({"code": "bio_policy", "message": "slow down"}, Refused),
    ({"code": None, "message": "slow down"}, Overloaded),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_b27_three_shapes_of_an_error_are_one(error: Event, kind: type[ProviderError]) -> None:
    """B27: an error event, flat or nested, and a failed response raise the same class, with what was used so far."""
    begun = {"type": "response.in_progress", "response": {"usage": {"input_tokens": 9}}}
    shapes: list[Event] = [
        {"type": "error", "param": None, "sequence_number": 3, **error},
        {"type": "error", "error": error},
        {"error": error},
        ended("failed", error=error, usage={"input_tokens": 9}),
    ]
    told = []
    for last in shapes:
        with pytest.raises(kind, match="slow down") as caught:
            read(begun, said("x"), last)
        raised = caught.value
        told.append((type(raised), raised.code, raised.status, raised.usage["input_tokens"], raised.accepted))
    assert len(set(told[:2])) == 1
    assert {one[3] for one in told} == {9}
    with pytest.raises(kind, match="slow down"):
        whole(status="failed", error=error)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (ended("failed"), Overloaded),
        (ended("cancelled"), StreamBroken),
        ({"object": "error", "message": "no", "code": 400}, BadRequest),
    ],
)
def test_b27_other_ways_to_fail(last: Event, kind: type[ProviderError]) -> None:
    """B27: a failure without a reason, a cancelled response and a bare error are errors, never a short answer."""
    with pytest.raises(kind):
        read(said("x"), last)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": {"message": "queue full", "code": 429}}', RateLimited),
        (b'{"detail": "nothing here"}', ProviderError),
        (b'{"id": "resp_1", "status": "queued", "output": []}', BadRequest),
        (b'{"id": "chatcmpl-1", "choices": []}', StreamBroken),
        (b'[{"type": "message"}]', StreamBroken),
        (b'{"output": [', StreamBroken),
        (b"", StreamBroken),
    ],
)
def test_whole_answers_that_are_none(body: bytes, kind: type[ProviderError]) -> None:
    """A whole body that is an error, not ready, torn, or of another protocol is never an empty answer."""
    with pytest.raises(kind):
        ResponsesDecoder(ASKED).whole(body)


def test_no_end_is_a_broken_stream() -> None:
    """A stream that stops anywhere before its last event is broken, also when every item was closed."""
    events = write_turn(Turn(text="hi", calls=(ToolCall("c", "f", "{}"),)), "responses")
    for count in range(len(events)):
        decoder = ResponsesDecoder(ASKED)
        decoder.feed(b"".join(events[:count]))
        with pytest.raises(StreamBroken):
            decoder.end()


def test_b35_a_refusal_is_typed_and_billed() -> None:
    """B35: a refusal raises Refused with its text and usage, streamed, only at the end, or whole."""
    at = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    refusal = {"type": "refusal", "refusal": "I can't."}
    item = {**message(), "content": [refusal]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    deltas = [{"type": "response.refusal.delta", **at, "delta": piece} for piece in ("I ", "can't.")]
    streams: list[list[Event]] = [
        [*deltas, {"type": "response.refusal.done", **at, "refusal": "I can't."}, done],
        [{"type": "response.content_part.done", **at, "part": refusal}],
        [done],
        [],
    ]
    for stream in streams:
        with pytest.raises(Refused) as caught:
            read(stream, ended(output=[item]))
        assert (caught.value.text, caught.value.retryable) == ("I can't.", False)
        assert caught.value.usage["input_tokens"] == 10
    with pytest.raises(Refused):
        whole(item)


def test_b35_a_content_filter_is_typed() -> None:
    """B35: an answer cut by a content filter is a refusal, with the text there was."""
    with pytest.raises(Refused, match="filter") as caught:
        read(said("Some"), ended("incomplete", incomplete_details={"reason": "content_filter"}))
    assert caught.value.text == "Some"


TEXT_DONE = {"type": "response.output_text.done", "item_id": "msg_0", "output_index": 0, "content_index": 0}
PART_DONE = {"type": "response.content_part.done", "item_id": "msg_0", "output_index": 0, "content_index": 0}
ITEM_DONE = {"type": "response.output_item.done", "output_index": 0}


@pytest.mark.parametrize(
    "events",
    [
        [*said("It is ", "42."), {**TEXT_DONE, "text": "It is 42."}, {**ITEM_DONE, "item": message("It is 42.")}],
        [*said("It is "), {**TEXT_DONE, "text": "It is 42."}],
        [{**TEXT_DONE, "text": "It is 42."}],
        [{**PART_DONE, "part": {"type": "output_text", "text": "It is 42."}}],
        [{**ITEM_DONE, "item": message("It is 42.")}],
        [*said("It "), {**ITEM_DONE, "item": message("It is 42.")}],
        [],
    ],
)
def test_text_is_told_once_wherever_it_comes(events: list[Event]) -> None:
    """Text in deltas, in closing events, or only in the finished response is told whole, and once."""
    told = read(events, ended(output=[message("It is 42.")]))
    assert text_of(told) == response(told).message.content == "It is 42."


def test_parts_and_messages_keep_their_order() -> None:
    """Several parts and several messages of one response are one text in the order of the output."""
    output = [message("a", "b"), message("c", index=1)]
    streamed = read(said("a"), said("b", part=1), said("c", index=1), ended(output=output))
    assert response(streamed).message.content == "abc"
    assert response(whole(*output)).message.content == "abc"


def test_reasoning_is_told_with_its_parts_apart() -> None:
    """Summaries and raw reasoning are told as they come; parts are a blank line apart, streamed or whole."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
        "encrypted_content": "gA==",
    }
    kind = "response.reasoning_summary_text.delta"
    at = {"item_id": "rs_1", "output_index": 0}
    deltas = [{"type": kind, **at, "summary_index": n, "delta": text} for n, text in ((0, "Fir"), (0, "st."))]
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    streamed = read(deltas, done, said("hi", index=1), ended())
    told = "".join(event.text for event in streamed if isinstance(event, ReasoningDelta))
    assert told == response(streamed).message.reasoning == "First.\n\nSecond."
    assert response(whole(item, message("hi"))).message.reasoning == told
    raw = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    thought = {"type": "response.reasoning_text.delta", "item_id": "rs_1", "content_index": 0, "delta": "Hm."}
    assert response(read(thought, ended(output=[raw]))).message.reasoning == "Hm."


def test_events_without_their_type_and_of_no_known_type() -> None:
    """A type only in the event's name is read; events, items and parts that are newer mean nothing."""
    decoder = ResponsesDecoder(ASKED)
    events = decoder.feed(sse({"delta": "hi", "item_id": "m"}, "response.output_text.delta"))
    for strange in (
        {"type": "response.some_future.delta", "delta": {"x": 1}, "output_index": "?"},
        {"type": "ping"},
        {"type": "response.audio.delta", "delta": "AAAA"},
        {"type": "response.content_part.done", "part": {"type": "hologram"}, "output_index": 9},
    ):
        events += decoder.feed(sse(strange))
    events += decoder.feed(sse(ended()) + sse("[DONE]"))
    assert text_of(events) == "hi"
    assert response(decoder.end()).message.opaque == ()


def test_odd_values_are_tolerated() -> None:
    """Indexes as text, arguments as objects, lone surrogates and nulls where a text belongs break nothing."""
    events = read(
        {"type": "response.output_text.delta", "item_id": 7, "output_index": "0", "content_index": None, "delta": "a"},
        {"type": "response.output_text.delta", "output_index": 0.0, "delta": None},
        [{"type": "response.output_text.delta", "output_index": 0, "delta": "\ud83d!"}],
        {"type": "response.function_call_arguments.done", "output_index": 1, "item_id": None, "arguments": {"a": 1}},
        closed(1, '{"a": 1}'),
        ended(model=5, service_tier=[], output="none", incomplete_details="?"),
    )
    assert text_of(events) == "a\ufffd!"
    assert ready(events) == [("call_1", "f", {"a": 1})]


def test_a_call_nobody_named_is_a_malformed_turn() -> None:
    """B8: arguments without any name are the model's fault, not a call of a tool called nothing."""
    with pytest.raises(ProviderError, match="no name") as caught:
        read(called(0, "{}", added=False), ended())
    assert caught.value.code == "malformed_turn"


LIVELY = Turn(
    text="Naïvely: 日本 😀.",
    reasoning="Six sevens.",
    calls=(ToolCall("c1", "f", '{"a": "é\\n"}'), ToolCall("c2", "g", "{}")),
    usage=Usage(20, 9, 8, 4, 0, 3),
)


def test_streamed_equals_whole() -> None:
    """The same turn streamed and in one piece gives the same response."""
    streamed = ResponsesDecoder(ASKED)
    events = streamed.feed(b"".join(write_turn(LIVELY, "responses"))) + streamed.end()
    assert response(events) == response(ResponsesDecoder(ASKED).whole(write_turn(LIVELY, "responses", stream=False)[0]))
    assert response(events).usage == LIVELY.usage


BODY = b"".join(write_turn(LIVELY, "responses"))


def split(*places: int, ends: bytes = b"\n") -> list[ChatEvent]:
    """Return the events of the lively turn with its bytes cut at these places."""
    body = BODY.replace(b"\n", ends)
    decoder = ResponsesDecoder(ASKED)
    cuts = [0, *sorted(places), len(body)]
    events = [event for a, b in zip(cuts, cuts[1:], strict=False) for event in decoder.feed(body[a:b])]
    return events + decoder.end()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(BODY)), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_gives_the_same_events(places: list[int], ends: bytes) -> None:
    """Wherever the bytes are cut and whichever line ends are used, the events are the same."""
    assert split(*places, ends=ends) == split()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(BODY.split(b"\n\n")), max_size=8))
def test_no_bytes_raise_outside_the_error_tree(pieces: list[bytes]) -> None:
    """Whatever a server sends, decoding it ends in events or in a ProviderError."""
    for attempt in (lambda: feed(pieces), lambda: ResponsesDecoder(ASKED).whole(b"".join(pieces))):
        try:
            attempt()
        except ProviderError:
            pass


FIELD = st.sampled_from(
    "type id item item_id output_index content_index delta text part response output status usage error arguments "
    "name call_id summary content refusal incomplete_details reason".split()
)
PART = {"type": "output_text", "text": "x"}
ODD = [None, True, 0, 1, -1, 1.5, 1e300, "", "x", "0", [], {}, [None], ["x"], [PART], PART, {"type": "refusal"}]
JSON = st.sampled_from(ODD)
KINDS = st.sampled_from(
    [
        f"response.{kind}"
        for kind in (
            "output_text.delta output_text.done refusal.delta refusal.done reasoning_text.delta content_part.done "
            "reasoning_summary_text.done function_call_arguments.delta function_call_arguments.done output_item.added "
            "output_item.done created completed incomplete failed"
        ).split()
    ]
)
ITEM = st.dictionaries(FIELD, JSON, max_size=5) | st.builds(
    lambda kind, body: {**body, "type": kind},
    st.sampled_from(["message", "function_call", "reasoning", "other"]),
    st.dictionaries(FIELD, JSON, max_size=5),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(KINDS, st.dictionaries(FIELD, JSON | ITEM, max_size=6)), max_size=6))
def test_no_event_raises_outside_the_error_tree(events: list[tuple[str, Event]]) -> None:
    """Known events with any fields of any type end in events or in a ProviderError."""
    try:
        read(*({**body, "type": kind} for kind, body in events), ended(output=[]))
    except ProviderError:
        pass


def feed(pieces: list[bytes]) -> list[ChatEvent]:
    decoder = ResponsesDecoder(ASKED)
    for data in pieces:
        decoder.feed(data + b"\n\n")
    return decoder.end()


def cost(frames: list[bytes]) -> float:
    """Return the least of three times of decoding these frames."""
    times = []
    for _ in range(3):
        decoder = ResponsesDecoder(ASKED)
        before = time.process_time()
        for frame in frames:
            decoder.feed(frame)
        decoder.end()
        times.append(time.process_time() - before)
    return min(times)


@pytest.mark.parametrize("kind", ["text", "arguments", "calls"])
def test_time_grows_with_the_bytes(kind: str) -> None:
    """Eight times as many deltas, or calls, take about eight times as long, with all that closes them."""

    def frames(count: int) -> list[bytes]:
        if kind == "text":
            turn = Turn(text="word " * count)
        elif kind == "arguments":
            turn = Turn(calls=(ToolCall("c", "f", json.dumps({"a": "x" * 25 * count})),), size=25)
        else:
            turn = Turn(calls=tuple(ToolCall(f"c{n}", "f", "{}") for n in range(count)))
        return list(write_turn(turn, "responses"))

    small, large = (500, 4_000) if kind == "calls" else (5_000, 40_000)
    assert cost(frames(large)) < 24 * cost(frames(small))


def test_one_large_argument_arrives_whole() -> None:
    """Two megabytes of one argument in 64 kB deltas come out as they went in, each byte told once."""
    arguments = json.dumps({"content": "x\n" * 1_000_000})
    turn = Turn(calls=(ToolCall("c", "f", arguments),), size=65_536)
    decoder = ResponsesDecoder(ASKED)
    events = decoder.feed(b"".join(write_turn(turn, "responses"))) + decoder.end()
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == arguments
    assert response(events).message.tool_calls == turn.calls
