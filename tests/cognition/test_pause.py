"""An answer that the model pauses goes on: sent back as it is, paid and counted, nothing of it lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from agentkit import Agent, AssistantMessage, Binding, Budget, CallRuntime, ToolCall, Usage, ask, run, tool
from agentkit.core.contracts import AgentResult, ModelEvent, OpaqueItem, RunEnded, TextDelta
from agentkit.testing import Reply, ScriptedModel

SEARCHED = OpaqueItem(("scripted", "scripted"), "test.blocks", [{"type": "server_tool_use", "id": "s1"}])
PRICE = "1/10"


def paused(text: str, usage: Usage | None = None) -> Reply:
    """Return an answer that is not over."""
    return Reply(text, usage=usage, stop_reason="pause", opaque=(SEARCHED,))


@dataclass
class City:
    """A place."""

    name: str


async def test_one_question_is_answered_in_several_parts() -> None:
    """The parts are one text, each a paid call; the paused part is sent back unchanged and stays in the transcript."""
    model = ScriptedModel(
        [paused("I looked. ", Usage(100, 10)), paused("", Usage(150, 5)), Reply("Found.", usage=Usage(200, 20))]
    )
    answer = await ask(Binding(model, price=PRICE), "Where is it?")
    assert (answer.text, answer.value, answer.stop_reason) == ("I looked. Found.", "I looked. Found.", "stop")
    assert (answer.calls, answer.usage) == (3, Usage(450, 35))
    assert answer.cost is not None
    assert len(answer.records) == 3
    first, second, third = answer.messages[1:]
    assert first == AssistantMessage("I looked. ", opaque=(SEARCHED,))
    assert [request.messages for request in model.requests] == [
        answer.messages[:1],
        answer.messages[:2],
        answer.messages[:3],
    ]
    assert isinstance(second, AssistantMessage)
    assert third == AssistantMessage("Found.")


async def test_an_output_is_read_from_all_parts() -> None:
    """A declared output is not tried before the answer is whole, so nothing is corrected."""
    model = ScriptedModel([paused('{"name": '), '"Rome"}'])
    answer = await ask(Binding(model), "Which?", City)
    assert (answer.value, answer.calls) == (City("Rome"), 2)


async def test_a_question_is_not_continued_for_ever() -> None:
    """A model that only pauses is asked nine times; what it said stands, and says that it is not whole."""
    model = ScriptedModel([paused(f"{number} ") for number in range(20)])
    answer = await ask(Binding(model), "q")
    assert (answer.stop_reason, answer.calls) == ("pause", 9)
    assert answer.text == "0 1 2 3 4 5 6 7 8 "


async def test_the_tool_loop_goes_on_after_a_pause() -> None:
    """A pause before a call, and one after its result, take a turn each; the text of the last answer is whole."""

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "blue"

    script = [paused("Wait. "), [ToolCall("c1", "look", "{}")], paused("It is "), paused(""), "blue."]
    model = ScriptedModel(script)
    answer = await run(Binding(model), "Which colour?", [look])
    assert (answer.text, answer.stop_reason, answer.calls) == ("It is blue.", "stop", 5)


@pytest.mark.parametrize(("text", "stop"), [("0 1 2 ", "max_turns"), ("0 1 ", "max_turns")])
async def test_the_tool_loop_is_bounded(text: str, stop: str) -> None:
    """Pauses count as turns, so that they end with them."""
    turns = len(text.split()) - 1
    model = ScriptedModel([paused(f"{number} ") for number in range(20)])
    answer = await run(Binding(model), "q", max_turns=turns)
    assert (answer.text, answer.stop_reason, answer.calls) == (text, stop, turns + 1)


async def test_a_prefilled_answer_keeps_its_own_text() -> None:
    """Only what the model said in this run is its answer, not the beginning that it was given."""
    model = ScriptedModel([paused("b"), "c"])
    answer = await ask(Binding(model), [AssistantMessage("a")])
    assert answer.text == "bc"


async def test_streamed_is_what_asked_is() -> None:
    """The deltas of all parts are told as they come, and the result is the one that is not streamed."""
    script = [paused("one two "), "three"]
    agent = Agent("a", Binding(ScriptedModel(script)))
    told: list[str] = []
    ended: list[AgentResult[object]] = []
    async with agent.stream("q") as events:
        async for event in events:
            if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                told.append(event.event.text)
            elif isinstance(event, RunEnded):
                ended.append(event.result)
    whole = await Agent("a", Binding(ScriptedModel(script))).run("q")
    assert "".join(told) == events.result.text == whole.text == "one two three"
    assert (events.result.messages, events.result.usage) == (whole.messages, whole.usage)
    assert len(ended) == 1


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_pause_survives_a_stop(kind: str, tmp_path: object) -> None:
    """A run whose money ends at a pause is resumed there; the part it had is neither asked for nor paid again."""
    store = None if kind == "memory" else f"sqlite:{tmp_path}/runs.db"
    model = ScriptedModel([paused("one ", Usage(1_000_000, 0)), Reply("two", usage=Usage(10, 10))])
    agent = Agent("a", Binding(model, price=PRICE))
    async with CallRuntime(store=store) as calls:
        ctx = calls.context("run-1", budget=Budget("1.005", on_exceeded="stop"))
        stopped = await agent.run("q", ctx)
        assert (stopped.stop_reason, stopped.text) == ("budget_exhausted", "one ")
        again = await agent.resume("run-1", calls.context("run-1", budget=Budget("9", on_exceeded="stop")))
    assert (again.text, again.stop_reason, again.calls) == ("one two", "complete", 2)
    assert len(model.requests) == 2
