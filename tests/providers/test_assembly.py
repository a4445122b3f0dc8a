"""Tool calls and turns put together from the odd streams of many servers; each case is a kind of server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import (
    ChatEnd,
    ChatEvent,
    ChatResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolSpec,
    Usage,
)
from agentkit.errors import Overloaded, ProviderError, Refused, StreamBroken
from agentkit.providers.wire.chat_decode import ChatDecoder
from agentkit.providers.wire.fold import Asked

TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("find", "find_all", "get_weather", "roll"))


def sse(chunk: Any) -> bytes:
    """Return one event, with everything beyond ASCII as escapes, halves of characters too."""
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def piece(**given: Any) -> dict[str, Any]:
    """Return one piece of a call; `name` and `arguments` belong to its function."""
    function = {name: given.pop(name) for name in ("name", "arguments") if name in given}
    return {**given, "function": function}


def calls(*pieces: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": list(pieces)}}]}


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": content, **more}}]}


def end(reason: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {}, "finish_reason": reason}], **more}


def decode(*frames: bytes | dict[str, Any], tools: tuple[ToolSpec, ...] = TOOLS, **asked: Any) -> list[ChatEvent]:
    """Return the events of a stream made of these frames, as they stand."""
    decoder = ChatDecoder(Asked(provider="p", model="m", endpoint="e", tools=tools, **asked))
    events: list[ChatEvent] = []
    for frame in frames:
        events += decoder.feed(frame if isinstance(frame, bytes) else sse(frame))
    return events + decoder.end()


def answer(events: list[ChatEvent]) -> ChatResponse:
    last = events[-1]
    assert isinstance(last, ChatEnd)
    return last.response


def ready(events: list[ChatEvent]) -> list[tuple[str, Any]]:
    """Return name and parsed arguments of the calls that may run; events and message have to agree on them."""
    message = answer(events).message
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)
    for index, call in enumerate(message.tool_calls):
        told = [event for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert {(event.id, event.name) for event in told} == {(call.id, call.name)}, told
        first = next(place for place, event in enumerate(events) if event is told[0])
        assert all(not isinstance(event, ToolCallReady) or event.index != index for event in events[:first])
    return [(event.call.name, json.loads(event.call.arguments)) for event in events if isinstance(event, ToolCallReady)]


NEW_IDS = [piece(index=0, id=f"c{n}", name="roll", arguments=f'{{"n":{n}}}') for n in range(3)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(NEW_IDS, [("roll", {"n": n}) for n in range(3)], id="b1-b2-one-index-new-ids"),
        pytest.param(
            [piece(index=index, name="roll", arguments="{}") for index in (-1, 2**60, 7)],
            [("roll", {})] * 3,
            id="negative-and-large-index",
        ),
        pytest.param(
            [piece(index=2**70, name="roll", arguments='{"n":'), piece(index=2**70, arguments="1}")],
            [("roll", {"n": 1})],
            id="index-beyond-64-bits",
        ),
        pytest.param(
            [piece(index=0.0, id="a", name="roll", arguments="{}"), piece(index="1", id="b", name="find")],
            [("roll", {}), ("find", {})],
            id="index-as-float-and-text",
        ),
        pytest.param(
            [piece(index=0, name="roll", arguments='{"n"'), piece(index=0, id="late", arguments=":1}")],
            [("roll", {"n": 1})],
            id="b6-id-on-a-later-piece",
        ),
        pytest.param(
            [
                piece(index=n, id="a", **({"name": "roll"} if n == 0 else {}), arguments=part)
                for n, part in enumerate(('{"n"', ":", "1}"))
            ],
            [("roll", {"n": 1})],
            id="index-counts-the-pieces",
        ),
        pytest.param(
            [
                piece(index=n, **({"name": "roll"} if n == 0 else {}), arguments=part)
                for n, part in enumerate(('{"n"', ":", "1}"))
            ],
            [("roll", {"n": 1})],
            id="index-counts-the-pieces-without-ids",
        ),
        pytest.param(
            [piece(index=0, id=f"x{n}", name="roll", arguments=part) for n, part in enumerate(('{"n"', ":", "1}"))],
            [("roll", {"n": 1})],
            id="a-new-id-for-each-piece",
        ),
        pytest.param(
            [
                piece(index=0, id="a", name="get_"),
                piece(index=0, id="a", name="weather"),
                piece(index=0, arguments="{}"),
            ],
            [("get_weather", {})],
            id="name-in-pieces-with-ids",
        ),
        pytest.param(
            [piece(index=0, name="get_"), piece(index=0, name="weather", arguments='{"c":1}')],
            [("get_weather", {"c": 1})],
            id="name-in-pieces-without-ids",
        ),
        pytest.param(
            [piece(index=0, id="a", name="find"), piece(index=0, name="_all", arguments="{}")],
            [("find_all", {})],
            id="name-in-pieces-that-begins-as-another",
        ),
        pytest.param(
            [piece(index=0, id="a", name="roll", arguments=part) for part in ("", '{"n"', ":1", "}", "")],
            [("roll", {"n": 1})],
            id="name-and-id-on-every-piece",
        ),
        pytest.param(
            [piece(index=0, name="roll", arguments=part) for part in ('{"n"', ":1", "}", "")],
            [("roll", {"n": 1})],
            id="name-on-every-piece-without-ids",
        ),
        pytest.param(
            [piece(name="roll", arguments=part) for part in ('{"n"', ":1", "}")],
            [("roll", {"n": 1})],
            id="name-on-every-piece-without-index",
        ),
        pytest.param(
            [piece(index=0, name="roll"), piece(index=0, name="get_weather"), piece(index=0, name="find")],
            [("roll", {}), ("get_weather", {}), ("find", {})],
            id="b10-calls-without-arguments-in-one-slot",
        ),
        pytest.param(
            [piece(index=0, arguments='{"n":1}'), piece(index=0, id="a", name="roll")],
            [("roll", {"n": 1})],
            id="name-after-the-arguments",
        ),
        pytest.param([piece(index=0, name="roll", arguments={"n": 1})], [("roll", {"n": 1})], id="arguments-as-object"),
        pytest.param(
            [
                piece(index=0, id="a", name="roll", arguments={}),
                piece(index=0, arguments='{"n"'),
                piece(index=0, arguments=":1}"),
            ],
            [("roll", {"n": 1})],
            id="b12-a-placeholder-object-before-the-arguments",
        ),
        pytest.param([piece(index=0, name="roll", arguments="null")], [("roll", {})], id="b10-null-as-text"),
        pytest.param([piece(index=0, name="roll", arguments='""')], [("roll", {})], id="b10-empty-text-encoded"),
        pytest.param([piece(index=0, name="roll", arguments=" \n")], [("roll", {})], id="b10-white-space"),
        pytest.param(
            [piece(index=0, name="roll", arguments=json.dumps(json.dumps({"n": "é"})))],
            [("roll", {"n": "é"})],
            id="arguments-encoded-twice",
        ),
        pytest.param(
            [piece(index=0, name="roll", arguments=json.dumps(json.dumps(json.dumps({"n": 1}))))],
            [("roll", {"n": 1})],
            id="arguments-encoded-thrice",
        ),
        pytest.param(
            [piece(index=0, id="a", name="roll", arguments=part) for part in ('{"n"', ":1}", '{"n":1}')],
            [("roll", {"n": 1})],
            id="said-again-whole-with-id",
        ),
        pytest.param(
            [piece(index=0, id="a", name="roll", arguments=part) for part in ('{"n"', ":1}", '{ "n": 1 }')],
            [("roll", {"n": 1})],
            id="said-again-in-other-spacing",
        ),
        pytest.param(
            [
                piece(index=0, id="a", name="roll", arguments='{"n"'),
                piece(index=0, arguments=":1}"),
                piece(index=0, arguments='{"n":1}'),
            ],
            [("roll", {"n": 1})],
            id="said-again-without-id",
        ),
        pytest.param(
            [
                piece(index=0, id="a", name="roll", arguments='{"n"'),
                piece(index=0, arguments=":1}"),
                piece(index=0, name="roll", arguments='{"n":1}'),
            ],
            [("roll", {"n": 1})],
            id="said-again-with-name",
        ),
        pytest.param(
            [piece(index=0, id="a", name="roll", arguments=part) for part in ('{"n', '{"n":', '{"n":1', '{"n":1}')],
            [("roll", {"n": 1})],
            id="each-piece-holds-the-whole-so-far",
        ),
        pytest.param(
            [piece(index=0, id="x", name="roll", arguments=f'{{"n":{n}}}') for n in range(3)],
            [("roll", {"n": n}) for n in range(3)],
            id="b16-one-id-in-one-slot",
        ),
        pytest.param(
            [piece(index=0, id="x", name="roll"), piece(index=0, id="x", name="get_weather", arguments="{}")],
            [("roll", {}), ("get_weather", {})],
            id="b16-one-id-without-arguments",
        ),
        pytest.param(
            [piece(index=n, id="x", name="roll", arguments="") for n in range(3)],
            [("roll", {})] * 3,
            id="b16-no-arguments",
        ),
        pytest.param(
            [{}, piece(), piece(index=0), None, piece(index=0, id="a", name="roll", arguments="{}"), {"index": 3}],
            [("roll", {})],
            id="pieces-of-nothing",
        ),
        pytest.param(
            [piece(index=0, name="roll", arguments='{"t":"\ud83d'), piece(index=0, arguments='\ude00 \udc00\\u0000"}')],
            [("roll", {"t": "😀 \ufffd\ufffd"})],
            id="b48-halves-across-pieces",
        ),
        pytest.param(
            [piece(index=0, name="roll", arguments='{"t":"\\u00e9\\n\\\\u0000 \\ud83c"}')],
            [("roll", {"t": "é\n\\u0000 \ufffd"})],
            id="b48-other-escapes-stay",
        ),
    ],
)
def test_pieces_become_the_calls_that_were_meant(pieces: list[Any], expected: list[tuple[str, Any]]) -> None:
    """Whatever a server does with index, id, name and arguments, names and arguments never cross."""
    assert ready(decode(*map(calls, pieces), end("tool_calls"))) == expected


def test_several_whole_calls_in_one_chunk_without_index() -> None:
    """Entries of one list are calls of their own, also when they look alike."""
    pieces = [piece(name="roll", arguments=None), piece(name="roll", arguments=None), piece(name="find")]
    assert ready(decode(calls(*pieces), end())) == [("roll", {}), ("roll", {}), ("find", {})]


@pytest.mark.parametrize(
    "tool_calls",
    [
        piece(index=0, id="a", name="roll", arguments='{"n":1}'),
        {"0": piece(id="a", name="roll", arguments='{"n":1}')},
        {"call": piece(id="a", name="roll", arguments={"n": 1})},
    ],
)
def test_calls_as_a_dict(tool_calls: Any) -> None:
    """One call in place of a list, and calls by number, are calls."""
    assert ready(decode({"choices": [{"delta": {"tool_calls": tool_calls}}]}, end())) == [("roll", {"n": 1})]


def test_the_form_before_tools() -> None:
    """A `function_call` in pieces is one call, streamed or whole."""
    parts = [{"name": "roll", "arguments": ""}, {"arguments": '{"n"'}, {"arguments": ":1}"}]
    chunks = [{"choices": [{"delta": {"function_call": part}}]} for part in parts]
    assert ready(decode(*chunks, end("function_call"))) == [("roll", {"n": 1})]
    message = {"content": None, "function_call": {"name": "roll", "arguments": '{"n":1}'}}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "function_call"}]}).encode()
    assert ready(ChatDecoder(Asked(tools=TOOLS)).whole(body)) == [("roll", {"n": 1})]


def test_further_choices_are_not_mixed_in() -> None:
    """Only the first answer is read, wherever it stands among the others."""

    def choice(index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": {"content": text}, "finish_reason": reason}

    chunks = [
        {"choices": [choice(1, "B")]},
        {"choices": [choice(0, "a")]},
        {"choices": [choice(1, "B", "length"), choice(0, "b")]},
        {"choices": [choice(0, "c", "stop"), choice(1, "B")]},
        {"choices": [choice(2, "C", "length")]},
    ]
    response = answer(decode(*chunks))
    assert (response.message.content, response.stop_reason) == ("abc", "stop")


def test_a_message_in_a_stream() -> None:
    """A `message` in place of deltas is the answer; after deltas it only says all again."""
    call = piece(index=0, id="a", name="roll", arguments='{"n":1}')
    whole = {"choices": [{"message": {"content": "hi", "tool_calls": [call]}, "finish_reason": "stop"}]}
    events = decode(whole)
    assert (answer(events).message.content, ready(events)) == ("hi", [("roll", {"n": 1})])
    again = decode(said("hi"), calls(call), whole)
    assert (answer(again).message.content, ready(again)) == ("hi", [("roll", {"n": 1})])


@pytest.mark.parametrize(
    ("content", "text", "thought"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"], "abc", ""),
        ({"type": "text", "text": "a"}, "a", ""),
        ([{"type": "output_text", "content": "a"}, {"type": "image_url"}, None, 4], "a", ""),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a", "hm"),
        (7, "", ""),
    ],
)
def test_content_in_parts(content: Any, text: str, thought: str) -> None:
    """Text is read out of parts, thinking apart; what is no text says nothing."""
    response = answer(decode(said(content), end()))
    assert (response.message.content, response.message.reasoning) == (text, thought)


def test_reasoning_in_two_fields_is_told_once() -> None:
    """The same thought under both names is one thought; halves of characters in it are joined."""
    events = decode(
        said(None, reasoning="a\ud83d", reasoning_content="a\ud83d"), said("", reasoning="\ude00\x00\ud83d"), end()
    )
    assert answer(events).message.reasoning == "a😀\ufffd\ufffd"
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "a😀\ufffd\ufffd"


@pytest.mark.parametrize("text", ["\n\n", "Let me look.", "<think></think>", "<think>\nhm\n</think>\n", ""])
def test_b31_text_before_a_call_ends_nothing(text: str) -> None:
    """B31: blank text, a plan, or an empty thought before a call leaves the call in the turn."""
    events = decode(said(text), said(""), calls(piece(index=0, id="a", name="roll", arguments="{}")), end("stop"))
    assert ready(events) == [("roll", {})]
    assert answer(events).message.content == text
    assert answer(events).stop_reason == "tool_calls"


def test_b48_text_is_clean_when_it_is_told() -> None:
    """B48: NULs and lone halves are replaced in the deltas already; halves that meet are one character."""
    events = decode(said("a\x00\ud83d"), said("\ude00"), said("\udc00b"), said("\ud83d"), end())
    assert answer(events).message.content == "a\ufffd😀\ufffdb\ufffd"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "a\ufffd😀\ufffdb\ufffd"
    for event in events:
        repr(event).encode()


U = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([said("x"), end(x_groq={"id": "r", "usage": U})], id="beside-the-usual-place"),
        pytest.param([said("x"), end(usage={"prompt_tokens": 10.0, "completion_tokens": "5"})], id="odd-numbers"),
        pytest.param(
            [{**said("x"), "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, end(usage=U)], id="zero-first"
        ),
        pytest.param([said("x"), end(usage=U), end(usage=U), end(usage=U)], id="b18-final-chunk-again"),
        pytest.param(
            [said("x"), end(usage={**U, "completion_tokens_details": [], "cost": {"a": 1}})], id="odd-details"
        ),
        pytest.param(
            [said("x"), end(usage=U), {"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": 2**80}}],
            id="impossible-numbers-say-nothing",
        ),
        pytest.param(
            [said("x"), end(usage=U), b'data: {"choices": [], "usage": {"prompt_tokens": 1e999}}\n\n'], id="1e999"
        ),
        pytest.param([said("x"), end(usage=U), {"choices": [], "usage": [1, 2]}], id="a-list"),
        pytest.param([said("x"), end(usage=U), {"choices": [], "usage": {"prompt_tokens": True}}], id="a-boolean"),
    ],
)
def test_b18_b19_b20_usage_is_read_wherever_and_however_it_stands(chunks: list[Any]) -> None:
    """B18 to B20: the last sensible value of each number counts, once."""
    assert answer(decode(*chunks)).usage == Usage(10, 5)


@pytest.mark.parametrize(
    ("reasons", "stop"),
    [
        (["stop", "stop", None, ""], "stop"),
        (["length", "stop"], "length"),
        (["stop", "length"], "length"),
        (["STOP"], "stop"),
        (["MAX_TOKENS"], "length"),
        ([{"type": "length", "length": 5}], "length"),
        (["something_new"], "stop"),
        (["tool_calls"], "stop"),
    ],
)
def test_reasons_repeated_odd_or_unknown(reasons: list[Any], stop: str) -> None:
    """A cut is not taken back by a later reason; unknown reasons end an answer."""
    assert answer(decode(said("x"), *map(end, reasons))).stop_reason == stop


@pytest.mark.parametrize("reason", [None, "", 7])
def test_an_empty_reason_is_no_end(reason: Any) -> None:
    """An answer that only ever says an empty reason is not complete."""
    with pytest.raises(StreamBroken):
        decode(said("x"), end(reason), b"data: [DONE]\n\n")


@pytest.mark.parametrize("reason", ["SAFETY", "content_filter", "sensitive", "PROHIBITED_CONTENT"])
def test_b35_filters_under_many_names(reason: str) -> None:
    """B35: a filter's stop is a refusal with usage under any of its names, also before a later stop."""
    with pytest.raises(Refused) as raised:
        decode(said("I"), end(reason, usage=U), end("stop"))
    assert raised.value.usage["output_tokens"] == 5


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_b27_a_reason_that_is_a_failure(reason: str) -> None:
    """B27: an answer that the server gave up is an error worth another try, with the usage so far; no call of it runs."""
    with pytest.raises(Overloaded) as raised:
        decode(calls(piece(index=0, id="a", name="roll", arguments="{}")), end(reason, usage=U))
    assert (raised.value.usage["output_tokens"], raised.value.retryable) == (5, True)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "down"}}]},
        {"choices": [], "x_groq": {"error": {"message": "down"}}},
        {"x_groq": {"error": "down"}},
        {"code": "InternalError", "message": "down", "request_id": "r"},
        b"event: error\ndata: down\n\n",
        b'event: error\ndata: {"message": "down: \\"error\\""}\n\n',
        [{"error": {"code": 500, "message": "down"}}],
    ],
)
def test_b27_errors_in_odd_places(chunk: Any) -> None:
    """B27: an error is found wherever a server puts it, with its text."""
    with pytest.raises(Overloaded, match="down"):
        decode(said("x"), chunk)


