"""The Messages wire: blocks in order, usage, stops and errors, and what goes back to its owner unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    FilePart,
    ImagePart,
    JsonObject,
    JsonValue,
    ModelSettings,
    OutputSpec,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.errors import ConfigurationError, Overloaded, ProviderError, RateLimited, Refused, StreamBroken
from agentkit.providers.profiles import PROFILES
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.messages_decode import MessagesDecoder
from agentkit.providers.wire.messages_encode import MessagesWriter

THINKING: JsonObject = {"type": "thinking", "thinking": "", "signature": "sig=="}
REDACTED: JsonObject = {"type": "redacted_thinking", "data": "b64=="}


def event(kind: str, **fields: JsonValue) -> bytes:
    """Return one event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(**usage: JsonValue) -> bytes:
    """Return the first event."""
    message: JsonObject = {"id": "msg_1", "model": "claude-x", "content": [], "usage": usage}
    return event("message_start", message=message)


def block(index: int, given: JsonObject, *deltas: JsonObject) -> bytes:
    """Return the events of one content block."""
    parts = [event("content_block_start", index=index, content_block=given)]
    parts += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*parts, event("content_block_stop", index=index)])


def text(index: int, *pieces: str) -> bytes:
    """Return the events of a text block."""
    return block(index, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": piece} for piece in pieces])


def tool(index: int, call_id: str, name: str, *pieces: str) -> bytes:
    """Return the events of a tool_use block."""
    given: JsonObject = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, given, *[{"type": "input_json_delta", "partial_json": piece} for piece in pieces])


def stop(reason: str, usage: JsonObject | None = None, **more: JsonValue) -> bytes:
    """Return the last two events."""
    return event("message_delta", delta={"stop_reason": reason, **more}, usage=usage or {"output_tokens": 5}) + event(
        "message_stop"
    )


ASKED = Asked(provider="p", model="m", endpoint="e")


def decode(*frames: bytes) -> list[ChatEvent]:
    """Return the events of a stream made of these frames."""
    decoder = MessagesDecoder(ASKED)
    events = [one for frame in frames for one in decoder.feed(frame)]
    return events + decoder.end()


def response(events: list[ChatEvent]) -> ChatResponse:
    """Return the answer of the last event."""
    end = events[-1]
    assert isinstance(end, ChatEnd)
    return end.response


def written(*messages: object, endpoint: str = "e", model: str = "m", **more: object) -> JsonObject:
    """Return the body written for a request with these messages."""
    request = ChatRequest(messages, **more)  # type: ignore[arg-type]
    found: JsonObject = json.loads(
        MessagesWriter(PROFILES["anthropic"], endpoint, model).write(request, request.messages, 100)
    )
    return found


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ((), {}),
        (("",), {}),
        (("", '{"loc":', '"SF"}'), {"loc": "SF"}),
        (('{"file_', 'path":"a.py","cont', 'ent":"x"}'), {"file_path": "a.py", "content": "x"}),
    ],
)
def test_b12_b13_b15_arguments_in_pieces(pieces: tuple[str, ...], arguments: JsonObject) -> None:
    """B11, B12, B13, B15: the placeholder {} is no content, pieces join and are read once, empty ones say nothing."""
    events = decode(start(input_tokens=1), tool(0, "t1", "f", *pieces), stop("tool_use"))
    (ready,) = [one for one in events if isinstance(one, ToolCallReady)]
    assert json.loads(ready.call.arguments) == arguments
    assert not [one for one in events if isinstance(one, TextDelta)]


def test_b13_b25_broken_arguments_never_run() -> None:
    """B13, B25: arguments that are not JSON, or cut by the cap, are in the message as they came and not ready."""
    for reason in ("tool_use", "max_tokens"):
        events = decode(start(input_tokens=1), tool(0, "t1", "f", '{"a": "b'), stop(reason))
        assert not [one for one in events if isinstance(one, ToolCallReady)]
        assert response(events).message.tool_calls == (ToolCall("t1", "f", '{"a": "b'),)
    assert response(events).stop_reason == "length"


