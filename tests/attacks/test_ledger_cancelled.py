"""Callers who go away while their attempt is being written down: nothing was sent, so nothing stays held."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Scope, Usage
from agentkit.core.contracts import CostQuery, SharedSpend
from agentkit.testing import Reply, ScriptedModel


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
