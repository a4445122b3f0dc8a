"""Calls of tools that do not exist."""

from __future__ import annotations

from agentkit import Binding, run, tool
from agentkit.core.contracts import ToolCall, ToolMessage
from agentkit.testing import ScriptedModel
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn


@tool(effect="read")
async def get_date() -> str:
    """Return today's date."""
    return "2026-12-01"


async def test_b33_a_made_up_name_costs_one_answer() -> None:
    """B33: the model reads which tools there are, the turn's other calls run, and each call keeps its answer."""
    made_up, real = ToolCall("c1", "get_dat", "{}"), ToolCall("c2", "get_date", "{}")
    async with LoopbackServer([Turn(calls=(made_up, real)), Turn(text="It is the first.")]) as server:
        binding = Binding("openai:m", base_url=server.url, api_key="key-for-loopback")
        answer = await run(binding, "What day is it?", tools=[get_date])
    told = {message.call_id: message for message in answer.messages if isinstance(message, ToolMessage)}
    assert "get_date" in str(told["c1"].content)
    assert told["c1"].is_error
    assert told["c2"] == ToolMessage("c2", "2026-12-01", "get_date")
    assert answer.text == "It is the first."


async def test_b33_a_model_that_goes_on_making_up_names_is_stopped() -> None:
    """B33: made-up names are bounded by the turns of the run, which ends with an answer and nothing lost."""
    calls = [ToolCall(f"c{n}", "get_dat", "{}") for n in range(3)]
    answer = await run(Binding(ScriptedModel([*calls, "I give up."])), "What day is it?", tools=[get_date], max_turns=3)
    assert answer.stop_reason == "max_turns"
    assert answer.text == "I give up."
    assert sum(isinstance(message, ToolMessage) for message in answer.messages) == 3
