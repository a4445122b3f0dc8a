"""Two processes that resume one run at about the same time: one of them goes on, the other pays for nothing."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, Scope, ToolCall, Usage, tool
from agentkit.errors import RunConflict
from agentkit.testing import Reply, ScriptedModel

SCOPE = Scope(tenant="t")
USED = Usage(1000, 1000)  # costs 0.002 at 1/1


class Interposed:
    """A run log with which somebody else is quicker: `between` runs before a slot's lease is taken."""

    def __init__(self, log):
        self.log = log
        self.between = None

    def __getattr__(self, name):
        return getattr(self.log, name)

    async def acquire(self, slot, owner, *, ttl):
        """Let the other one act, then take the lease."""
        between, self.between = self.between, None
        if between is not None:
            await between()
        return await self.log.acquire(slot, owner, ttl=ttl)


async def test_a_run_that_another_process_carried_on_is_not_paid_for_again(tmp_path):
    """Whoever read the run before the other one moved it on is refused before it asks a model or runs a tool."""
    done = []

    @tool(effect="write", requires_approval=True)
    async def act() -> str:
        """Act."""
        done.append("act")
        return "acted"

    wish = Reply("", (ToolCall("c", "act", "{}"),), usage=USED)
    model = ScriptedModel([wish, wish, Reply("done", usage=USED)])
    agent = Agent("a", Binding(model, price="1/1"), tools=[act])
    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with CallRuntime(store=url) as slow, CallRuntime(store=url) as quick:
        first = await agent.run("go", slow.context("r", SCOPE))
        decisions = {first.pending[0].id: True}

        async def be_quicker():
            again = await agent.resume("r", quick.context("r", SCOPE), decisions)
            assert again.stop_reason == "suspended"

        log = Interposed(slow.services.checkpointer)
        log.between = be_quicker
        services = slow.services.replace(checkpointer=log)
        budget = Budget("1")
        with pytest.raises(RunConflict, match="meanwhile"):
            await agent.resume("r", slow.context("r", SCOPE, services=services, budget=budget), decisions)
        assert (done, len(model.requests), budget.held()) == (["act"], 2, 0)
        pending = (await agent.resume("r", quick.context("r", SCOPE))).pending
        last = await agent.resume("r", quick.context("r", SCOPE), {pending[0].id: True})
    assert (last.output, last.cost, done) == ("done", Decimal("0.006"), ["act", "act"])
