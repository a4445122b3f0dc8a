"""A real server of the Messages protocol that is not Anthropic's: llama.cpp, through the public API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agentkit import AssistantMessage, Binding, CallRuntime, ModelSettings, ToolCall, UserMessage, run, tool
from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatRequest,
    ChatStart,
    ModelEvent,
    OutputSpec,
    Route,
    TextDelta,
    ToolMessage,
)
from agentkit.errors import AuthFailed, ContextOverflow
from agentkit.providers import local
from agentkit.providers.model import build_model
from agentkit.providers.profiles import find_profile
from agentkit.providers.weights import locate
from agentkit.testing import make_context

pytestmark = pytest.mark.timeout(240)  # the model shares its cores with whatever else runs
SHORT = ModelSettings(temperature=0, max_tokens=8)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """Give the address and the key of a server that runs in this process."""
    path = locate("smollm2")
    assert path is not None
    running = local._shared(local._Key(str(path.resolve()), "smollm2", 2048, 1, 2))
    yield running.url, running.key


@pytest.fixture
def binding(served: tuple[str, str]) -> Binding:
    """Give a binding to it in the Messages protocol."""
    return bound(*served)


def bound(url: str, key: str) -> Binding:
    """Return a binding to the server."""
    return Binding(
        "llamacpp:smollm2", base_url=f"{url}/v1", api_key=key, protocol="messages", price="0/0", settings=SHORT
    )


@pytest.mark.server
async def test_an_answer_is_streamed_and_whole(binding: Binding) -> None:
    """Deltas join to the answer, the stop and the output are counted, the id is kept as this server gives it."""
    async with CallRuntime() as calls:
        async with calls.stream(binding, "What is a budget? One sentence.") as events:
            told = [event.event async for event in events if isinstance(event, ModelEvent)]
        text = "".join(event.text for event in told if isinstance(event, TextDelta))
        (start,) = [event for event in told if isinstance(event, ChatStart)]
        (end,) = [event.response for event in told if isinstance(event, ChatEnd)]
        assert start.model == "smollm2"
        assert end.message.content == text == events.result.text
        assert (end.stop_reason, end.raw_stop_reason) in [("length", "max_tokens"), ("stop", "end_turn")]
        assert end.usage.output_tokens is not None
        assert 0 < end.usage.output_tokens <= 8
        answer = await calls.ask(binding, "What is a budget? One sentence.")
    assert answer.text
    assert (answer.provider, answer.model) == ("llamacpp", "smollm2")


@pytest.mark.server
async def test_what_it_does_not_take_is_said(served: tuple[str, str]) -> None:
    """A schema that it does not enforce goes into the prompt, caching is left out; both are told."""
    wishes = ModelSettings(prompt_cache="5m", reasoning_effort="low", max_tokens=12, temperature=0)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    model = build_model(find_profile("llamacpp"), base_url=f"{served[0]}/v1", api_key=served[1], protocol="messages")
    request = ChatRequest((UserMessage("Name a town."),), output=OutputSpec("town", schema), settings=wishes)
    call = Call(make_context(model), request, "c1", Route(model, "smollm2", "llamacpp"))
    events = [event async for event in model.stream(call)]
    await model.aclose()
    end = events[-1]
    assert isinstance(end, ChatEnd)
    told = {(one.kind, one.what) for one in end.response.adjustments}
    assert told == {("schema", "output 'town'"), ("setting", "prompt_cache"), ("setting", "reasoning_effort")}


@pytest.mark.server
async def test_a_conversation_with_tools_goes_back(binding: Binding) -> None:
    """Calls and results of a conversation are read by this server, which tells the result."""
    messages = [
        UserMessage("What is the weather in Rome?"),
        AssistantMessage("", (ToolCall("functions.weather:0", "weather", '{"city": "Rome"}'),)),
        ToolMessage("functions.weather:0", "sunny"),
    ]

    @tool(effect="read")
    async def weather(city: str) -> str:
        """Current weather in a city."""
        return "sunny"

    answer = await run(binding, messages, [weather], max_turns=1)
    assert answer.calls in (1, 2)
    assert answer.messages[: len(messages)] == tuple(messages)


@pytest.mark.server
async def test_errors_are_what_they_are(binding: Binding, served: tuple[str, str]) -> None:
    """A conversation that is too long and a wrong key are errors of their own kinds."""
    async with CallRuntime() as calls:
        with pytest.raises(ContextOverflow):
            await calls.ask(binding, "word " * 4000)
        with pytest.raises(AuthFailed):
            await calls.ask(bound(served[0], "wrong-key"), "q")


@pytest.mark.server
async def test_a_stream_is_cancelled_and_the_server_goes_on(binding: Binding) -> None:
    """A stream that is left in the middle frees the only place there is, so that the next call is answered."""
    async with CallRuntime() as calls:
        long = ModelSettings(max_tokens=400, temperature=0)
        async with calls.stream(binding, "Count from one to a thousand.", settings=long) as events:
            async for event in events:
                if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                    break
        answer = await asyncio.wait_for(calls.ask(binding, "Say hi.", settings=ModelSettings(max_tokens=4)), 120)
    assert answer.text
