"""A run cancelled at each of its awaits in turn: everything is settled, and resuming it pays and acts once."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal

import pytest

from agentkit import (
    Agent,
    AssistantMessage,
    Binding,
    Budget,
    CallRuntime,
    Quota,
    Scope,
    ToolCall,
    ToolMessage,
    Usage,
    tool,
)
from agentkit.core.contracts import HedgePolicy
from agentkit.errors import RunConflict
from agentkit.testing import Reply, ScriptedModel

USED = Usage(1000, 1000)  # costs 0.002 at 1/1
SCOPE = Scope(tenant="t")
WHOLE = Decimal("0.010")  # five model calls


class Until:
    """Awaits a coroutine in the task's own steps, and cancels the task at its step `at`."""

    def __init__(self, coro, at):
        self.coro, self.at, self.steps = coro, at, 0

    def __await__(self):
        inner = self.coro.__await__()
        step, given = inner.send, None
        while True:
            try:
                waited_for = step(given)
            except StopIteration as end:
                return end.value
            self.steps += 1
            if self.steps == self.at:
                asyncio.current_task().cancel()
            try:
                step, given = inner.send, (yield waited_for)
            except BaseException as error:  # noqa: BLE001
                step, given = inner.throw, error


def wish(*names):
    """Return a turn that calls these tools."""
    arguments = {"child": '{"task": "t"}'}
    return Reply(
        "", tuple(ToolCall(f"{name}-{i}", name, arguments.get(name, "{}")) for i, name in enumerate(names)), usage=USED
    )


def by_turn(*replies):
    """Return a model that answers by how often it has answered in this conversation."""
    return ScriptedModel(lambda request: replies[sum(isinstance(m, AssistantMessage) for m in request.messages)])


class World:
    """A lead with a child, reads and writes; what was done is in `log`."""

    def __init__(self):
        self.log = []
        inner = by_turn(wish("child_save", "look"), Reply("child done", usage=USED))
        outer = by_turn(wish("look", "save", "child", "look"), wish("save", "look"), Reply("done", usage=USED))
        self.models = [outer, inner]
        reads = self.noted("look", "read")
        child = Agent("child", Binding(inner, price="1/1"), tools=[self.noted("child_save", "write"), reads])
        tools = [reads, self.noted("save", "write"), child.as_tool()]
        self.lead = Agent("lead", Binding(outer, price="1/1"), tools=tools)

    def noted(self, name, effect):
        """Return a tool that notes that it ran and gives way once."""

        @tool(name=name, effect=effect)
        async def act() -> str:
            """Act."""
            self.log.append(name)
            await asyncio.sleep(0)
            return name

        return act

    async def go(self, ctx, *, streamed):
        """Run the lead on the context, by its events or at once."""
        if not streamed:
            return await self.lead.run("go", ctx)
        async with self.lead.stream("go", ctx) as events:
            async for _ in events:
                pass
        return events.result


def check_settled(world, ctx, meters, quota):
    """Check that all meters agree with the rows and nothing is left over."""
    spent = sum((row.cost for row in ctx.account.records), Decimal(0))
    for meter in meters:
        assert meter.held() == 0
        assert meter.spent() == spent
    assert quota.spent_in_window(SCOPE.key()) == spent
    assert not any(model.open_streams for model in world.models)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def resumed_or_again(world, calls, budget):
    """Resume the run; when it never reached its first step there is nothing to resume, and it is run again."""
    try:
        return await world.lead.resume("r", calls.context("r", SCOPE, budget=budget))
    except RunConflict as conflict:
        assert "has no run" in conflict.message
        return await world.lead.run("go", calls.context("r", SCOPE, budget=budget))


async def attempt(at, store, *, streamed, exact):
    """Cancel one run at that step and take it to its end; return whether it ended before that step."""
    world, budget, shared, quota = World(), Budget("9"), Budget("9"), Quota(max_usd="9")
    async with CallRuntime(store=store, budget=shared, quota=quota) as calls:
        ctx = calls.context("r", SCOPE, budget=budget)
        until = Until(world.go(ctx, streamed=streamed), at)

        async def whole():
            return await until

        task = asyncio.create_task(whole())
        await asyncio.wait([task])
        check_settled(world, ctx, (budget, shared), quota)
        assert task.cancelled() or task.exception() is None
        result = await resumed_or_again(world, calls, budget) if task.cancelled() else task.result()
        assert result.output == "done"
        wished = [call.id for m in result.messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
        assert [m.call_id for m in result.messages if isinstance(m, ToolMessage)] == wished
        if exact:
            assert budget.spent() == shared.spent() == result.cost == WHOLE
            done = Counter(world.log)
            assert (done["save"], done["child_save"]) == (2, 1)
        assert budget.held() == shared.held() == 0
        assert not budget._accounts
        assert not shared._accounts
        return not task.cancelled() and until.steps < at


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize("kept", ["sqlite", "memory"])
async def test_a_run_cancelled_at_any_await_is_settled_and_resumed(kept, streamed, tmp_path):
    """No reservation, lease, task or account is left; on SQLite nothing is paid for or done twice."""
    for at in range(1, 200):
        store = f"sqlite:{tmp_path / f'{at}.db'}" if kept == "sqlite" else None
        if await attempt(at, store, streamed=streamed, exact=kept == "sqlite"):
            break
    assert at > 5


@pytest.mark.parametrize("to", ["same", "fallback"])
async def test_a_hedged_call_cancelled_at_any_await_is_settled(to):
    """At each step of a race in turn: both requests are closed and charged, no task and no reservation is left."""
    cut = 0
    for at in range(1, 20):
        slow, swift = Reply("a b c d", delay=0.004, pause=0.001), Reply("e f g h", pause=0.0001)
        one, two = ScriptedModel([slow, swift]), ScriptedModel([swift])
        budget = Budget("1.00")
        binding = Binding(one, price="1/1", fallback=[Binding(two, price="1/1")])
        async with CallRuntime(hedge=HedgePolicy(after=0, to=to)) as calls:
            ctx = calls.context("r", budget=budget)

            async def whole(calls=calls, binding=binding, ctx=ctx, at=at):
                return await Until(calls.ask(binding, "hi", ctx=ctx), at)

            task = asyncio.create_task(whole())
            await asyncio.wait([task])
            cut += task.cancelled()
            assert task.cancelled() or task.exception() is None
            assert not one.open_streams and not two.open_streams
            assert not budget.held() and not budget._room.busy
            assert budget.spent() == sum((row.cost for row in ctx.account.records), Decimal(0))
            assert len(one.requests) + len(two.requests) == len(ctx.account.records)
            assert asyncio.all_tasks() == {asyncio.current_task()}
    assert cut >= 3
