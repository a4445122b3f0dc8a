"""The real llama.cpp server asked in the Responses protocol, through the public API, with what it does oddly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import msgspec
import pytest

from agentkit import Binding, CallRuntime, ask, run
from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ModelEvent,
    ModelSettings,
    SystemMessage,
    TextDelta,
    UserMessage,
)
from agentkit.errors import ContextOverflow
from agentkit.providers import local
from agentkit.providers.weights import locate
from agentkit.tools import tool

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]

BUDGET = "In one sentence: what is a budget?"
CALM = ModelSettings(temperature=0, max_tokens=48)


class City(msgspec.Struct):
    """A city."""

    name: str
    size: Literal["small", "large"]


@tool(effect="read")
async def weather(city: str) -> str:
    """Current weather in a city."""
    return f"Sunny in {city}, 31 degrees"


@pytest.fixture(scope="module")
def server() -> Iterator[local._Running]:
    """Give one running server; skip without xllamacpp and weights, except in CI."""
    path = locate("smollm2")
    try:
        import xllamacpp  # noqa: F401
    except ImportError:
        path = None
    if path is None:
        if os.environ.get("AGENTKIT_REQUIRE_SERVERS"):
            pytest.fail("xllamacpp or the weights of smollm2 are missing, and AGENTKIT_REQUIRE_SERVERS is set")
        pytest.skip("xllamacpp or the weights of smollm2 are missing")
    yield local._shared(local._Key(str(path.resolve()), "smollm2", 2048, 2, 2))


@pytest.fixture
async def calls() -> AsyncIterator[CallRuntime]:
    """Give a runtime of this test's loop."""
    async with CallRuntime() as runtime:
        yield runtime


def bound(server: local._Running, **more: object) -> Binding:
    """Return a binding to the server in the Responses protocol."""
    return Binding(
        "llamacpp:smollm2",
        base_url=f"{server.url}/v1",
        api_key=server.key,
        protocol="responses",
        price="0",
        settings=CALM,
        **more,  # type: ignore[arg-type]
    )


async def test_an_answer_streams_with_usage(server: local._Running, calls: CallRuntime) -> None:
    """A question is answered in many deltas that join to the message, and counted."""
    deltas: list[str] = []
    ends: list[ChatEnd] = []
    async with calls.stream(bound(server), BUDGET) as events:
        async for event in events:
            if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                deltas.append(event.event.text)
            elif isinstance(event, ModelEvent) and isinstance(event.event, ChatEnd):
                ends.append(event.event)
    response = ends[0].response
    assert len(deltas) > 5
    assert "".join(deltas) == response.message.content
    assert "budget" in response.message.content
    assert (response.usage.input_tokens or 0) > 20
    assert (response.usage.output_tokens or 0) > 5
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", "completed")
    assert response.response_id.startswith("resp_")


async def test_a_cut_answer_says_so(server: local._Running, calls: CallRuntime) -> None:
    """The server calls a cut answer completed; at the cap it is a cut one all the same."""
    answer = await calls.ask(bound(server), "Write a very long story.", settings=ModelSettings(max_tokens=8))
    assert answer.stop_reason == "length"


async def test_a_conversation_goes_on(server: local._Running, calls: CallRuntime) -> None:
    """An earlier answer, a later system message and instructions are all taken: the model reads more, or other text."""
    first, said = UserMessage("My name is Ada."), AssistantMessage("Hello Ada.")
    later, last = SystemMessage("Use the user's name."), UserMessage("What is my name?")
    settings = ModelSettings(max_tokens=4)
    read = [
        (await calls.ask(bound(server), history, settings=settings)).usage.input_tokens or 0
        for history in ([first, said, later, last], [first, said, last], [first, last], [later, first, last])
    ]
    assert read[0] > read[1] > read[2] != read[3]


async def test_a_schema_is_enforced(server: local._Running, calls: CallRuntime) -> None:
    """A typed answer fits its schema, also for a question that has nothing to do with it."""
    answer = await calls.ask(bound(server), "Write a poem.", output=City)
    assert isinstance(answer.value, City)


async def test_a_tool_is_called_through_a_schema(server: local._Running) -> None:
    """With tools made through a schema a run calls the tool and tells its result."""
    answer = await run(bound(server, profile="llamacpp+schema"), "Is it warm in Rome today?", [weather], max_turns=1)
    assert "31" in answer.text
    assert answer.calls >= 2


async def test_the_local_model_takes_the_protocol() -> None:
    """A local model in this process answers in Responses when the binding says so."""
    answer = await ask(Binding("local:smollm2", protocol="responses", settings=CALM), BUDGET)
    assert "budget" in answer.text
    assert answer.cost == 0


async def test_too_long_a_prompt_is_an_overflow(server: local._Running, calls: CallRuntime) -> None:
    """A prompt beyond the window is refused as such."""
    with pytest.raises(ContextOverflow):
        await calls.ask(bound(server), "word " * 4000)


async def test_a_cancelled_answer_frees_the_server(server: local._Running, calls: CallRuntime) -> None:
    """Cancelled in the middle of an answer, the next call is still answered."""
    begun = asyncio.Event()

    async def endless() -> None:
        settings = ModelSettings(max_tokens=3000)
        async with calls.stream(bound(server), "Write a very long story.", settings=settings) as events:
            async for event in events:
                if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                    begun.set()

    for _ in range(3):
        begun.clear()
        task = asyncio.create_task(endless())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(300):
        assert (await calls.ask(bound(server), BUDGET)).text


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
async def test_two_models_ids_on_one_server_stay_two_models(server: local._Running, protocol: str) -> None:
    """It answers to any name and calls itself by the path of its weights: each answer and cost stays its own name's."""
    async with CallRuntime(store="memory:") as calls:
        for name, price in (("one", "1/1"), ("two", "2/2")):
            binding = Binding(
                f"llamacpp:{name}", base_url=f"{server.url}/v1", api_key=server.key, protocol=protocol, price=price
            )
            answer = await calls.ask(binding, "Say hi.", settings=ModelSettings(temperature=0, max_tokens=8))
            assert (answer.model, answer.provider) == (name, "llamacpp")
            assert ".gguf" not in f"{answer!r}"
            rate = 1 if name == "one" else 2
            assert answer.usage.total_tokens
            assert answer.known_cost * 1_000_000 == rate * answer.usage.total_tokens
