"""Callers who go away while their attempt is being written down: nothing was sent, so nothing stays held."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, ModelSettings, Scope, Usage
from agentkit.core.contracts import CostQuery, Rates, SharedSpend
from agentkit.core.runtime import Services
from agentkit.errors import MeterExceeded
from agentkit.stores import MemoryLedgerStore
from agentkit.testing import ManualClock, Reply, ScriptedModel


@pytest.mark.parametrize("turns", [*range(4, 40, 3), 400])
async def test_a_caller_that_leaves_while_its_attempt_begins_holds_nothing(turns, tmp_path):
    """Whenever the task is cancelled: the shared ceiling is free again at once and the report is complete."""
    model = ScriptedModel([Reply("x", usage=Usage(1000, 1000))])
    budget = Budget("5", shared="acme")
    async with CallRuntime(store=f"sqlite:{tmp_path / 'ledger.db'}") as calls:
        ledger = calls.services.ledger
        ctx = calls.context("r", Scope(tenant="acme"), budget=budget)
        asking = asyncio.create_task(calls.ask(Binding(model, price="1/1"), "Hi", ctx=ctx))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        standing = await ledger.standing("acme")
        totals = await ledger.totals(CostQuery(tenant="acme"))
    spent = budget.spent()
    assert (standing, budget.held()) == (SharedSpend(spent), 0)
    assert bool(model.requests) == (spent > Decimal(0))
    assert [total.cost for total in totals] in ([], [spent])


async def test_an_answer_that_takes_half_an_hour_keeps_what_it_holds():
    """A slow answer without a deadline is not taken for a dead worker's: nobody else spends what it will cost."""
    clock = ManualClock()
    ledger = MemoryLedgerStore(clock=clock)
    quick = Binding(ScriptedModel([Reply("x", usage=Usage(20, 1000))], repeat_last=True), price="1/1")
    settings = ModelSettings(max_tokens=1000)

    class Slow:
        async def stream(self, call):
            clock.advance(1800)
            with pytest.raises(MeterExceeded, match="in flight"):
                await calls.ask(quick, "Hi", settings=settings, ctx=place())
            async for event in ScriptedModel([Reply("x", usage=Usage(20, 1000))]).stream(call):
                yield event

    def place():
        budget = Budget("0.00105", shared="acme", strict=True, max_wait=0, clock=clock)
        return calls.context(None, Scope(tenant="acme"), budget=budget)

    async with CallRuntime(services=Services(clock=clock, ledger=ledger)) as calls:
        await calls.ask(Binding(Slow(), price="1/1"), "Hi", settings=settings, ctx=place())
        assert await ledger.standing("acme") == SharedSpend(Decimal("0.00102"))


async def test_an_attempt_that_begins_blames_no_rule(tmp_path, caplog):
    """That the usage of an attempt in flight is not known yet is no gap of a price rule, and nothing to warn of."""
    rates = Rates(Decimal(1), Decimal(1), rule="a rule that knows everything")
    async with CallRuntime(store=f"sqlite:{tmp_path / 'ledger.db'}") as calls:
        await calls.ask(Binding(ScriptedModel(["Hi."]), price=rates), "Hi", ctx=calls.context(None, Scope(tenant="a")))
    assert "has no price" not in caplog.text
