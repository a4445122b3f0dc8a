"""Paid operations that are no model calls: asked for before, booked on every exit, in every place."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import (
    Agent,
    Binding,
    Budget,
    CallRuntime,
    ModelSettings,
    Quota,
    RunContext,
    Scope,
    ToolCall,
    UnpricedPolicy,
    Usage,
    tool,
)
from agentkit.core.contracts import CostQuery
from agentkit.core.runtime import ActorBudget, NullCtx
from agentkit.errors import ConfigurationError, MeterExceeded, Overloaded, UnpricedModel
from agentkit.middleware.meter import meter
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store
from agentkit.testing import Reply, ScriptedModel, make_context
from agentkit.tools import metered


def context(**given):
    """Return a context with a ceiling, a quota and an actor."""
    given.setdefault("budget", Budget("1.00"))
    return make_context(middleware=[meter()], **given)


async def test_units_are_priced_and_booked_everywhere():
    """What was used times its price is in the run, the budget, the quota and the actor, and nothing stays held."""
    quota, actor = Quota(max_usd="1.00"), ActorBudget(max_cost_usd="1.00")
    ctx = context(meters=[quota], actor_budget=actor)
    async with metered(ctx, "exa", "search", price={"page": "0.001"}, at_most={"page": 100}) as bill:
        assert ctx.budget.held() == Decimal("0.1")
        bill.used(page=3)
        bill.used(page=4)
    (row,) = ctx.account.records
    assert (row.provider, row.model, row.purpose, row.outcome) == ("exa", "search", "operation", "ok")
    assert row.usage == Usage(units=(("page", 7),))
    places = [row.cost, ctx.budget.spent(), quota.spent_in_window(ctx.scope.key()), actor.used_cost()]
    assert places == [Decimal("0.007")] * 4
    assert (ctx.budget.held(), ctx.budget.calls, actor.used_steps) == (0, 1, 1)


async def test_the_ways_to_say_a_price():
    """Dollars an operation, the provider's own word, tokens by rates, and nothing where it says so."""
    ctx = context()
    async with metered(ctx, "p", "a", price="0.005"):
        pass
    async with metered(ctx, "p", "b", at_most="0.50") as bill:
        assert ctx.budget.held() == Decimal("0.5")
        bill.costs("0.0123")
    async with metered(ctx, "p", "c", price="0.10") as bill:
        bill.costs(0)
    assert [row.cost for row in ctx.account.records] == [Decimal("0.005"), Decimal("0.0123"), 0]
    assert ctx.budget.spent() == Decimal("0.0173") and ctx.budget.cost_complete


@pytest.mark.parametrize("price", ["0.60", {"page": "0.60"}])
async def test_what_does_not_fit_does_not_begin(price):
    """The block is not entered, nothing is booked or held; landing on the ceiling passes."""
    ctx = context()
    began = []
    with pytest.raises(MeterExceeded, match="cost up to"):
        async with metered(ctx, "p", "a", price=price, at_most={"page": 2} if isinstance(price, dict) else "1.01"):
            began.append(1)
    assert not began and ctx.budget.held() == 0 and not ctx.account.records
    async with metered(ctx, "p", "a", price="1.00"):
        pass
    assert ctx.budget.remaining() == 0


@pytest.mark.parametrize(
    ("error", "said", "booked", "left"),
    [
        (ValueError("parse"), True, Decimal("0.2"), "0.8"),  # told before it was parsed
        (ValueError("lost"), False, None, "0.9"),  # nobody knows: what was held stays
        (asyncio.CancelledError(), True, Decimal("0.2"), "0.8"),
        (asyncio.CancelledError(), False, None, "0.9"),
        (Overloaded("busy", accepted=False), False, 0, "1"),  # surely never taken
    ],
)
async def test_every_exit_settles(error, said, booked, left):
    """The error goes on, what was told counts, and what is unknown is never taken for free."""
    ctx = context()
    with pytest.raises(type(error)):
        async with metered(ctx, "p", "a", price={"page": "0.10"}) as bill:
            if said:
                bill.used(page=2)
            raise error
    (row,) = ctx.account.records
    assert row.cost == booked
    assert ctx.budget.remaining() == Decimal(left)
    assert ctx.budget.held() == 0 and ctx.budget.cost_complete == (booked is not None)


