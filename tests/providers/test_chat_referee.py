"""The openai SDK as a referee of the chat protocol: its types for what we write, its parser for what we read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, get_type_hints

import openai
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    FilePart,
    ImagePart,
    Message,
    ModelSettings,
    OutputSpec,
    Route,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.providers.history import guard_history
from agentkit.providers.model import build_model
from agentkit.providers.profiles import PROFILES, find_profile
from agentkit.providers.wire.chat_encode import ChatWriter
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

SHORT = st.text(max_size=8)
PARTS = st.one_of(
    st.builds(TextPart, SHORT),
    st.builds(ImagePart, url=st.just("https://h.test/i.png"), detail=st.sampled_from(["", "low"])),
    st.builds(ImagePart, data=st.binary(min_size=1, max_size=4), media_type=st.just("image/png")),
    st.builds(FilePart, data=st.binary(min_size=1, max_size=4), name=SHORT),
    st.builds(FilePart, file_id=st.just("file-1")),
)
CALLS = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from(["c1", "c2", "c3", "x y"]),
        st.sampled_from(["f", "odd name.x", "lang" * 20]),
        st.sampled_from(["", "{}", '{"a": 1}', '{"a": ', "null"]),
    ),
    max_size=3,
).map(tuple)
TURNS = st.one_of(
    st.builds(UserMessage, SHORT | st.lists(PARTS, min_size=1, max_size=3).map(tuple)),
    st.builds(AssistantMessage, SHORT, CALLS, SHORT),
    st.builds(SystemMessage, SHORT),
)
WISHES = st.builds(
    ModelSettings,
    temperature=st.none() | st.just(0.5),
    top_p=st.none() | st.just(1.0),
    max_tokens=st.none() | st.just(10),
    stop=st.sampled_from([(), ("END",)]),
    seed=st.none() | st.just(1),
    reasoning_effort=st.sampled_from([None, "none", "minimal", "low", "high", "xhigh", "max"]),
    parallel_tool_calls=st.sampled_from([None, False]),
    service_tier=st.sampled_from([None, "auto", "flex"]),
    metadata=st.sampled_from([None, {"k": "v"}]),
)
TOOLS = tuple(
    ToolSpec(name, "does", {"type": "object", "properties": {}}, strict)
    for name, strict in (("f", None), ("odd name.x", False))
)
CHOICES = st.sampled_from([None, ToolChoice("auto"), ToolChoice("required"), ToolChoice("tool", "odd name.x")])
OUTPUTS = st.sampled_from([None, OutputSpec("answer", {"type": "object"}), OutputSpec("a", {"type": "object"}, False)])
PARAMS = {
    True: TypeAdapter(CompletionCreateParamsStreaming),
    False: TypeAdapter(CompletionCreateParamsNonStreaming),
}
FIELDS = set(get_type_hints(CompletionCreateParamsStreaming))
OWN_FIELDS = {"random_seed", "thinking"}  # what single servers take beside OpenAI's
MESSAGE_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "tool": {"role", "content", "tool_call_id"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
}


def exhaust(value: object) -> None:
    """Read everything, since a validated iterable is only checked when it is read."""
    if isinstance(value, Mapping):
        for one in value.values():
            exhaust(one)
    elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for one in value:
            exhaust(one)


@settings(max_examples=200, deadline=None)
@given(
    turns=st.lists(TURNS, max_size=6),
    wishes=WISHES,
    profile=st.sampled_from(sorted(name for name, row in PROFILES.items() if "chat" in row.protocols)),
    stream=st.booleans(),
    choice=CHOICES,
    tools=st.sampled_from([(), TOOLS]),
    output=OUTPUTS,
)
def test_b42_requests_fit_the_sdks_parameters(
    turns: list[Message],
    wishes: ModelSettings,
    profile: str,
    stream: bool,
    choice: ToolChoice | None,
    tools: tuple[ToolSpec, ...],
    output: OutputSpec | None,
) -> None:
    """B11, B42, B47: whatever is asked of whichever server, the body is one that the official SDK's types allow."""
    dialect = PROFILES[profile]
    if dialect.images == "data":
        turns = [turn for turn in turns if "url='https" not in repr(turn)]
    guarded = guard_history((UserMessage("q"), *turns))
    request = ChatRequest(tuple(guarded.messages), tools, choice if tools else None, output, wishes, stream)
    body = json.loads(ChatWriter(dialect, "e", "m").write(request, request.messages, wishes.max_tokens))
    assert set(body) <= FIELDS | OWN_FIELDS
    exhaust(PARAMS[stream].validate_python({"stream": False, **body}))
    waiting: list[str] = []
    for message in body["messages"]:
        assert set(message) <= MESSAGE_FIELDS[message["role"]]
        assert "content" in message
        assert message["content"] is not None or message["tool_calls"]
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            waiting.append(call["id"])
    assert not waiting


