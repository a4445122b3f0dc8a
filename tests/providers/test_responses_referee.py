"""The official SDK as referee: it takes the requests written here, and reads the same answers to the same values."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from openai.types.responses.response_create_params import ResponseCreateParamsBase, ResponseCreateParamsStreaming

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    FilePart,
    ImagePart,
    JsonObject,
    Message,
    ModelSettings,
    OpaqueItem,
    OutputSpec,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.providers.profiles import find_profile
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.responses_decode import ResponsesDecoder
from agentkit.providers.wire.responses_encode import ResponsesWriter
from agentkit.providers.wire.responses_items import ITEMS_KIND
from agentkit.testing.turns import Turn, write_turn

ENDPOINT = "https://api.openai.com/v1"
BODY: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseCreateParamsStreaming)
ITEM: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseInputItemParam)
TOOL: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(FunctionToolParam)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARTS = st.lists(
    st.builds(TextPart, TEXT)
    | st.sampled_from([ImagePart(url="http://i"), ImagePart(data=b"x", detail="high"), FilePart(data=b"y", name="n")]),
    min_size=1,
    max_size=3,
).map(tuple)
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA=="}
LAYOUT: list[Any] = [REASONING, {"type": "message", "length": 2}, {"type": "function_call", "index": 0}]


def turn(number: int, text: str, keeps: bool) -> tuple[Message, ...]:
    """Return a turn with a call and its answer; one that keeps items has those of its owner."""
    opaque = (OpaqueItem((ENDPOINT, "gpt-5.2"), ITEMS_KIND, LAYOUT),) if keeps else ()
    call = ToolCall(f"c{number}", "f", '{"a": 1}')
    return AssistantMessage("ok" if keeps else text, (call,), opaque=opaque), ToolMessage(call.id, text)


HISTORY = st.builds(
    lambda system, first, turns, last: (
        *map(SystemMessage, system),
        UserMessage(first),
        *(message for number, (text, keeps) in enumerate(turns) for message in turn(number, text, keeps)),
        UserMessage(last),
    ),
    st.lists(TEXT, max_size=2),
    TEXT | PARTS,
    st.lists(st.tuples(TEXT, st.booleans()), max_size=3),
    TEXT,
)
KNOBS = st.builds(
    ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    reasoning_effort=st.sampled_from([None, "none", "low", "xhigh"]),
    parallel_tool_calls=st.sampled_from([None, True, False]),
    service_tier=st.sampled_from([None, "flex", "priority"]),
    metadata=st.none() | st.just({"a": "b"}),
    stop=st.sampled_from([(), ("END",)]),
)
CLOSED: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = (ToolSpec("f", "does f", {"type": "object"}), ToolSpec("g", "", CLOSED, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    HISTORY,
    KNOBS,
    st.sampled_from([(), TOOLS]),
    st.sampled_from([None, ToolChoice("required"), ToolChoice("tool", "f")]),
    st.sampled_from([None, OutputSpec("o", {"type": "object"})]),
)
def test_requests_fit_the_parameter_types(
    history: tuple[Message, ...],
    knobs: ModelSettings,
    tools: tuple[ToolSpec, ...],
    choice: ToolChoice | None,
    output: OutputSpec | None,
) -> None:
    """Whatever is asked, the body and each item and tool in it have the types that the SDK gives its parameters."""
    writer = ResponsesWriter(find_profile("openai"), ENDPOINT, "gpt-5.2")
    request = ChatRequest(history, tools, choice if tools else None, output, knobs)
    body = json.loads(writer.write(request, history, 100))
    BODY.validate_python(body)
    assert body.keys() - {"stream"} <= ResponseCreateParamsBase.__annotations__.keys()
    for item in body["input"]:
        ITEM.validate_python(item)
    for one in body.get("tools", ()):
        TOOL.validate_python(one)


def test_the_referee_sees_faults() -> None:
    """The types refuse an item without its call id, a tool without strict, and a number that is none."""
    for adapter, wrong in (
        (ITEM, {"type": "function_call", "name": "f", "arguments": "{}"}),
        (TOOL, {"type": "function", "name": "f", "parameters": {}}),
        (BODY, {"stream": True, "max_output_tokens": "many"}),
    ):
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(wrong)


def client(body: bytes, kind: str) -> openai.AsyncOpenAI:
    """Return an SDK client whose every answer is this one."""
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, headers={"content-type": kind}, content=body))
    return openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient(transport=answer))


def ours(events: list[ChatEvent]) -> tuple[str, list[tuple[str, str, str]], tuple[int | None, ...]]:
    """Return text, calls and usage of the answer as read here."""
    end = events[-1]
    assert isinstance(end, ChatEnd)
    message, usage = end.response.message, end.response.usage
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.reasoning_tokens)
    return message.content, calls, counts


def theirs(response: Any) -> tuple[str, list[tuple[str, str, str]], tuple[int | None, ...]]:
    """Return text, calls and usage of a response as the SDK has read it."""
    calls = [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    usage = response.usage
    details = (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens)
    return response.output_text, calls, (usage.input_tokens, usage.output_tokens, *details)


TURNS = [
    Turn(text="It is forty two."),
    Turn(text="Naïvely: 日本 😀.", reasoning="Six sevens.", usage=Usage(20, 9, 8, 4, 0, 3)),
    Turn(calls=(ToolCall("c1", "f", '{"a": "é\\n"}'), ToolCall("c2", "g", "{}"))),
    Turn(text="Cut", calls=(ToolCall("c1", "f", '{"a": "b'),), stop="length"),
]


@pytest.mark.parametrize("turn", TURNS)
async def test_the_same_bytes_are_read_to_the_same_values(turn: Turn) -> None:
    """Streamed and whole, the SDK reads the text, the calls and the usage that are read here."""
    streamed, whole = b"".join(write_turn(turn, "responses")), write_turn(turn, "responses", stream=False)[0]
    asked = Asked(provider="openai", model="m", endpoint=ENDPOINT)
    decoder = ResponsesDecoder(asked)
    told = decoder.feed(streamed) + decoder.end()
    async with client(streamed, "text/event-stream") as sdk:
        stream = await sdk.responses.create(model="m", input="hi", stream=True)
        events: list[Any] = [event async for event in stream]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == "".join(event.text for event in told if isinstance(event, TextDelta))
    assert theirs(events[-1].response) == ours(told)
    async with client(whole, "application/json") as sdk:
        read = await sdk.responses.create(model="m", input="hi")
    assert theirs(read) == ours(ResponsesDecoder(asked).whole(whole)) == ours(told)
