"""The Chat Completions wire: calls put together, usage, reasons, refusals and errors, whatever a server does."""

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
    ChatStart,
    ImagePart,
    JsonObject,
    JsonValue,
    ModelSettings,
    OutputSpec,
    ReasoningDelta,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
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
from agentkit.providers.profiles import PROFILES, Profile
from agentkit.providers.wire.chat_decode import ChatDecoder
from agentkit.providers.wire.chat_encode import ChatWriter
from agentkit.providers.wire.fold import Asked

U: JsonObject = {"prompt_tokens": 10, "completion_tokens": 5}


def line(data: JsonValue) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(delta: JsonObject | None = None, reason: str | None = None, **more: JsonValue) -> bytes:
    """Return one chunk with a choice."""
    choice: JsonObject = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return line({"id": "r1", "model": "m1", "choices": [choice], **more})


def piece(index: int | None, call_id: str | None = None, name: str | None = None, args: JsonValue = None) -> JsonObject:
    """Return the delta of one piece of one tool call, with only the keys that are given."""
    call: JsonObject = {"function": {}}
    function: JsonObject = {}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    if name is not None:
        function["name"] = name
    function["arguments"] = args
    call["function"] = function
    return {"tool_calls": [call]}


def decode(*frames: bytes, done: bool = True, asked: Asked | None = None) -> list[ChatEvent]:
    """Return the events of a stream made of these frames."""
    decoder = ChatDecoder(asked or Asked(provider="p", model="m", endpoint="e"))
    events = [event for frame in frames for event in decoder.feed(frame)]
    if done:
        events += decoder.feed(b"data: [DONE]\n\n")
    return events + decoder.end()


def response(events: list[ChatEvent]) -> ChatResponse:
    """Return the answer of the last event."""
    end = events[-1]
    assert isinstance(end, ChatEnd)
    return end.response


def calls(events: list[ChatEvent]) -> list[tuple[str, JsonValue]]:
    """Return name and parsed arguments of each call that is ready."""
    return [(e.call.name, json.loads(e.call.arguments)) for e in events if isinstance(e, ToolCallReady)]


def ids(events: list[ChatEvent]) -> list[str]:
    """Return the ids of all calls of the answer, which the deltas must have told as well."""
    found = [call.id for call in response(events).message.tool_calls]
    assert list(dict.fromkeys(e.id for e in events if isinstance(e, ToolCallDelta))) == found
    assert len(set(found)) == len(found)
    return found


def test_b1_new_id_in_a_taken_slot_is_a_new_call() -> None:
    """B1: a second id at the same index opens its own call, and later pieces stay with their id."""
    events = decode(
        chunk(piece(0, "c1", "read_memory", '{"q":"a"}')),
        chunk(piece(0, "c2", "read_page", '{"page":')),
        chunk(piece(0, "c2", None, '"m"}')),
        chunk(reason="tool_calls"),
    )
    assert calls(events) == [("read_memory", {"q": "a"}), ("read_page", {"page": "m"})]
    assert ids(events) == ["c1", "c2"]


def test_b1_interleaved_ids_never_cross() -> None:
    """B1: pieces of two calls in one slot, told alternately, end up with the right call."""
    events = decode(
        chunk(piece(0, "a", "f", "")),
        chunk(piece(0, "b", "g", "")),
        chunk(piece(0, "a", None, '{"x":')),
        chunk(piece(0, "b", None, '{"y":')),
        chunk(piece(0, "a", None, "1}")),
        chunk(piece(0, "b", None, "2}")),
        chunk(reason="tool_calls"),
    )
    assert calls(events) == [("f", {"x": 1}), ("g", {"y": 2})]


@pytest.mark.parametrize("id_of", [lambda n: f"id{n}", lambda n: None, lambda n: "same"])
def test_b2_b5_one_index_for_every_call(id_of) -> None:
    """B2, B5, B16: calls that all come at index 0, with ids, without any, or with one id, stay apart."""
    cities = ("A", "B", "C")
    events = decode(
        *[chunk(piece(0, id_of(n), "weather", json.dumps({"city": c}))) for n, c in enumerate(cities)],
        chunk(reason="tool_calls"),
    )
    assert calls(events) == [("weather", {"city": city}) for city in cities]
    assert len(ids(events)) == 3


