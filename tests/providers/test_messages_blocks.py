"""Answers of the Messages protocol as servers really tell them: blocks of every kind, odd streams, stops and usage."""

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
    JsonObject,
    JsonValue,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentkit.errors import Overloaded, ProviderError, RateLimited, Refused, StreamBroken
from agentkit.providers.profiles import PROFILES
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.messages_decode import MessagesDecoder
from agentkit.providers.wire.messages_encode import MessagesWriter

ASKED = Asked(provider="p", model="m", endpoint="e")
START: JsonObject = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 9}}}
STOP: JsonObject = {"type": "message_stop"}


def told(*events: JsonObject, asked: Asked = ASKED) -> list[ChatEvent]:
    """Return what a stream of these events tells."""
    decoder = MessagesDecoder(asked)
    found: list[ChatEvent] = []
    for event in events:
        found += decoder.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return found + decoder.end()


def opens(index: int, **block: JsonValue) -> JsonObject:
    """Return the start of a block."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **fields: JsonValue) -> JsonObject:
    """Return a piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closes(index: int) -> JsonObject:
    """Return the end of a block."""
    return {"type": "content_block_stop", "index": index}


def ends(reason: str | None = "end_turn", **more: JsonValue) -> JsonObject:
    """Return the event with the stop reason."""
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": {"output_tokens": 5}}


def text(index: int, said: str) -> list[JsonObject]:
    """Return a text block."""
    return [opens(index, type="text", text=""), piece(index, "text_delta", text=said), closes(index)]


def response(events: list[ChatEvent]) -> ChatResponse:
    """Return the answer of the last event."""
    end = events[-1]
    assert isinstance(end, ChatEnd)
    return end.response


def sent_back(*messages: AssistantMessage | ToolMessage) -> list[JsonObject]:
    """Return the turns after the user's in the next request to the same model."""
    request = ChatRequest((UserMessage("q"), *messages))
    body = json.loads(MessagesWriter(PROFILES["anthropic"], "e", "m").write(request, request.messages, 100))
    found: list[JsonObject] = body["messages"][1:]
    return found


# What a server's own tools bring, each in its own shape: the last one is of a kind that is not known here.
SERVED: list[JsonObject] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "http://x", "title": "T", "encrypted_content": "E+/="}],
    },
    {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_fetch", "input": {"url": "http://x"}},
    {
        "type": "web_fetch_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {"type": "web_fetch_tool_error", "error_code": "url_not_accessible"},
    },
    {"type": "server_tool_use", "id": "srvtoolu_3", "name": "bash_code_execution", "input": {"command": "ls"}},
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_3",
        "content": {"type": "bash_code_execution_result", "stdout": "a\n", "stderr": "", "return_code": 0, "content": []},
    },
    {
        "type": "text_editor_code_execution_tool_result",
        "tool_use_id": "srvtoolu_4",
        "content": {"type": "text_editor_code_execution_create_result", "is_file_update": False},
    },
    {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_5", "content": {"type": "new", "deep": [[1]]}},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {"a": [1, {"b": None}]}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [{"type": "text", "text": "x"}]},
    {"type": "thinking", "thinking": "So.", "signature": "c2ln+/="},
    {"type": "redacted_thinking", "data": "b64=="},
    {"type": "tea_leaves", "pattern": {"cup": 1}, "note": ""},
]  # fmt: skip
CITED: JsonObject = {
    "type": "text",
    "text": "High at noon.",
    "citations": [{"type": "web_search_result_location", "url": "http://x", "cited_text": "noon", "encrypted_index": "I=="}],
}  # fmt: skip
CALL: JsonObject = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}


def streamed(block: JsonObject, index: int) -> list[JsonObject]:
    """Return the events in which a server streams this block."""
    kind = block["type"]
    if kind == "text":
        cited = block.get("citations") or []
        assert isinstance(cited, list)
        extra = [piece(index, "citations_delta", citation=one) for one in cited]
        return [
            opens(index, type="text", text=""),
            *extra,
            piece(index, "text_delta", text=block["text"]),
            closes(index),
        ]
    if kind == "thinking":
        pieces = [piece(index, "thinking_delta", thinking=letter) for letter in str(block["thinking"])]
        signature = str(block["signature"])
        signed = [piece(index, "signature_delta", signature=part) for part in (signature[:2], signature[2:])]
        return [opens(index, type="thinking", thinking="", signature=""), *pieces, *signed, closes(index)]
    if isinstance(block.get("input"), dict):
        written = json.dumps(block["input"])
        pieces = [piece(index, "input_json_delta", partial_json=part) for part in ("", written[:5], written[5:])]
        return [opens(index, **{**block, "input": {}}), *pieces, closes(index)]
    return [opens(index, **block), closes(index)]


