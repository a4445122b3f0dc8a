"""A real small model in this process: answers, fills a schema, calls tools, is cancelled, shared and stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    JsonObject,
    ModelSettings,
    OutputSpec,
    TextDelta,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agentkit.errors import ConfigurationError, ContextOverflow
from agentkit.providers import local
from agentkit.providers.local import LocalModel
from agentkit.providers.weights import locate

pytestmark = pytest.mark.timeout(400)  # the model shares its cores with whatever else runs
BUDGET = "In one sentence: what is a budget?"
CITY: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "country": {"type": "string"}},
    "required": ["name", "country"],
    "additionalProperties": False,
}
WEATHER = ToolSpec(
    "weather",
    "Current weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    """Give one model to all tests here, so that it loads once; skip without xllamacpp and weights, except in CI."""
    if locate("smollm2") is None or not _importable("xllamacpp"):
        if os.environ.get("AGENTKIT_REQUIRE_SERVERS"):
            pytest.fail("xllamacpp or the weights of smollm2 are missing, and AGENTKIT_REQUIRE_SERVERS is set")
        pytest.skip("xllamacpp or the weights of smollm2 are missing")
    made = LocalModel("smollm2")
    yield made
    asyncio.run(made.aclose())


def _importable(name: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {name}"], check=False, capture_output=True).returncode == 0


def asking(text: str, *, max_tokens: int = 60, **request: object) -> Call[ChatRequest]:
    """Return a call with one question, deterministic."""
    settings = ModelSettings(temperature=0, seed=1, max_tokens=max_tokens)
    asked = ChatRequest((UserMessage(text),), settings=settings, **request)  # type: ignore[arg-type]
    return Call(None, asked, "c1")  # type: ignore[arg-type]


async def events_of(model: LocalModel, call: Call[ChatRequest]) -> list[ChatEvent]:
    """Return every event of a call."""
    async with aclosing(model.stream(call)) as events:
        return [event async for event in events]


async def response_of(model: LocalModel, call: Call[ChatRequest]) -> ChatResponse:
    """Return the whole answer of a call."""
    last = (await events_of(model, call))[-1]
    assert isinstance(last, ChatEnd)
    return last.response


@pytest.mark.server
async def test_answer_streams_with_usage(model: LocalModel) -> None:
    """A question is answered in many deltas that join to the message, counted, under the model's plain name."""
    events = await events_of(model, asking(BUDGET))
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    end = events[-1]
    assert isinstance(end, ChatEnd)
    assert len(deltas) > 5
    assert "".join(deltas) == end.response.message.content
    assert "budget" in end.response.message.content
    assert (end.response.model, end.response.provider) == ("smollm2", "local")
    assert [event.model for event in events if isinstance(event, ChatStart)] == ["smollm2"]
    assert (end.response.usage.input_tokens or 0) > 20
    assert (end.response.usage.output_tokens or 0) > 5
    assert end.response.stop_reason == "stop"


@pytest.mark.server
async def test_whole_answer_has_what_a_streamed_has(model: LocalModel) -> None:
    """Asked without a stream on the wire, the same question gets as much: text, usage, reason and name."""
    streamed = await response_of(model, asking(BUDGET))
    whole = await response_of(model, asking(BUDGET, stream=False))
    for one in (streamed, whole):
        assert "budget" in one.message.content
        assert (one.model, one.provider, one.stop_reason) == ("smollm2", "local", "stop")
    assert whole.usage.input_tokens == streamed.usage.input_tokens


@pytest.mark.server
async def test_schema_is_enforced(model: LocalModel) -> None:
    """A typed answer fits its schema, also for a question that has nothing to do with it."""
    for question in ("Tell me about the city of Paris.", "Write a poem."):
        response = await response_of(model, asking(question, output=OutputSpec("city", CITY)))
        assert jsonschema_rs.validator_for(CITY).is_valid(msgspec.json.decode(response.message.content))


@pytest.mark.server
async def test_tool_call_and_its_result(model: LocalModel) -> None:
    """A call is made with the right argument, and a turn without tools tells what the tool returned."""
    call = asking("Is it warm in Rome today?", tools=(WEATHER,))
    response = await response_of(model, call)
    (made,) = response.message.tool_calls
    assert (made.name, msgspec.json.decode(made.arguments)) == ("weather", {"city": "Rome"})
    assert response.stop_reason == "tool_calls"
    messages = (*call.request.messages, response.message, ToolMessage(made.id, "Sunny, 31 degrees"))
    after = msgspec.structs.replace(call.request, messages=messages, tool_choice=ToolChoice("none"))
    answer = await response_of(model, msgspec.structs.replace(call, request=after))
    assert not answer.message.tool_calls
    assert "31" in answer.message.content


@pytest.mark.server
async def test_required_call_is_enforced(model: LocalModel) -> None:
    """A required call is made even when the question gives no reason for one."""
    events = await events_of(model, asking("Hello!", tools=(WEATHER,), tool_choice=ToolChoice("required")))
    assert [event.call.name for event in events if isinstance(event, ToolCallReady)] == ["weather"]


