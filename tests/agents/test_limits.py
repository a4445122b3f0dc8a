"""What a run has when a limit ends it, and that limits and spending are the whole tree's."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, ModelSettings, ReAct, ToolCall, ToolMessage, Usage, ask, tool
from agentkit.errors import MeterExceeded, Overloaded
from agentkit.testing import Fault, Hang, Reply, ScriptedModel
from agentkit.tools import MAX_BATCH_CHARS

NINE_HUNDRED = Usage(600, 300)
COST = Decimal("0.0009")  # at 1/1


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def wish(*names: str, arguments: str = "{}") -> Reply:
    """Return a turn that calls these tools."""
    calls = tuple(ToolCall(f"{name}-{n}", name, arguments) for n, name in enumerate(names))
    return Reply("", calls, usage=NINE_HUNDRED)


def agent(name, replies, tools=(), **more):
    """Return an agent over a scripted model at 1/1."""
    return Agent(name, Binding(ScriptedModel(replies), price="1/1"), tools=tools, **more)


LIMITS = {
    "calls": {"max_calls": 2},
    "total tokens": {"max_total_tokens": 1_900},
    "input tokens": {"max_input_tokens": 1_199},
    "output tokens": {"max_output_tokens": 650},
    "cost": {"max_cost_usd": "0.0019"},
}


@pytest.mark.parametrize("axis", LIMITS)
async def test_b67_a_limit_keeps_what_was_gathered_and_is_called_by_its_name(axis):
    """The error names the ceiling that was met, and has the transcript, usage, cost and a run to go on with."""
    replies = [wish("look"), wish("look"), Reply("done", usage=NINE_HUNDRED)]
    worker = agent("worker", replies, [look], settings=ModelSettings(max_tokens=300))
    async with CallRuntime() as calls:
        with pytest.raises(MeterExceeded) as raised:
            await worker.run("go", calls.context("r", budget=Budget(**LIMITS[axis])))
        error = raised.value
        assert error.axis == axis
        assert axis in error.message
        assert [m["content"] for m in error.messages if m.get("name") == "look"] == ["seen"] * 2
        assert (error.usage["input_tokens"], error.usage["output_tokens"]) == (1_200, 600)
        assert error.cost == 2 * COST
        result = await worker.resume("r", calls.context("r", budget=Budget("1.00")))
    assert (result.output, result.calls, result.cost) == ("done", 3, 3 * COST)


async def test_b67_the_turn_cap_is_no_token_cap():
    """A run out of turns says so, and has its results, usage and cost."""
    worker = agent("worker", [wish("look")] * 2, [look], cognition=ReAct(max_turns=2, final_answer=False))
    result = await worker.run("go")
    assert (result.stop_reason, result.output) == ("max_turns", None)
    assert [m.content for m in result.messages if isinstance(m, ToolMessage)] == ["seen"] * 2
    assert (result.usage.total_tokens, result.cost) == (1_800, 2 * COST)


async def test_b68_the_answers_of_one_turn_fit_together():
    """Twenty tools that return a hundred thousand characters each: the model reads what fits, small ones whole."""

    @tool(effect="read")
    async def dump(size: int) -> str:
        """Return so many characters."""
        return "x" * size

    sizes = [100_000] * 20 + [50]
    turn = Reply("", tuple(ToolCall(f"c{n}", "dump", f'{{"size": {size}}}') for n, size in enumerate(sizes)))
    worker = agent("worker", [turn, "ok"], [dump])
    result = await worker.run("go")
    told = [m.content for m in result.messages if isinstance(m, ToolMessage)]
    assert told[-1] == "x" * 50
    assert sum(text.count("x") for text in told) <= MAX_BATCH_CHARS
    assert all(text.count("x") == (MAX_BATCH_CHARS - 50) // 20 and "left out" in text for text in told[:-1])


async def test_b107_a_child_made_by_hand_has_the_parents_limits():
    """Five calls for the tree: a child's loop of ten ends at the fifth, as a budget error and not as a tool's."""
    looping = agent("looping", [wish("look")] * 10, [look], cognition=ReAct(max_turns=10))

    async with CallRuntime() as calls:
        ctx = calls.context(budget=Budget(max_calls=5))
        await calls.ask(Binding(ScriptedModel(["plan"])), "plan", ctx=ctx)
        with pytest.raises(MeterExceeded) as raised:
            await looping.run("loop", ctx.child(name="looping"))
    assert raised.value.axis == "calls"
    assert len(looping.binding.port.requests) == 4


async def test_b107_a_childs_refusal_suspends_the_parent():
    """With a budget that stops, the lead is suspended too: its model is told nothing that it could talk around."""
    child = agent("child", [wish("look")] * 10, [look], cognition=ReAct(max_turns=10))
    lead = agent("lead", [wish("child", arguments='{"task": "dig"}'), "never"], [child.as_tool()])
    async with CallRuntime() as calls:
        result = await lead.run("go", calls.context(budget=Budget(max_calls=5, on_exceeded="stop")))
    assert result.stop_reason == "budget_exhausted"
    assert "calls" in result.reason
    assert len(lead.binding.port.requests) == 1
    assert (result.calls, result.cost) == (5, 5 * COST)


@pytest.mark.parametrize("ending", ["raises", "cancelled", "background"])
async def test_b108_what_a_child_spent_is_in_the_parents_total(ending):
    """Nine hundred tokens of a child that fails, is cancelled or runs beside its parent count there, once."""
    last = Hang() if ending == "cancelled" else Fault(Overloaded("down", retryable=False), after=0)
    child = agent("child", [wish("look"), last if ending != "background" else "fine"], [look])
    budget = Budget("1.00")
    async with CallRuntime() as calls:
        ctx = calls.context(budget=budget)
        task = asyncio.ensure_future(child.run("dig", ctx.child(name="child")))
        if ending == "cancelled":
            while len(child.binding.port.requests) < 2:
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        used = budget.usage
    assert used.total_tokens is None or used.total_tokens >= 900
    assert budget.spent() >= COST
    rows = ctx.account.records
    assert sum((row.known_cost for row in rows), Decimal(0)) == budget.spent()
    assert len({(row.call_id, row.attempt) for row in rows}) == len(rows) == 2


def test_b108_threads_lose_no_update():
    """Eight threads with a loop each and one budget: every call of theirs is in its sums."""
    budget = Budget("10.00")

    def work() -> None:
        model = ScriptedModel([Reply("x", usage=NINE_HUNDRED)] * 25)

        async def several() -> None:
            for _ in range(25):
                await ask(Binding(model, price="1/1"), "hi", budget=budget)

        asyncio.run(several())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.spent() == 200 * COST
    assert budget.usage.total_tokens == 200 * 900