BLOCK = st.sampled_from([*SERVED, CITED, {"type": "text", "text": "Plain."}])


@settings(max_examples=150, deadline=None)
@given(st.lists(BLOCK, max_size=8), st.booleans())
def test_b45_every_block_goes_back_as_it_came(blocks: list[JsonObject], calls: bool) -> None:
    """B45: any mix of blocks, streamed or whole, is the same answer and goes back block for block; only ours run."""
    content: list[JsonObject] = [*blocks, CALL] if calls else blocks
    reason = "tool_use" if calls else "end_turn"
    events = [event for index, block in enumerate(content) for event in streamed(block, index)]
    stream = told(START, *events, ends(reason), STOP)
    body = {"id": "msg_1", "content": content, "stop_reason": reason, "usage": {"input_tokens": 9, "output_tokens": 5}}
    whole = MessagesDecoder(ASKED).whole(json.dumps(body).encode())
    assert response(stream) == response(whole)
    assert [event.call.id for event in stream if isinstance(event, ToolCallReady)] == (["toolu_1"] if calls else [])
    message = response(stream).message
    result = [ToolMessage("toolu_1", "1")] if calls else []
    if content:
        assert sent_back(message, *result)[0] == {"role": "assistant", "content": content}


def test_b45_a_paused_answer_is_one_turn_with_its_continuation() -> None:
    """A paused answer and what follows it go back as one turn, in order, with the container they ran in asked for."""
    used, found = SERVED[0], SERVED[1]
    first = response(told(START, *streamed(used, 0), ends("pause_turn", container={"id": "container_7"}), STOP))
    assert (first.stop_reason, first.message.tool_calls) == ("pause", ())
    assert sent_back(first.message) == [{"role": "assistant", "content": [used]}]
    rest = response(told(START, *streamed(found, 0), *streamed(CITED, 1), ends(), STOP))
    assert sent_back(first.message, rest.message) == [{"role": "assistant", "content": [used, found, CITED]}]


def test_a_servers_call_beside_ours_waits_for_our_result() -> None:
    """A server's call that has no result yet goes back beside ours, and our result follows."""
    events = [*streamed(SERVED[0], 0), *streamed(CALL, 1)]
    message = response(told(START, *events, ends("tool_use"), STOP)).message
    assert message.tool_calls == (ToolCall("toolu_1", "f", '{"a":1}'),)
    turns = sent_back(message, ToolMessage("toolu_1", "ok"))
    assert turns[0]["content"] == [SERVED[0], CALL]
    assert turns[1]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]


def test_an_index_used_again_is_another_block() -> None:
    """A server that counts every block as 0 loses none of them, and calls stay apart."""
    events = [
        *streamed(SERVED[11], 0),
        *text(0, "One. "),
        *streamed({**CALL, "id": "a"}, 0),
        *streamed({**CALL, "id": "b", "input": {"a": 2}}, 0),
    ]
    answer = response(told(START, *events, ends("tool_use"), STOP))
    assert answer.message.content == "One. "
    assert answer.message.tool_calls == (ToolCall("a", "f", '{"a":1}'), ToolCall("b", "f", '{"a":2}'))
    results = [ToolMessage("a", "1"), ToolMessage("b", "2")]
    turn = sent_back(answer.message, *results)[0]["content"]
    assert turn == [
        SERVED[11],
        {"type": "text", "text": "One. "},
        {**CALL, "id": "a"},
        {**CALL, "id": "b", "input": {"a": 2}},
    ]