def test_b6_missing_ids_are_made() -> None:
    """B6: a call without an id gets one, the same each time, used in deltas and message alike."""
    frames = [
        chunk(piece(0, "call_1", "f", "{}")),
        chunk(piece(1, None, "g", "{}")),
        chunk(reason="tool_calls"),
    ]
    first, second = ids(decode(*frames)), ids(decode(*frames))
    assert first == second
    assert first[0] == "call_1"
    assert first[1]


def test_b8_nameless_call_is_a_malformed_turn() -> None:
    """B8: a call without a name is a fault of the model that may be asked again, and nothing is ready."""
    with pytest.raises(ProviderError) as caught:
        decode(chunk(piece(0, "", "", '{"path":"a"}')), chunk(reason="tool_calls"), line({"choices": [], "usage": U}))
    assert (caught.value.code, caught.value.retryable) == ("malformed_turn", True)
    assert caught.value.usage["input_tokens"] == 10


@pytest.mark.parametrize("arguments", [None, "", "{}", " ", "null"])
def test_b10_no_arguments_are_an_empty_object(arguments: JsonValue) -> None:
    """B10: null, nothing and {} all mean a call without arguments, which is complete."""
    assert calls(decode(chunk(piece(0, "c", "now", arguments)), chunk(reason="tool_calls"))) == [("now", {})]


def test_b16_ids_used_before_are_made_unique() -> None:
    """B16: an id that an earlier turn has already, or twice in one turn, is replaced the same way each time."""
    asked = Asked(taken={"list:0"}, turn=4)
    frames = [
        chunk(piece(0, "list:0", "list", '{"path":"/"}')),
        chunk(piece(1, "x", "list", "{}")),
        chunk(piece(2, "x", "list", '{"path":"."}')),
        chunk(reason="tool_calls"),
    ]
    found = ids(decode(*frames, asked=asked))
    assert found[1] == "x"
    assert "list:0" not in found
    assert found == ids(decode(*frames, asked=asked))


def test_arguments_as_an_object_are_text() -> None:
    """A server that sends arguments as an object instead of text is understood."""
    assert calls(decode(chunk(piece(0, "c", "f", {"a": [1]})), chunk(reason="stop"))) == [("f", {"a": [1]})]


def test_a_repeated_last_piece_is_no_second_call() -> None:
    """A whole call told once more under the same id is the same call."""
    same = chunk(piece(0, "c", "f", '{"a":1}'))
    assert calls(decode(same, same, chunk(reason="tool_calls"))) == [("f", {"a": 1})]


def test_b18_b19_b23_usage_is_the_last_value() -> None:
    """B18, B19, B23: usage on text, on a placeholder choice and on empty choices counts once; None is not zero."""
    first = line({"choices": [], "prompt_filter_results": []})
    events = decode(
        first,
        chunk({"content": "hi"}, usage={"prompt_tokens": 10, "completion_tokens": 1}),
        chunk(reason="stop", usage=U),
        chunk(usage=U),
        line({"choices": [], "usage": {**U, "prompt_tokens_details": {"cached_tokens": 4}}}),
    )
    assert response(events).usage == Usage(10, 5, 4, 0, 0, 0)
    assert response(decode(chunk({"content": "hi"}, "stop"))).usage.input_tokens is None
    assert response(decode(chunk({"content": "hi"}, "stop", usage={"prompt_tokens": 3}))).usage.output_tokens is None


def test_b24_calls_decide_and_not_the_reason() -> None:
    """B24: stop with calls is a tool turn; tool_calls without any is an empty turn, or a plain answer with text."""
    assert response(decode(chunk(piece(0, "c", "f", "{}")), chunk(reason="stop"))).stop_reason == "tool_calls"
    assert response(decode(chunk({"content": "done"}, "tool_calls"))).stop_reason == "stop"
    with pytest.raises(ProviderError, match="malformed"):
        decode(chunk(reason="tool_calls"))


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
@pytest.mark.parametrize("arguments", ['{"path":"a","content":"#!/usr/b', ""])
def test_b25_cut_calls_are_never_ready(reason: str, arguments: str) -> None:
    """B25: arguments cut at the cap stay broken in the message, whatever the reason says; an earlier call is ready."""
    events = decode(
        chunk(piece(0, "c1", "read", '{"p":1}')),
        chunk(piece(1, "c2", "write", arguments)),
        chunk(reason=reason, usage={"prompt_tokens": 1, "completion_tokens": 64}),
        asked=Asked(max_tokens=64),
    )
    assert calls(events) == [("read", {"p": 1})]
    answer = response(events)
    assert answer.stop_reason == "length"
    with pytest.raises(ValueError):
        json.loads(answer.message.tool_calls[1].arguments)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (line({"error": {"message": "queue full", "code": 429}}), RateLimited),
        (line({"error": {"message": "long", "code": "context_length_exceeded"}, "choices": []}), ContextOverflow),
        (line({"error": {"message": "bad", "code": 400}, "choices": None}), BadRequest),
        (line({"error": {"message": "?", "code": "odd"}}), Overloaded),
        (line({"error": "out of memory"}), Overloaded),
        (line({"object": "error", "message": "no", "code": 400}), BadRequest),
        (chunk({}, "error", error={"code": 503, "message": "down"}), Overloaded),
        (b'event: error\ndata: {"message": "slow down", "type": "rate_limit_error"}\n\n', RateLimited),
    ],
)
def test_b27_errors_inside_a_stream(frame: bytes, kind: type[ProviderError]) -> None:
    """B27: an error frame after a 200 raises the class that its code or type names, with the usage so far."""
    start = chunk(piece(0, "c", "f", "{}"), usage={"prompt_tokens": 7})
    with pytest.raises(kind) as caught:
        decode(start, frame)
    assert caught.value.usage["input_tokens"] == 7