def test_b21_usage_is_overwritten_not_added() -> None:
    """B21: values of message_delta replace those of message_start, absent ones stay; input counts the cache too."""
    first = start(
        input_tokens=25,
        output_tokens=1,
        cache_read_input_tokens=100,
        cache_creation_input_tokens=30,
        cache_creation={"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        service_tier="priority",
    )
    usage: JsonObject = {"input_tokens": 25, "output_tokens": 15, "output_tokens_details": {"thinking_tokens": 4}}
    answer = response(decode(first, text(0, "hi"), stop("end_turn", usage)))
    assert answer.usage == Usage(155, 15, 100, 30, 20, 4)
    assert answer.service_tier == "priority"
    assert (
        response(decode(event("message_start", message={}), text(0, "x"), stop("end_turn"))).usage.input_tokens is None
    )


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "context_window"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause"),
        ("new_reason", "stop"),
    ],
)
def test_stop_reasons(reason: str, ours: str) -> None:
    """Each stop reason becomes ours and is kept as it came; one that is new is a plain stop."""
    answer = response(decode(start(input_tokens=1), text(0, "x"), stop(reason)))
    assert (answer.stop_reason, answer.raw_stop_reason) == (ours, reason)


def test_b35_refusal_is_typed_and_billed() -> None:
    """B35: a refusal raises Refused with its explanation and its usage."""
    with pytest.raises(Refused, match="not this") as caught:
        decode(start(input_tokens=9), stop("refusal", {"output_tokens": 0}, stop_details={"explanation": "not this"}))
    assert caught.value.usage["input_tokens"] == 9


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("api_error", Overloaded),
        ("new", Overloaded),
    ],
)
def test_errors_inside_a_stream(kind: str, expected: type[ProviderError]) -> None:
    """An error event after a 200 raises the class its type names, with what was used so far."""
    with pytest.raises(expected) as caught:
        decode(start(input_tokens=9), text(0, "a"), event("error", error={"type": kind, "message": "m"}))
    assert caught.value.usage["input_tokens"] == 9
    assert caught.value.accepted is not False


def test_missing_message_stop() -> None:
    """A stream that ends without message_stop is broken even when a stop reason came."""
    for frames in (
        [start()],
        [start(), text(0, "x")],
        [start(), text(0, "x"), stop("end_turn").split(b"event: message_stop")[0]],
    ):
        with pytest.raises(StreamBroken):
            decode(*frames)


def test_new_events_blocks_and_deltas_mean_nothing() -> None:
    """Events, blocks and deltas that are newer than this reader disturb nothing, and new blocks are kept whole."""
    events = decode(
        start(input_tokens=1),
        event("ping"),
        event("some_future_event", index=0),
        block(
            0,
            {"type": "hologram", "data": 1, "text": None},
            {"type": "hologram_delta", "text": "be"},
            {"type": "hologram_delta", "text": "am", "depth": 3},
        ),
        text(1, "hi"),
        stop("end_turn"),
    )
    assert response(events).message.content == "hi"
    assert written(UserMessage("q"), response(events).message)["messages"][1]["content"][0] == {  # type: ignore[index,call-overload]
        "type": "hologram",
        "data": 1,
        "text": "beam",
        "depth": 3,
    }


THOUGHTFUL = b"".join(
    [
        start(input_tokens=3),
        block(
            0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "signature_delta", "signature": "sig=="}
        ),
        block(1, REDACTED),
        text(2, "Let me ", "look 日本."),
        block(
            3,
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": '"x"}'},
        ),
        block(4, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}),
        tool(5, "t1", "f", "", '{"a": ', "1}"),
        text(6, "And more."),
        tool(7, "t2", "g"),
        stop("tool_use"),
    ]
)
CONTENT: list[JsonValue] = [
    THINKING,
    REDACTED,
    {"type": "text", "text": "Let me look 日本."},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    {"type": "text", "text": "And more."},
    {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
]


def test_b45_blocks_go_back_in_order_to_their_owner() -> None:
    """B45: thinking with an empty text, redacted thinking and the order of blocks go back unchanged; elsewhere not."""
    message = response(decode(THOUGHTFUL)).message
    results = (ToolMessage("t1", "1"), ToolMessage("t2", "2"))
    turns = written(UserMessage("q"), message, *results)["messages"]
    assert isinstance(turns, list)
    assert turns[1] == {"role": "assistant", "content": CONTENT}
    foreign = written(UserMessage("q"), message, *results, endpoint="other")["messages"]
    assert isinstance(foreign, list)
    kinds = [item["type"] for item in foreign[1]["content"]]  # type: ignore[index,call-overload]
    assert kinds == ["text", "tool_use", "tool_use"]


def test_streamed_equals_whole() -> None:
    """The same answer streamed and in one piece gives the same response."""
    body: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "model": "claude-x",
        "content": CONTENT,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }
    whole = MessagesDecoder(ASKED).whole(json.dumps(body, indent=2).encode())
    assert response(whole) == response(decode(THOUGHTFUL))