async def test_without_a_word_only_a_fixed_price_is_known():
    """An operation priced by units that says nothing has an unknown cost."""
    ctx = context()
    async with metered(ctx, "p", "a", price={"page": "0.10"}):
        pass
    assert ctx.account.records[0].cost is None and ctx.budget.remaining() == Decimal("0.9")


async def test_the_unpriced_policy_applies():
    """Under a ceiling an operation without price and bound is refused, warned of, or let through."""
    for policy in UnpricedPolicy:
        ctx = make_context(middleware=[meter(unpriced_policy=policy)], budget=Budget("1.00"))
        if policy is UnpricedPolicy.REFUSE:
            with pytest.raises(UnpricedModel, match="p:a has no price.*at_most="):
                async with metered(ctx, "p", "a"):
                    pass
            continue
        if policy is UnpricedPolicy.WARN:
            with pytest.warns(RuntimeWarning, match="p:a has no price"):
                async with metered(ctx, "p", "a"):
                    pass
        else:
            async with metered(ctx, "p", "a"):
                pass
        assert not ctx.budget.cost_complete
    free = make_context(middleware=[meter()])
    async with metered(free, "p", "a") as bill:
        bill.costs("0.01")
    assert free.budget.spent() == Decimal("0.01")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"price": "-1"}, "price='-1' is below zero"),
        ({"price": {"page": "-1"}}, r"price\['page'\]='-1' is below zero"),
        ({"price": {"page": "1"}, "at_most": {"sheet": 2}}, "no rate for some of these units"),
        ({"provider": ""}, "provider"),
    ],
)
async def test_bad_input_is_named(given, message):
    """Before anything begins."""
    with pytest.raises(ConfigurationError, match=message):
        async with metered(context(), given.pop("provider", "p"), "a", **given):
            pass


async def test_bad_words_are_named():
    """Less than nothing, and a context that meters nothing."""
    with pytest.raises(ConfigurationError, match=r"used\(page=-1\)"):
        async with metered(context(), "p", "a", price={"page": "1"}) as bill:
            bill.used(page=-1)
    with pytest.raises(ConfigurationError, match="pass the RunContext"):
        async with metered(NullCtx(), "p", "a"):
            pass


async def test_a_paid_tool_of_a_run_is_in_its_answer_and_in_the_ledger():
    """Its cost is part of the run's, and a row of its own; a ceiling it meets suspends the run, which goes on later."""
    ledger = MemoryLedgerStore()
    store = Store(MemoryRunLog(), MemoryKeyValueStore(), ledger, durable=True)

    @tool(effect="read")
    async def search(query: str, ctx: RunContext) -> str:
        """Search."""
        async with metered(ctx, "exa", "search", price="0.30"):
            return f"found {query}"

    wish = (ToolCall("c1", "search", '{"query": "x"}'),)
    model = ScriptedModel([Reply("", wish, usage=Usage(100, 10)), Reply("done", usage=Usage(100, 10))])
    agent = Agent("a", Binding(model, price="100/1000", settings=ModelSettings(max_tokens=20)), tools=[search])
    async with CallRuntime(store=store) as calls:
        ctx = calls.context("r", Scope(tenant="acme"), budget=Budget("0.25", on_exceeded="stop"))
        stopped = await agent.run("go", ctx)
        assert stopped.is_suspended and stopped.cost == Decimal("0.02")
        ctx.budget.max_cost_usd = "1.00"
        done = await agent.resume("r", ctx)
    assert done.text == "done" and done.cost == Decimal("0.34") == ctx.budget.spent()
    rows = (await ledger.entries(CostQuery(tenant="acme"))).entries
    assert [(row.state, row.record.provider, row.record.cost) for row in rows] == [
        ("settled", "scripted", Decimal("0.02")),
        ("settled", "exa", Decimal("0.3")),
        ("settled", "scripted", Decimal("0.02")),
    ]