KEPT = st.characters(exclude_categories=("Cs",), exclude_characters="\0")  # NULs are taken out where texts come in
WORDS = st.text(KEPT, max_size=8)
JSON_OBJECTS = st.dictionaries(WORDS, st.integers() | WORDS | st.none(), max_size=3).map(json.dumps)
MADE = st.lists(st.tuples(st.sampled_from(["f", "g"]), JSON_OBJECTS), max_size=3).map(
    lambda made: tuple(ToolCall(f"call-{place}", name, text) for place, (name, text) in enumerate(made))
)
COUNTS = st.builds(
    Usage, st.integers(0, 999), st.integers(1, 999), st.integers(0, 9), st.just(0), st.just(0), st.integers(0, 1)
)
SAID = st.builds(
    Turn, text=st.text(KEPT, min_size=1, max_size=40), calls=MADE, usage=COUNTS, size=st.integers(1, 7), reasoning=WORDS
)


async def ours(server: LoopbackServer, *, stream: bool) -> ChatResponse:
    model = build_model(find_profile("openai"), base_url=server.url)
    call = Call(None, ChatRequest((UserMessage("x"),), stream=stream), "c", Route(model, "m", "x"))
    async with aclosing(model.stream(call)) as events:
        last = [event async for event in events][-1]
    await model.aclose()
    assert isinstance(last, ChatEnd)
    return last.response


async def theirs(server: LoopbackServer) -> tuple[str, list[tuple[str, str, str]], tuple[int, int, int]]:
    """Return text, calls and usage as the SDK's own accumulator puts them together."""
    async with (
        openai.AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0) as client,
        client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "x"}], stream_options={"include_usage": True}
        ) as stream,
    ):
        final = await stream.get_final_completion()
    message, usage = final.choices[0].message, final.usage
    assert usage is not None
    made: list[Any] = list(message.tool_calls or ())
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    return (
        message.content or "",
        [(call.id, call.function.name, call.function.arguments) for call in made],
        (usage.prompt_tokens, usage.completion_tokens, cached or 0),
    )


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(turn=SAID)
async def test_the_sdks_parser_reads_the_same(turn: Turn) -> None:
    """Of one stream, and of one answer in a piece, the SDK and we get the same text, calls and usage."""
    async with LoopbackServer([turn]) as server:
        text, calls, counts = await theirs(server)
        for stream in (True, False):
            response = await ours(server, stream=stream)
            usage = response.usage
            assert response.message.content == text
            assert [(call.id, call.name, call.arguments) for call in response.message.tool_calls] == calls
            assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == counts


def test_the_referee_would_see_a_fault() -> None:
    """The check refuses a body that is wrong, so that its silence means something."""
    for wrong in ({"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "bot"}]}, {"tools": [1]}):
        with pytest.raises(ValueError, match="validation error"):
            exhaust(PARAMS[True].validate_python({"model": "m", "stream": True, "messages": [], **wrong}))
