"""What a run keeps of a conversation that came with faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit import Agent, Binding, CallRuntime, Scope, ask, run, tool
from agentkit.core.contracts import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentkit.core.contracts.history import NO_RESULT
from agentkit.errors import ConfigurationError
from agentkit.testing import ScriptedModel
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

CALLS = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
CRASHED: tuple[Message, ...] = (
    UserMessage("Look twice."),
    AssistantMessage("", CALLS),
    ToolMessage("a", "seen"),
    UserMessage("hello?"),
)
LOST = ToolMessage("b", NO_RESULT, "look", is_error=True)


@tool(effect="unknown")
async def look() -> str:
    """Look."""
    return "seen"


async def test_b42_a_repair_is_kept_and_told() -> None:
    """B42: a call that lost its result is answered in the answer's messages too, so that going on finds nothing."""
    async with LoopbackServer([Turn(text="Here.")]) as server:
        binding = Binding("openai:m", base_url=server.url, api_key="key-for-loopback")
        for verb in (ask, run):
            first = await verb(binding, CRASHED)
            assert first.messages == (*CRASHED[:3], LOST, *CRASHED[3:], AssistantMessage("Here."))
            assert [(told.kind, told.what) for told in first.adjustments] == [
                ("history", "1 call ('b') without a result")
            ]
            second = await verb(binding, [*first.messages, UserMessage("And?")])
            assert second.adjustments == ()
            assert second.messages[: len(first.messages)] == first.messages
    assert [str(received.body).count("No result was recorded") for received in server.requests] == [1] * 4


async def test_b42_calls_of_a_last_turn_are_not_run_again() -> None:
    """B42: what may have run before the crash does not run because the conversation ends there."""
    model = ScriptedModel(["Here."])
    answer = await run(Binding(model), CRASHED[:3], tools=[look])
    assert answer.messages == (*CRASHED[:3], LOST, AssistantMessage("Here."))
    assert answer.calls == 1


async def test_b42_the_checkpoint_holds_the_repair(tmp_path: Path) -> None:
    """B42: the stored run is sound, also when the process goes before the model answers."""
    store = f"sqlite:{tmp_path / 'runs.db'}"
    failing = Agent("a", Binding(ScriptedModel([RuntimeError("gone")])))
    working = Agent("a", Binding(ScriptedModel(["Here."])))
    async with CallRuntime(store=store) as calls:
        with pytest.raises(RuntimeError, match="gone"):
            await failing.run(CRASHED, calls.context("r", Scope(tenant="t")))
    async with CallRuntime(store=store) as calls:
        result = await working.resume("r", calls.context("r", Scope(tenant="t")))
    assert result.messages == (*CRASHED[:3], LOST, *CRASHED[3:], AssistantMessage("Here."))


async def test_a_result_without_a_call_is_refused_before_any_model() -> None:
    """What cannot be repaired is an error that names it, whatever the model."""
    with pytest.raises(ConfigurationError, match="'nobody'"):
        await ask(Binding("scripted:hi"), [UserMessage("u"), ToolMessage("nobody", "1"), UserMessage("v")])


async def test_b48_texts_are_clean_from_the_start() -> None:
    """B48: lone surrogates and NULs are replaced in the messages themselves: prompts, stored turns and results."""
    model = ScriptedModel([ToolCall("c", "odd", "{}"), "Done."])

    @tool(effect="read")
    async def odd() -> str:
        """Return odd text."""
        return "caf\udce9\x00"

    given = (
        SystemMessage("s\ud800"),
        UserMessage((TextPart("t\x00"), ImagePart(url="http://x/\udce9"))),
        AssistantMessage("a\x00", (ToolCall("i\x00", "odd", '{"t":"\ud83c"}'),), "r\ud83c"),
        ToolMessage("i\x00", "caf\udce9"),
        UserMessage("joined \ud83d\ude00"),
    )
    answer = await run(Binding(model), given, tools=[odd], instructions="be \udcff brief")
    told = repr(answer.messages)
    assert told.isprintable()
    told.encode()
    assert told.count("\ufffd") == 12
    assert "joined 😀" in told
    assert (await ask(Binding("scripted:hi"), "caf\udce9")).messages[0] == UserMessage("caf\ufffd")