def test_blocks_without_start_or_stop() -> None:
    """Pieces whose start never came are what their kind says, and a block without its stop counts."""
    answer = response(
        told(START, piece(0, "thinking_delta", thinking="Hm."), piece(1, "text_delta", text="Hi"), ends(), STOP)
    )
    assert (answer.message.content, answer.message.reasoning) == ("Hi", "Hm.")
    given_at_start = opens(0, type="tool_use", id="t", name="f", input={"a": 1})
    events = told(START, given_at_start, ends("tool_use"), STOP)
    assert [event.call.arguments for event in events if isinstance(event, ToolCallReady)] == ['{"a":1}']
    with pytest.raises(ProviderError, match="no name"):
        told(START, piece(0, "input_json_delta", partial_json="{}x"), ends("tool_use"), STOP)


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [(["{}", '{"a"', ":1}"], '{"a":1}'), (["{}"], "{}"), (["", "{}"], "{}"), ([], "{}"), (["{", "}"], "{}")],
)
def test_b12_a_placeholder_is_no_argument(pieces: list[str], arguments: str) -> None:
    """B11, B12: a placeholder sent on as a first piece does not precede the arguments, and is them when alone."""
    events = told(
        START,
        opens(0, type="tool_use", id="t", name="f", input={}),
        *(piece(0, "input_json_delta", partial_json=one) for one in pieces),
        closes(0),
        ends("tool_use"),
        STOP,
        asked=Asked(max_tokens=5),
    )
    (call,) = response(events).message.tool_calls
    if pieces:
        assert call.arguments == arguments
        assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == arguments


def test_b15_pings_and_empty_pieces_say_nothing() -> None:
    """B15: pings anywhere and empty pieces give no event."""
    ping: JsonObject = {"type": "ping"}
    events = told(
        ping,
        START,
        ping,
        opens(0, type="text", text=""),
        ping,
        piece(0, "text_delta", text=""),
        piece(0, "text_delta", text="Hi"),
        piece(0, "input_json_delta", partial_json=""),
        ping,
        closes(0),
        ends(),
        ping,
        STOP,
    )
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Hi")]
    assert [type(event).__name__ for event in events] == ["ChatStart", "TextDelta", "ChatEnd"]
    unannounced = told(*text(0, "Hi"), START, ends(), STOP)
    assert [type(event).__name__ for event in unannounced] == ["ChatStart", "TextDelta", "ChatEnd"]
    assert (response(unannounced).response_id, response(unannounced).usage) == ("msg_1", Usage(9, 5))
    assert response(told(*text(0, "Hi"), ends(), STOP)).usage.input_tokens is None


@pytest.mark.parametrize(
    ("category", "explanation", "said", "code", "held"),
    [
        ("cyber", "It could do harm.", "", "cyber", "It could do harm."),
        ("bio", None, "", "bio", ""),
        (None, None, "I will not go", "refusal", "I will not go"),
        ("cyber", "It could do harm.", "First you", "cyber", "First you"),
    ],
)
def test_b35_a_refusal_says_why(category: str | None, explanation: str | None, said: str, code: str, held: str) -> None:
    """B35: a refusal, also in the middle of the text, is Refused with its text, its category as code, and its usage."""
    details: JsonObject = {"type": "refusal", "category": category, "explanation": explanation}
    last = ends("refusal", stop_details=details)
    last["usage"] = {"output_tokens": 0}
    for stop_details in (details, None) if category is None else (details,):
        last = {**last, "delta": {"stop_reason": "refusal", "stop_details": stop_details}}
        with pytest.raises(Refused) as raised:
            told(START, *(text(0, said) if said else []), *streamed(CALL, 1), last, STOP)
        error = raised.value
        assert (error.code, error.text, error.retryable) == (code, held, False)
        assert (explanation or said) in error.message
        assert (error.usage["input_tokens"], error.usage["output_tokens"]) == (9, 0)
    body = {
        "content": [],
        "stop_reason": "refusal",
        "stop_details": details,
        "usage": {"input_tokens": 9, "output_tokens": 0},
    }
    with pytest.raises(Refused) as raised:
        MessagesDecoder(ASKED).whole(json.dumps(body).encode())
    assert raised.value.code == code


def test_a_full_window_cuts_like_a_cap() -> None:
    """B25: an answer that filled the window has its own reason, and a call cut by it never runs."""
    cut = [opens(1, type="tool_use", id="t", name="f", input={}), piece(1, "input_json_delta", partial_json='{"a": "b')]
    events = told(START, *text(0, "So "), *cut, ends("model_context_window_exceeded"), STOP)
    answer = response(events)
    assert (answer.stop_reason, answer.raw_stop_reason) == ("context_window", "model_context_window_exceeded")
    assert not [event for event in events if isinstance(event, ToolCallReady)]
    assert answer.message.tool_calls[0].arguments == '{"a": "b'


