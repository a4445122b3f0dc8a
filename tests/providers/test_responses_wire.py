"""Requests of the Responses protocol: every field in its place, and items back to their owner as they came."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatRequest,
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    ModelSettings,
    OutputSpec,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agentkit.providers.profiles import find_profile
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.responses_decode import ResponsesDecoder
from agentkit.providers.wire.responses_encode import ResponsesWriter
from agentkit.testing.turns import sse

ENDPOINT = "https://api.openai.com/v1"


def writer(profile: str = "openai", endpoint: str = ENDPOINT, model: str = "gpt-5.2") -> ResponsesWriter:
    """Return a writer."""
    return ResponsesWriter(find_profile(profile), endpoint, model)


def written(*messages: Message, by: ResponsesWriter | None = None, cap: int | None = None, **more: Any) -> Any:
    """Return the body of a request with these messages."""
    request = ChatRequest(messages, **more)
    return json.loads((by or writer()).write(request, messages, cap))


CLOSED: JsonObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_request_body() -> None:
    """Every field of a request has its place on the wire, and the server keeps nothing."""
    calls = (ToolCall("c1", "f", ""), ToolCall("c2", "g", '{"x":1}'))
    parts = (
        TextPart("see"),
        ImagePart(data=b"x", media_type="image/jpeg"),
        ImagePart(url="http://i", detail="low"),
        FilePart(url="http://f"),
        FilePart(file_id="file-1"),
        FilePart(data=b"y", media_type="application/pdf", name="n.pdf"),
    )
    body = written(
        SystemMessage("a"),
        SystemMessage("b"),
        UserMessage(parts),
        AssistantMessage("Looking.", calls),
        ToolMessage("c1", "one"),
        ToolMessage("c2", (TextPart("two"), ImagePart(url="http://i"))),
        SystemMessage("later"),
        UserMessage("and?"),
        cap=100,
        tools=(ToolSpec("f", "does f", {"type": "object"}), ToolSpec("g", "", CLOSED, strict=True)),
        tool_choice=ToolChoice("tool", "f"),
        output=OutputSpec("o", {"type": "object"}),
        settings=ModelSettings(
            temperature=0.5,
            top_p=0.9,
            reasoning_effort="high",
            parallel_tool_calls=False,
            service_tier="flex",
            metadata={"a": "b"},
            extra={"truncation": "auto"},
        ),
    )
    said, *rest = body.pop("input")
    assert said["role"] == "user"
    assert said["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/jpeg;base64,eA==", "detail": "auto"},
        {"type": "input_image", "image_url": "http://i", "detail": "low"},
        {"type": "input_file", "file_url": "http://f"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "filename": "n.pdf", "file_data": "data:application/pdf;base64,eQ=="},
    ]
    assert rest == [
        {"type": "message", "role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "two"},
                {"type": "input_image", "image_url": "http://i", "detail": "auto"},
            ],
        },
        {"role": "system", "content": "later"},
        {"role": "user", "content": "and?"},
    ]
    schema = {"type": "object"}
    assert body == {
        "model": "gpt-5.2",
        "instructions": "a\n\nb",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "function", "name": "f", "description": "does f", "parameters": schema, "strict": False},
            {"type": "function", "name": "g", "description": "", "parameters": CLOSED, "strict": True},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "o", "schema": schema, "strict": False}},
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "high"},
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "metadata": {"a": "b"},
        "truncation": "auto",
    }


def test_what_the_protocol_has_no_field_for_is_reported() -> None:
    """Stop texts and a seed do not go, and each request says so; nothing is reported that nobody asked for."""
    by = writer()
    body = written(UserMessage("hi"), by=by, settings=ModelSettings(stop=("END",), seed=1))
    assert [(one.kind, one.what) for one in by.changes] == [("setting", "stop"), ("setting", "seed")]
    assert not {"stop", "seed"} & body.keys()
    by.changes.clear()
    written(UserMessage("hi"), by=by)
    assert by.changes == []


@pytest.mark.parametrize(
    ("model", "effort", "asks"),
    [
        ("gpt-5.2", None, True),
        ("o4-mini", "low", True),
        ("gpt-5.2", "none", False),
        ("gpt-4o-mini", None, False),
        ("gpt-4.1", None, False),
        ("gpt-5-chat-latest", None, False),
    ],
)
def test_reasoning_is_asked_for_only_where_there_may_be_some(model: str, effort: Any, asks: bool) -> None:
    """A model that never reasons refuses the question for its encrypted reasoning, so it is not asked."""
    body = written(UserMessage("hi"), by=writer(model=model), settings=ModelSettings(reasoning_effort=effort))
    assert ("include" in body) is asks


def test_servers_that_differ() -> None:
    """What one server does not take is not sent; llama.cpp gets a schema where it reads it."""
    history = (UserMessage("hi"), AssistantMessage("Hello"), UserMessage("more"))
    groq = written(*history, by=writer("groq"), settings=ModelSettings(metadata={"a": "b"}))
    assert not {"include", "store", "metadata"} & groq.keys()
    local = written(*history, by=writer("llamacpp"), output=OutputSpec("o", {"type": "object"}))
    assert local["response_format"]["json_schema"] == {"name": "o", "schema": {"type": "object"}}
    assert "text" not in local


def test_instructions_alone_are_an_input() -> None:
    """A conversation of system messages alone is sent as input, which no server takes empty."""
    body = written(SystemMessage("a"), SystemMessage("b"))
    assert [item["content"] for item in body["input"]] == ["a", "b"]
    assert "instructions" not in body


def test_an_item_is_written_once() -> None:
    """The same message object is encoded once, and what was written goes with it."""
    by = writer()
    first = UserMessage("x" * 100)
    written(first, UserMessage("y"), by=by)
    kept = by._memo.get(first)
    written(first, UserMessage("z"), by=by)
    assert kept is not None
    assert by._memo.get(first) is kept
    assert len(by._memo) == 1


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA+/="}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
OUTPUT: list[dict[str, Any]] = [
    REASONING,
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "Let me look 日本.", "annotations": []}],
    },
    SEARCH,
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "namespace": "n"},
    {**REASONING, "id": "rs_2"},
    {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "output_text", "text": "Also."}]},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "g", "arguments": "{}"},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "c3", "name": "shell", "input": "ls"},
]
SENT_BACK: list[dict[str, Any]] = [
    REASONING,
    {"type": "message", "role": "assistant", "content": "Let me look 日本.", "phase": "commentary"},
    SEARCH,
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "namespace": "n"},
    {**REASONING, "id": "rs_2"},
    {"type": "message", "role": "assistant", "content": "Also."},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
    OUTPUT[-1],
]
RESULTS = (ToolMessage("c1", "1"), ToolMessage("c2", "2"))


def answered(output: list[dict[str, Any]], *, stream: bool, endpoint: str = ENDPOINT) -> AssistantMessage:
    """Return the message that a response with this output becomes."""
    decoder = ResponsesDecoder(Asked(provider="openai", model="gpt-5.2", endpoint=endpoint))
    body = {"id": "resp_1", "model": "gpt-5.2", "status": "completed", "output": output, "usage": None}
    if not stream:
        end = decoder.whole(json.dumps(body).encode())[-1]
    else:
        for index, item in enumerate(output):
            opened = {**item, "content": [], "arguments": "", "encrypted_content": None}
            decoder.feed(sse({"type": "response.output_item.added", "output_index": index, "item": opened}))
        for index, item in enumerate(output):
            decoder.feed(sse({"type": "response.output_item.done", "output_index": index, "item": item}))
        decoder.feed(sse({"type": "response.completed", "response": body}))
        end = decoder.end()[-1]
    assert isinstance(end, ChatEnd)
    return end.response.message


@pytest.mark.parametrize("stream", [True, False])
def test_b45_items_go_back_in_order_to_their_owner(stream: bool) -> None:
    """B45: reasoning, and items this reader does not know, go back as they came, between the text and the calls.

    Ids of messages and calls stay behind: a server that stored nothing would look for them in vain.
    """
    message = answered(OUTPUT, stream=stream)
    assert message.content == "Let me look 日本.Also."
    assert [call.id for call in message.tool_calls] == ["c1", "c2"]
    assert written(UserMessage("q"), message, *RESULTS)["input"][1:-2] == SENT_BACK


def test_b45_streamed_and_whole_keep_the_same() -> None:
    """B45: what is kept for the owner does not depend on the way it came, and survives the codec."""
    assert answered(OUTPUT, stream=True) == answered(OUTPUT, stream=False)
    message = answered(OUTPUT, stream=False)
    assert msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage) == message


@pytest.mark.parametrize("by", [writer(model="gpt-5.1"), writer(endpoint="https://proxy.example/v1")])
def test_b45_items_are_not_shown_to_others(by: ResponsesWriter) -> None:
    """B45: another model or endpoint gets the text and the calls alone, and that is reported."""
    messages = (UserMessage("q"), answered(OUTPUT, stream=False), *RESULTS)
    items = written(*messages, by=by)["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert [one.kind for one in by.replay.left_out(messages, None)] == ["replay"]


def test_plain_answers_keep_nothing() -> None:
    """A text with calls after it needs no item kept: the message says it all."""
    plain = [{**OUTPUT[5]}, OUTPUT[6]]
    assert answered(plain, stream=False).opaque == answered(plain, stream=True).opaque == ()


def test_reasoning_that_only_names_what_was_not_kept_stays_behind() -> None:
    """A reasoning item without its content would be looked up in vain; one with raw content goes back."""
    bare = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    message = answered([bare, *OUTPUT[5:6]], stream=False)
    assert [item["type"] for item in written(UserMessage("q"), message)["input"][1:]] == ["message"]
    raw = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    message = answered([raw, *OUTPUT[5:6]], stream=False)
    assert written(UserMessage("q"), message)["input"][1] == {**raw, "summary": []}


def test_changed_text_is_what_goes_back() -> None:
    """When a layer changed the text or dropped a call, the message as it is now goes back, not the recording."""
    message = answered(OUTPUT, stream=False)
    masked = f"[masked] {'x' * len(message.content)}"
    changed = AssistantMessage(masked, message.tool_calls[:1], message.reasoning, message.opaque)
    items = written(UserMessage("q"), changed, ToolMessage("c1", "1"))["input"]
    said = [item["content"] for item in items if item.get("role") == "assistant"]
    assert said == [masked]
    assert [item["call_id"] for item in items if item.get("type") == "function_call"] == ["c1"]
    assert REASONING in items