@pytest.mark.server
async def test_leaving_midway_frees_the_server(model: LocalModel) -> None:
    """More streams than the server runs at once are left after a delta, and the next call is still answered."""
    for _ in range(4):
        async with aclosing(model.stream(asking("Write a very long story.", max_tokens=3000))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
    async with asyncio.timeout(120):
        assert (await response_of(model, asking(BUDGET))).message.content


@pytest.mark.server
async def test_cancelled_task_frees_the_server(model: LocalModel) -> None:
    """Cancelling a task in the middle of an answer leaves a server that answers the next call."""
    begun = asyncio.Event()

    async def endless() -> None:
        async with aclosing(model.stream(asking("Write a very long story.", max_tokens=3000))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    begun.set()

    task = asyncio.create_task(endless())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(120):
        assert (await response_of(model, asking(BUDGET))).message.content


@pytest.mark.server
async def test_two_calls_run_at_once(model: LocalModel) -> None:
    """Two answers are under way at the same time: each has a delta before the other ends."""
    begun = [asyncio.Event(), asyncio.Event()]

    async def one(index: int) -> None:
        async with aclosing(model.stream(asking(BUDGET))) as events:
            async for event in events:
                if isinstance(event, TextDelta) and not begun[index].is_set():
                    begun[index].set()
                    await begun[1 - index].wait()

    async with asyncio.timeout(120):
        await asyncio.gather(one(0), one(1))


@pytest.mark.server
async def test_too_long_a_prompt_is_an_overflow(model: LocalModel) -> None:
    """A prompt beyond the window is refused as such."""
    with pytest.raises(ContextOverflow):
        await response_of(model, asking("word " * 6000))


@pytest.mark.server
def test_one_model_over_two_loops(model: LocalModel) -> None:
    """One model object answers in two event loops after each other, from one loaded server."""
    answers = [asyncio.run(response_of(model, asking(BUDGET))).message for _ in range(2)]
    assert all(answer.content for answer in answers)
    assert len(local._running) == 1


@pytest.mark.server
def test_server_is_shared_and_stops_with_its_last_user(model: LocalModel) -> None:
    """Two models in two threads share a server of their own size, which goes when both are closed."""
    told: list[str] = []
    pair = [LocalModel("smollm2", context_tokens=512, progress=told.append) for _ in range(2)]
    threads = [threading.Thread(target=asyncio.run, args=(response_of(one, asking(BUDGET)),)) for one in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (key,) = [key for key in local._running if key.context_tokens == 512]
    assert told[0] == "loading smollm2"
    asyncio.run(pair[0].aclose())
    assert key in local._running
    asyncio.run(pair[1].aclose())
    asyncio.run(pair[1].aclose())
    gc.collect()
    assert key not in local._running
    assert asyncio.run(response_of(pair[1], asking(BUDGET))).message.content
    asyncio.run(pair[1].aclose())


@pytest.mark.server
def test_nothing_reaches_the_terminal(model: LocalModel) -> None:
    """Loading, answering, an overflow and leaving without closing print nothing, and the process ends well."""
    script = """
import asyncio
from agentkit.core.contracts import Call, ChatRequest, ModelSettings, UserMessage
from agentkit.errors import ContextOverflow
from agentkit.providers.local import LocalModel
model = LocalModel("smollm2")
async def main():
    for text in ("Hi", "word " * 6000):
        try:
            call = Call(None, ChatRequest((UserMessage(text),), settings=ModelSettings(max_tokens=5)), "c")
            [event async for event in model.stream(call)]
        except ContextOverflow:
            pass
    await model._port.aclose()
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


async def test_missing_weights_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without weights raises the error that says how to get them."""
    monkeypatch.setenv("AGENTKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigurationError, match="agentkit models add smollm2"):
        await events_of(LocalModel("smollm2"), asking("Hi"))


async def test_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without xllamacpp raises the error that names the extra and the package."""
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigurationError) as caught:
        await events_of(LocalModel(str(path)), asking("Hi"))
    assert "pip install 'agentkit-core[local]'" in caught.value.message
    assert "pip install --no-deps xllamacpp" in caught.value.message


@pytest.mark.server
async def test_broken_file_is_named(model: LocalModel, tmp_path: Path) -> None:
    """A file that is no model is named in the error, and a second try fails the same way."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"x" * 3000)
    broken = LocalModel(str(path))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"broken\.gguf"):
            await events_of(broken, asking("Hi"))


@pytest.mark.parametrize("argument", ["context_tokens", "parallel", "threads"])
def test_sizes_below_one_are_refused(argument: str) -> None:
    """A size of zero is named before anything starts."""
    with pytest.raises(ConfigurationError, match=f"{argument} is 0"):
        LocalModel("smollm2", **{argument: 0})


def test_unknown_name_is_refused_at_once() -> None:
    """A misspelt name fails at construction with the nearest known one."""
    with pytest.raises(ConfigurationError, match="use smollm2"):
        LocalModel("smolm")