def test_b27_error_in_a_whole_answer() -> None:
    """B27: a whole answer with null choices and an error is that error."""
    with pytest.raises(Overloaded):
        ChatDecoder(Asked()).whole(b'{"id":null,"choices":null,"error":{"code":500,"message":"x"}}')


def test_b31_text_before_calls_ends_nothing() -> None:
    """B31: blank or plain text before a call leaves the call in the turn, streamed or not."""
    for text in ("\n\n", "Let me look."):
        events = decode(chunk({"content": text}), chunk(piece(0, "c", "f", "{}")), chunk(reason="stop"))
        assert response(events).message == AssistantMessage(text, (ToolCall("c", "f", "{}"),))


@pytest.mark.parametrize("reason", ["stop", "content_filter"])
def test_b35_refusals_are_typed_and_billed(reason: str) -> None:
    """B35: a refusal and a filtered answer raise Refused with the text and the usage, and are not retried."""
    delta: JsonObject = {"refusal": "I can't"} if reason == "stop" else {"content": "I can't"}
    with pytest.raises(Refused) as caught:
        decode(chunk(delta), chunk(reason=reason), line({"choices": [], "usage": U}))
    assert (caught.value.text, caught.value.retryable, caught.value.usage["output_tokens"]) == ("I can't", False, 5)


def test_empty_answer_after_tools_is_a_fault() -> None:
    """B5: an empty stop of 0 tokens after a tool turn is a fault that can be retried, elsewhere an empty answer."""
    frames = (chunk(reason="stop"), line({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}))
    with pytest.raises(ProviderError, match="empty answer"):
        decode(*frames, asked=Asked(after_tools=True))
    assert response(decode(*frames)).message == AssistantMessage("")


def test_missing_end_marker() -> None:
    """A stream without a finish reason is broken, with or without [DONE]; a finish reason without [DONE] is enough."""
    for done in (True, False):
        with pytest.raises(StreamBroken):
            decode(chunk({"content": "half"}), done=done)
    assert response(decode(chunk({"content": "x"}, "stop"), done=False)).message.content == "x"
    with pytest.raises(StreamBroken):
        decode(chunk({"content": "x"}), b'data: {"choices": [{"del', done=False)


def test_b48_lone_surrogates_are_mended() -> None:
    """B48: halves that meet are joined, lone ones become U+FFFD, in text and in arguments."""
    events = decode(chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b\ud83d"}), chunk({"content": "c"}, "stop"))
    assert response(events).message.content == "a\U0001f600b\ufffdc"
    events = decode(chunk(piece(0, "c", "f", '{"t":"\\ud83c","u":"\\ud83d\\ude00"}')), chunk(reason="stop"))
    assert calls(events) == [("f", {"t": "\ufffd", "u": "\U0001f600"})]


def test_odd_shapes_are_read() -> None:
    """Content in parts, thinking, comments, garbage lines, CRLF and lines without blank ones between are all read."""
    parts: list[JsonValue] = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "hi"},
    ]
    events = decode(b": PROCESSING\r\n\r\n", b"garbage\n\n", chunk({"content": parts}), chunk(reason="stop"))
    assert [e for e in events if isinstance(e, ReasoningDelta)] == [ReasoningDelta("hm")]
    assert response(events).message == AssistantMessage("hi", (), "hm")
    together = (chunk({"content": "a"}).strip() + b"\n" + chunk({"content": "b"}, "stop")).replace(b"\n", b"\r\n")
    assert response(decode(together)).message.content == "ab"