@pytest.mark.parametrize("reason", ["tool_calls", "function_call", "tool_use"])
def test_b24_a_reason_without_calls(reason: str) -> None:
    """B24: a turn that ends for calls and has none is malformed, also after a thought; with text it is an answer."""
    for chunks in ([], [said(None, reasoning="hm")]):
        with pytest.raises(ProviderError) as raised:
            decode(*chunks, end(reason))
        assert raised.value.code == "malformed_turn"
    assert answer(decode(said("x"), end(reason))).stop_reason == "stop"


def test_b25_complete_calls_at_the_cap_are_ready() -> None:
    """B25: a whole call is a whole call although the answer was cut behind it; one without arguments may be cut."""
    whole = piece(index=0, id="a", name="roll", arguments='{"n":1}')
    events = decode(calls(whole), end("length", usage=U), max_tokens=5)
    assert ready(events) == [("roll", {"n": 1})]
    events = decode(calls(whole, piece(index=1, id="b", name="find")), end("stop", usage=U), max_tokens=5)
    assert ready(events) == [("roll", {"n": 1})]
    assert answer(events).stop_reason == "length"


GOOD = [said("a"), said("b"), end(usage=U)]
BODY = b"".join(map(sse, GOOD))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(BODY, id="done-missing"),
        pytest.param(BODY + b"data: [DONE]\n\n" + sse(said("more")) + b"data: {torn\n\n", id="data-after-done"),
        pytest.param(BODY.replace(b"data: ", b"data:"), id="no-space"),
        pytest.param(b"\xef\xbb\xbf" + BODY, id="bom"),
        pytest.param(BODY.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(BODY.replace(b"\n", b"\r"), id="cr"),
        pytest.param(BODY.replace(b"data:", b": note\nid: 1\nevent: message\nretry: 5\ndata:"), id="fields"),
        pytest.param(BODY.replace(b'"choices"', b'\ndata: "choices"'), id="data-over-lines"),
        pytest.param(BODY.replace(b"\n\n", b"\n"), id="no-blank-lines"),
        pytest.param(BODY.replace(b"data: ", b"").replace(b"\n\n", b"\n"), id="json-lines"),
        pytest.param(BODY.replace(b"data: ", b""), id="json-lines-apart"),
        pytest.param(b"data: " + BODY.replace(b"data: ", b"").replace(b"\n\n", b"") + b"\n\n", id="one-frame"),
        pytest.param(b"data: [" + b",".join(json.dumps(c).encode() for c in GOOD) + b"]\n\n", id="a-list"),
        pytest.param(b"data: null\n\ndata: {}\n\ndata:\n\n" + BODY, id="nothings"),
        pytest.param(b'data: {"choices": null, "usage": null, "error": null, "id": null}\n\n' + BODY, id="nulls"),
        pytest.param(b'data: {"choices": [null], "x": 1}\n\n' + BODY, id="null-choice"),
        pytest.param(b'data: {"choices": {"index": 0, "delta": {}}}\n\n' + BODY, id="choices-as-a-dict"),
        pytest.param(
            BODY.replace(b'"content": "b"', b'"content": "b", "junk": "\xff\xfe"'), id="bytes-that-are-no-utf8"
        ),
    ],
)
def test_the_same_answer_in_many_dresses(stream: bytes) -> None:
    """Line ends, comments, missing marks and odd framing do not change the answer, streamed or in one piece."""
    for events in (decode(stream), ChatDecoder(Asked(model="m")).whole(stream)):
        response = answer(events)
        assert (response.message.content, response.usage, response.stop_reason) == ("ab", Usage(10, 5), "stop")
    one_by_one = decode(*[stream[place : place + 1] for place in range(len(stream))])
    assert one_by_one == decode(stream)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"upstream connect error", "no JSON"),
        (b'{"choices": [{"message": {"content": "cut', "no JSON"),
        (b"7", "no JSON"),
        (b"[1, 2]", "no JSON"),
        (b"{}", "end marker"),
        (b'{"choices": [], "usage": {"prompt_tokens": 3}}', "end marker"),
        (b'{"object": "chat.completion.chunk", "choices": [{"delta": {"content": "half"}}]}', "end marker"),
    ],
)
def test_what_is_no_answer(body: bytes, told: str) -> None:
    """A page, nothing, a torn document or half a stream with status 200 is a broken answer that says what came."""
    with pytest.raises(StreamBroken, match=told) as raised:
        ChatDecoder(Asked()).whole(body)
    assert raised.value.accepted is not False