def test_whole_error_and_torn_answers() -> None:
    """A whole error is that error, and a torn or foreign body is a broken answer."""
    with pytest.raises(RateLimited):
        MessagesDecoder(ASKED).whole(b'{"type":"error","error":{"type":"rate_limit_error","message":"m"}}')
    for body in (b'{"content": [', b"<html>", b""):
        with pytest.raises(StreamBroken):
            MessagesDecoder(ASKED).whole(body)


def test_changed_text_is_what_goes_back() -> None:
    """When a layer changed the text or dropped a call, the message as it is now goes back, not the recording."""
    message = response(decode(THOUGHTFUL)).message
    changed = AssistantMessage("[masked]", message.tool_calls[:1], message.reasoning, message.opaque)
    turns = written(UserMessage("q"), changed, ToolMessage("t1", "1"))["messages"]
    told = json.dumps(turns)
    assert "[masked]" in told
    assert "Let me look" not in told
    assert told.count('"tool_use"') == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(THOUGHTFUL)), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_gives_the_same_events(cuts: list[int], ends: bytes) -> None:
    """Wherever the bytes are cut and whichever line ends are used, the events are the same."""
    body = THOUGHTFUL.replace(b"\n", ends)
    places = [0, *sorted(cuts), len(body)]
    assert decode(*[body[a:b] for a, b in zip(places, places[1:], strict=False)]) == decode(THOUGHTFUL)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(THOUGHTFUL.split(b"\n\n")), max_size=8))
def test_no_bytes_raise_outside_the_error_tree(pieces: list[bytes]) -> None:
    """Whatever a server sends, decoding it ends in events or in a ProviderError."""
    decoder = MessagesDecoder(ASKED)
    try:
        for data in pieces:
            decoder.feed(data + b"\n\n")
        decoder.end()
    except ProviderError:
        pass
    try:
        MessagesDecoder(ASKED).whole(b"".join(pieces))
    except ProviderError:
        pass


def test_request_body() -> None:
    """Every field of a request has its place on the wire; results of a turn stand together and first."""
    calls = (ToolCall("t1", "f", ""), ToolCall("functions.g:0", "g", '{"x":1}'))
    body = written(
        SystemMessage("a"),
        SystemMessage("b"),
        UserMessage(
            (TextPart("see"), ImagePart(data=b"x", media_type="image/jpeg"), FilePart(url="http://f", name="n"))
        ),
        AssistantMessage("", calls),
        ToolMessage("t1", "one"),
        ToolMessage("functions.g:0", (TextPart("two"), ImagePart(url="http://i")), is_error=True),
        UserMessage(""),
        UserMessage("and?"),
        tools=(ToolSpec("f", "does f", {"type": "object"}),),
        tool_choice=ToolChoice("auto"),
        model="claude-sonnet-4-6",
        output=OutputSpec("o", {"type": "object", "properties": {}, "additionalProperties": False}),
        settings=ModelSettings(
            stop=("END",), reasoning_effort="high", parallel_tool_calls=False, seed=1, metadata={"user_id": "u"}
        ),
    )
    turns = body.pop("messages")
    assert isinstance(turns, list)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]  # type: ignore[index,call-overload]
    user, assistant, results = (turn["content"] for turn in turns)  # type: ignore[index,call-overload]
    assert user == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "eA=="}},
        {"type": "document", "source": {"type": "url", "url": "http://f"}, "title": "n"},
    ]
    assert [(one["name"], one["input"]) for one in assistant] == [("f", {}), ("g", {"x": 1})]
    safe = assistant[1]["id"]
    assert safe.isalnum()
    assert results == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
        {
            "type": "tool_result",
            "tool_use_id": safe,
            "content": [
                {"type": "text", "text": "two"},
                {"type": "image", "source": {"type": "url", "url": "http://i"}},
            ],
            "is_error": True,
        },
        {"type": "text", "text": "and?"},
    ]
    assert body == {
        "model": "claude-sonnet-4-6",
        "max_tokens": 100,
        "system": "a\n\nb",
        "stream": True,
        "tools": [{"name": "f", "description": "does f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": {"type": "object", "properties": {}, "additionalProperties": False},
            },
            "effort": "high",
        },
        "thinking": {"type": "adaptive"},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
    }


def test_nothing_to_send_is_refused_here() -> None:
    """A conversation without any content for this server is refused before it is sent."""
    with pytest.raises(ConfigurationError, match="user message"):
        written(SystemMessage("only"), UserMessage(""))
