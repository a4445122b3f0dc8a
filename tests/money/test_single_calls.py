"""What one call leaves behind in meters and ledger when something about it is odd."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Quota, Scope, Usage
from agentkit.core.contracts import CostQuery, Rates, SharedSpend
from agentkit.core.runtime import ActorBudget, Services
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store
from agentkit.testing import ManualClock, Reply, ScriptedModel

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
    taken = model.calls[0].quote.cost
    assert budget.remaining() == (await quota.charge(model.calls[0], Usage(), cost=0)).remaining == 20 - taken
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


@pytest.mark.parametrize("way", ["cancelled", "deadline", "error"])
async def test_what_ends_while_the_host_holds_it_back_was_never_sent(way):
    """An attempt that ends in the host's own `acquire` costs nothing, in every meter and in the ledger."""

    @asynccontextmanager
    async def acquire(mode):
        if way == "error":
            raise KeyError(mode)
        await asyncio.Event().wait()
        yield

    budget, ledger, clock = Budget("20"), MemoryLedgerStore(), ManualClock()
    model = ScriptedModel([Reply("yes")])
    store = Store(MemoryRunLog(), MemoryKeyValueStore(), ledger, durable=True)
    async with CallRuntime(store=store, acquire=acquire, services=Services(clock=clock)) as calls:
        asking = calls.ask(Binding(model, price="1000/1000"), "q", budget=budget, deadline=5)
        task = asyncio.create_task(asking)
        while not (task.done() or budget.held()):
            await asyncio.sleep(0)
        await clock.run_for(6 if way == "deadline" else 0)
        task.cancel()
        await asyncio.wait([task])
        (row,) = (await ledger.entries(CostQuery(tenant=None))).entries
    assert (row.state, row.record.cost, row.record.accepted) == ("settled", 0, False)
    assert (budget.spent(), budget.held(), budget.calls, len(model.calls)) == (0, 0, 0, 0)


async def test_nothing_is_said_of_a_call_that_has_a_price(caplog):
    """What is not known yet, when the ledger is told that a call begins, is no gap in its price."""
    binding = Binding(ScriptedModel([Reply("yes")]), price=Rates(Decimal(1), Decimal(1), rule="only here"))
    store = Store(MemoryRunLog(), MemoryKeyValueStore(), MemoryLedgerStore(), durable=True)
    async with CallRuntime(store=store) as calls:
        await calls.ask(binding, "q")
    assert not [record for record in caplog.records if "has no price" in record.getMessage()]