def test_whole_answers_may_be_as_odd() -> None:
    """A whole answer with parts, numbers as text, calls as objects and NULs is read like a stream of it."""
    message = {
        "content": [{"type": "text", "text": "a\x00"}],
        "tool_calls": [piece(id=7, name="roll", arguments={"n": 1}), piece(name="roll", arguments=None), None],
    }
    body = json.dumps({"choices": [{"message": message}], "usage": {"prompt_tokens": "10", "completion_tokens": 5.0}})
    events = ChatDecoder(Asked(tools=TOOLS)).whole(body.encode())
    assert ready(events) == [("roll", {"n": 1}), ("roll", {})]
    assert (answer(events).message.content, answer(events).usage) == ("a\ufffd", Usage(10, 5))


NAMES = st.sampled_from([tool.name for tool in TOOLS])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers(-9, 9), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4),
    st.sampled_from(["unique", "one index", "only first", "later", "constant"]),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
)
def test_any_calls_by_any_kind_of_server(
    wanted: list[tuple[str, dict[str, Any]]], kind: str, size: int, named: bool, closing: bool
) -> None:
    """Calls of any arguments, cut anywhere, come out as they were meant from each kind of server."""
    chunks: list[dict[str, Any]] = []
    for place, (name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        index = 0 if kind == "one index" else place
        for number, part in enumerate(parts):
            one: dict[str, Any] = {"index": index}
            told = number == 0 or named
            if kind == "constant":
                one["id"] = "same" if told else None
            elif kind == "later":
                one["id"] = f"id{place}" if number else None
            elif kind != "only first" or place == 0:
                one["id"] = f"id{place}" if told else None
            chunks.append(calls(piece(**one, **({"name": name} if told else {}), arguments=part)))
        if closing:
            chunks.append(said(""))
    assert ready(decode(*chunks, end("tool_calls"))) == wanted