@pytest.mark.parametrize(
    ("start", "last", "usage"),
    [
        ({"input_tokens": 25, "output_tokens": 1}, {"input_tokens": None, "output_tokens": 15}, Usage(25, 15)),
        ({}, {"input_tokens": 25, "output_tokens": 15, "cache_read_input_tokens": 4}, Usage(29, 15, 4)),
        ({"input_tokens": 0}, {"input_tokens": 25.0, "output_tokens": 15, "cache_creation": None}, Usage(25, 15)),
        ({"input_tokens": 25}, {"output_tokens": 15, "iterations": [{"input_tokens": 9}], "extra": {"input_tokens": 1}}, Usage(25, 15)),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 40, "cache_creation": {"ephemeral_1h_input_tokens": 30}},
            {"output_tokens": 15, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 0},
            Usage(45, 15, 0, 40, 30),
        ),
        (
            {"input_tokens": 5, "server_tool_use": None},
            {"output_tokens": 15, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}},
            Usage(5, 15, units=(("web_searches", 2),)),
        ),
        ({"input_tokens": "many"}, {"output_tokens": True}, Usage(None, None, None, None, None, None)),
        ({"input_tokens": 1e400}, {"output_tokens": 2}, Usage(None, 2)),
    ],
)  # fmt: skip
def test_b21_the_last_number_counts(start: JsonObject, last: JsonObject, usage: Usage) -> None:
    """B21: each number is its last one, null and nonsense keep what was said, and only usage itself is counted."""
    first: JsonObject = {"type": "message_start", "message": {"usage": start}}
    assert response(told(first, *text(0, "x"), {**ends(), "usage": last}, STOP)).usage == usage


def test_a_stream_as_other_servers_write_it() -> None:
    """Data without a type under a named event, an id of another protocol, `[DONE]` as the end: all is understood."""
    frames = [
        b'event: message_start\ndata: {"message":{"id":"chatcmpl-7","model":"/w.gguf","usage":{"input_tokens":3}}}\n\n',
        b'event: content_block_delta\ndata: {"index":null,"delta":{"type":"text_delta","text":"Hi"}}\n\n',
        b'event: message_delta\ndata: {"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n',
        b"data: [DONE]\n\n",
    ]
    decoder = MessagesDecoder(Asked(model="m", report_model=False))
    answer = response([event for frame in frames for event in decoder.feed(frame)] + decoder.end())
    assert (answer.message.content, answer.response_id, answer.model) == ("Hi", "chatcmpl-7", "m")
    assert answer.usage == Usage(3, 2)
    early = MessagesDecoder(ASKED)
    for frame in (*frames[:2], frames[3]):
        early.feed(frame)
    with pytest.raises(StreamBroken):
        early.end()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}\n\n', Overloaded),
        (b'event: error\ndata: {"error":{"type":"rate_limit_error","message":"m"}}\n\n', RateLimited),
        (b'event: error\ndata: {"type":"rate_limit_error","message":"m"}\n\n', RateLimited),
        (b'data: {"error":{"code":429,"message":"m"}}\n\n', RateLimited),
        (b'event: error\ndata: "busy"\n\n', ProviderError),
    ],
)
def test_b27_errors_inside_a_stream(data: bytes, kind: type[ProviderError]) -> None:
    """B27: an error event in any of the shapes servers write it in is its error, never an answer."""
    decoder = MessagesDecoder(ASKED)
    with pytest.raises(kind):
        decoder.feed(data)
        decoder.end()


def test_many_pieces_of_any_field_stay_linear() -> None:
    """Signatures, citations and new fields are joined once, however many pieces they come in."""
    count = 20_000
    events = [
        opens(0, type="thinking", thinking="", signature=""),
        *[piece(0, "signature_delta", signature="s") for _ in range(count)],
        opens(1, type="text", text=""),
        *[piece(1, "citations_delta", citation={"n": 1}) for _ in range(count)],
        opens(2, type="new"),
        *[piece(2, "new_delta", said="x") for _ in range(count)],
    ]
    (item,) = response(told(START, *events, ends(), STOP)).message.opaque
    thinking, cited, new = item.data  # type: ignore[misc]
    assert (len(thinking["signature"]), len(cited["citations"]), len(new["said"])) == (count, count, count)  # type: ignore[call-overload,index]