def test_garbage_data_is_a_broken_stream() -> None:
    """Data that is no JSON raises StreamBroken and nothing else."""
    for data in (b"data: {oops\n\n", b"data: \xff\xfe\n\n", b"data: [[[\n\n"):
        with pytest.raises(StreamBroken):
            decode(chunk({"content": "x"}), data, chunk(reason="stop"))


RECORDED = b"".join(
    [
        b"\xef\xbb\xbf: hello\n\n",
        line({"choices": [], "prompt_filter_results": []}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "höm"}),
        chunk({"content": "a\r\nb 日本 "}),
        chunk({"content": "\U0001f600"}),
        chunk(piece(0, "c1", "f", "")),
        chunk(piece(0, None, None, '{"x": "}{\\"')),
        chunk(piece(1, None, "g", None)),
        chunk(piece(0, None, None, '"}')),
        chunk(reason="tool_calls"),
        line({"choices": [], "usage": U}),
        b"data: [DONE]\n\n",
    ]
)
WHOLE = json.dumps(
    {
        "id": "r1",
        "model": "m1",
        "choices": [
            {
                "message": {
                    "content": "a\r\nb 日本 \U0001f600",
                    "reasoning_content": "höm",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": "}{\\""}'}},
                        {"function": {"name": "g", "arguments": None}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": U,
    }
).encode()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(RECORDED)), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_gives_the_same_events(cuts: list[int], ends: bytes) -> None:
    """Wherever the bytes are cut and whichever line ends are used, the events are the same."""
    body = RECORDED.replace(b"\n", ends)
    places = [0, *sorted(cuts), len(body)]
    split = [body[start:end] for start, end in zip(places, places[1:], strict=False)]
    assert decode(*split, done=False) == decode(RECORDED, done=False)


def test_streamed_equals_whole() -> None:
    """The same answer streamed and in one piece gives the same response and starts the same."""
    streamed = decode(RECORDED, done=False)
    whole = ChatDecoder(Asked(provider="p", model="m", endpoint="e")).whole(WHOLE)
    assert response(whole) == response(streamed)
    assert whole[0] == streamed[0] == ChatStart("m1", "p", "r1")
    text = "".join(e.text for e in streamed if isinstance(e, TextDelta))
    assert text == "".join(e.text for e in whole if isinstance(e, TextDelta)) == response(whole).message.content


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(RECORDED.split(b"\n\n")), max_size=8))
def test_no_bytes_raise_outside_the_error_tree(pieces: list[bytes]) -> None:
    """Whatever a server sends, decoding it ends in events or in a ProviderError."""
    decoder = ChatDecoder(Asked())
    try:
        for data in pieces:
            decoder.feed(data + b"\n\n")
        decoder.end()
    except ProviderError:
        pass
    try:
        ChatDecoder(Asked()).whole(b"".join(pieces))
    except ProviderError:
        pass


def body(request: ChatRequest, profile: Profile = PROFILES["openai"], **more: int | None) -> JsonObject:
    """Return the body written for a request."""
    writer = ChatWriter(profile, "e", "m")
    written: JsonObject = json.loads(writer.write(request, request.messages, more.get("max_tokens")))
    return written


def test_request_body() -> None:
    """Every field of a request has its place on the wire."""
    tool = ToolSpec("f", "does f", {"type": "object", "properties": {}}, strict=True)
    request = ChatRequest(
        (
            SystemMessage("be brief"),
            UserMessage((TextPart("look"), ImagePart(data=b"x", media_type="image/png", detail="low"))),
            AssistantMessage("", (ToolCall("c1", "f", ""),)),
            ToolMessage("c1", (TextPart("out"), ImagePart(url="http://x"))),
        ),
        tools=(tool,),
        tool_choice=ToolChoice("tool", "f"),
        output=OutputSpec("o", {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
        settings=ModelSettings(
            temperature=0.5,
            top_p=0.9,
            max_tokens=9,
            stop=("END",),
            seed=3,
            reasoning_effort="low",
            parallel_tool_calls=False,
            service_tier="flex",
            metadata={"a": "b"},
            extra={"verbosity": "low"},
        ),
    )
    closed = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert body(request, max_tokens=9) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA==", "detail": "low"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": "out\n[1 images or files of this result are left out: results are text here]",
            },
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "does f", "parameters": closed, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "o", "schema": request.output and request.output.schema, "strict": True},
        },
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 9,
        "stop": ["END"],
        "seed": 3,
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "metadata": {"a": "b"},
        "verbosity": "low",
    }


