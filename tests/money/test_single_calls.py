"""What one call leaves behind in meters and ledger when something about it is odd."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Quota, Scope, Usage
from agentkit.core.contracts import CostQuery, SharedSpend
from agentkit.core.runtime import ActorBudget
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store
from agentkit.testing import Reply, ScriptedModel

SCOPE = Scope(tenant="a")
NO_WRITE_RATE = {"input": "1000", "output": "1000", "cache_read": "100"}


async def test_the_known_part_of_a_cost_counts_once():
    """Of a call with tokens nobody has a rate for, the known part is spent and the rest of its bound stays taken."""
    budget, quota, actor = Budget("20"), Quota(max_usd="20"), ActorBudget(max_cost_usd="20")
    model = ScriptedModel([Reply("yes", usage=Usage(100, 50, cache_write_tokens=20))])
    async with CallRuntime(quota=quota) as calls:
        ctx = calls.context("r", SCOPE, budget=budget).child(name="x", actor_budget=actor)
        answer = await calls.ask(Binding(model, price=NO_WRITE_RATE), "q" * 40, ctx=ctx)
    known = Decimal("0.13")
    assert (answer.cost, answer.known_cost) == (None, known)
    assert budget.spent() == quota.spent_in_window(SCOPE.key()) == actor.used_cost() == known
    assert model.calls[0].quote.cost == known + budget.uncertain()
    assert budget.remaining() == 20 - model.calls[0].quote.cost
    assert (budget.held(), quota.held(SCOPE.key()), actor.cost_complete) == (0, 0, False)


@pytest.mark.parametrize("late", [False, True], ids=["before the row", "after the row"])
async def test_a_call_cut_while_the_ledger_writes_leaves_nothing_open(late):
    """Cancelled while its beginning is written down, it was never sent: its row says so, and holds nothing."""

    class Slow(MemoryLedgerStore):
        async def begin(self, entry, **how):
            refusal = await super().begin(entry, **how) if late else None
            await asyncio.Event().wait()
            return refusal

    ledger, budget = Slow(), Budget("20", shared="k")
    model = ScriptedModel([Reply("yes")])
    store = Store(MemoryRunLog(), MemoryKeyValueStore(), ledger, durable=True)
    async with CallRuntime(store=store) as calls:
        task = asyncio.create_task(calls.ask(Binding(model, price="1000/1000"), "q", budget=budget))
        while not budget.held():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert budget.held() == 0
        assert await ledger.standing("k") == SharedSpend()
        (row,) = (await ledger.entries(CostQuery(tenant=None))).entries
    assert (row.state, row.record.outcome, row.record.cost, row.record.accepted) == ("settled", "cancelled", 0, False)
    assert not model.calls