def test_b20_stream_options_are_a_switch() -> None:
    """B20: a server that refuses stream_options is not sent any."""
    request = ChatRequest((UserMessage("x"),))
    assert "stream_options" not in body(request, PROFILES["mistral"])
    assert "stream" not in body(ChatRequest((UserMessage("x"),), stream=False))


@pytest.mark.parametrize(
    ("name", "content"), [("openai", None), ("lmstudio", ""), ("ollama", ""), ("vllm", None), ("sglang", "")]
)
def test_b47_content_of_a_tool_only_message(name: str, content: str | None) -> None:
    """B47: null only beside calls and only where the server takes it; without calls it is always text."""
    messages = (
        UserMessage("x"),
        AssistantMessage("", (ToolCall("c", "f"),)),
        ToolMessage("c", ""),
        AssistantMessage(""),
    )
    written = body(ChatRequest(messages), PROFILES[name])["messages"]
    assert isinstance(written, list)
    assert [m["content"] for m in written if isinstance(m, dict) and m["role"] == "assistant"] == [content, ""]


def test_b44_reasoning_goes_back_to_its_own_server_only() -> None:
    """B44: reasoning_content is echoed inside a tool loop by its owner's profile, "" for an old message, else absent."""
    asked = Asked(endpoint="e", model="m", echo="content")
    own = response(
        decode(chunk({"reasoning_content": "hm"}), chunk(piece(0, "c", "f", "{}")), chunk(reason="stop"), asked=asked)
    ).message
    old = AssistantMessage("", (ToolCall("d", "f"),))
    request = ChatRequest((UserMessage("x"), own, ToolMessage("c", "1"), old, ToolMessage("d", "2")))

    def echoed(profile: Profile) -> list[JsonValue]:
        written = body(request, profile)["messages"]
        assert isinstance(written, list)
        return [
            m.get("reasoning_content", "absent") for m in written if isinstance(m, dict) and m["role"] == "assistant"
        ]

    assert echoed(PROFILES["deepseek"]) == ["hm", ""]
    assert echoed(PROFILES["openai"]) == ["absent", "absent"]
    writer = ChatWriter(PROFILES["deepseek"], "elsewhere", "m")
    assert b'"hm"' not in writer.write(request, request.messages, None)


def test_b48_text_is_safe_on_the_wire() -> None:
    """B48: lone surrogates and NUL in anything that is sent become U+FFFD, and broken arguments become one field."""
    messages = (
        UserMessage("a\x00b"),
        AssistantMessage("", (ToolCall("c", "f", '{"x": "cut'),)),
        ToolMessage("c", "caf\udce9"),
    )
    written = body(ChatRequest(messages))["messages"]
    assert isinstance(written, list)
    assert json.dumps(written).count("fffd") == 2
    assert json.loads(written[1]["tool_calls"][0]["function"]["arguments"]) == {"unparsed_arguments": '{"x": "cut'}


def test_history_is_written_once() -> None:
    """A message is written the first time only, its bytes live as long as it does, and turns build on them."""
    writer = ChatWriter(PROFILES["openai"], "e", "m")
    first = UserMessage("hello")
    writer.write(ChatRequest((first,)), (first,), None)
    kept = writer._memo.get(first)
    second = AssistantMessage("hi")
    body_bytes = writer.write(ChatRequest((first, second)), (first, second), None)
    assert writer._memo.get(first) is kept
    assert kept is not None
    assert kept in body_bytes
    assert len(writer._memo) == 2
    del first, second
    assert len(writer._memo) == 0


def test_schema_goes_into_the_prompt_where_none_is_enforced() -> None:
    """A server with JSON mode only gets the schema as an instruction; a schema that cannot be strict is not."""
    output = OutputSpec("o", {"type": "object", "properties": {"a": {"type": "object"}}})
    request = ChatRequest((UserMessage("x"),), output=output)
    told = body(request, PROFILES["deepseek"])
    assert told["response_format"] == {"type": "json_object"}
    assert '"properties"' in json.dumps(told["messages"]).replace("\\", "")
    loose = body(request)["response_format"]
    assert isinstance(loose, dict)
    assert isinstance(loose["json_schema"], dict)
    assert loose["json_schema"]["strict"] is False
