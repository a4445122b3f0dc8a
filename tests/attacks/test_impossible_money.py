"""Amounts that no bill can say: refused where they come in, and never in the way of others' money."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Quota, Scope, Usage, ask
from agentkit.catalog import PriceRow, PriceTable
from agentkit.core.contracts import (
    ChatRequest,
    CostQuery,
    PriceStep,
    RateBand,
    RateLimit,
    Rates,
    Route,
    UnitRate,
    UserMessage,
)
from agentkit.core.runtime.metering.feedback import Feedback
from agentkit.durable import PatientLedger
from agentkit.errors import ConfigurationError, MoneyPrecisionError, StoreError
from agentkit.stores import open_store
from agentkit.testing import HttpAnswer, LoopbackServer, ManualClock, Reply, ScriptedModel
from agentkit.testing.ledger_suite import entry
from agentkit.tools import metered

ONE = Decimal(1)
BAD_RATES = [
    Rates(Decimal("NaN"), ONE),
    Rates(ONE, Decimal("Infinity")),
    Rates(Decimal(-1), ONE),
    Rates(1.5, ONE),
    Rates("1", ONE),
    Rates(Decimal("1e30"), ONE),
    Rates(ONE, ONE, cache_read=Decimal(-1)),
    Rates(ONE, ONE, request=Decimal("sNaN")),
    Rates(ONE, ONE, bands=(RateBand(100, ONE, Decimal(-1)),)),
    Rates(ONE, ONE, bands=(RateBand(200, ONE, ONE), RateBand(100, ONE, ONE))),
    Rates(ONE, ONE, units=(UnitRate("pages", ONE, per=0),)),
    Rates(ONE, ONE, units=(UnitRate("pages", Decimal(-1)),)),
    Rates(ONE, ONE, steps=(PriceStep("multiply", Decimal(-1)),)),
    Rates(ONE, ONE, steps=(PriceStep("halve", ONE),)),
]


@pytest.mark.parametrize("rates", BAD_RATES, ids=str)
async def test_rates_that_give_money_back_or_are_none_come_in_nowhere(rates):
    """A binding, a price table and a metered operation refuse them by name, before anything is sent."""
    model = ScriptedModel(["Hi."])
    with pytest.raises(ConfigurationError, match=r"Rates\(|RateBand\(|UnitRate\(|PriceStep\("):
        await ask(Binding(model, price=rates), "Hi")
    with pytest.raises(ConfigurationError):
        PriceTable([PriceRow(provider="acme", model="m", rates=rates)])
    with pytest.raises(ConfigurationError):
        PriceTable([]).with_rule(PriceRow(provider="acme", model="m", rates=rates))
    async with CallRuntime() as calls:
        with pytest.raises(ConfigurationError):
            async with metered(calls.context(), "acme", "search", price=rates):
                raise AssertionError("it began")
    assert not model.requests


@pytest.mark.parametrize("pages", [float("inf"), float("nan"), 1e300, -1, "3", True, None, Decimal("sNaN"), 10**40])
async def test_an_operation_that_says_an_impossible_amount_leaves_no_hold_behind(pages, tmp_path):
    """The amount is refused by name; the operation ends as unknown, its bound stays uncertain, its row is settled."""
    budget = Budget("1")
    async with CallRuntime(store=f"sqlite:{tmp_path / 'ledger.db'}") as calls:
        ctx = calls.context("r", Scope(tenant="acme"), budget=budget)
        with pytest.raises(ConfigurationError, match="pages="):
            async with metered(ctx, "acme", "scan", price={"pages": "0.01"}) as bill:
                bill.used(pages=pages)
        (row,) = (await calls.services.ledger.entries(CostQuery(tenant="acme"))).entries
    assert (budget.held(), budget.remaining(), row.state) == (0, Decimal("0.99"), "settled")


async def test_a_float_amount_counts_by_its_spelling():
    """Seconds as a clock gives them are exact money."""
    budget = Budget("1")
    async with CallRuntime() as calls:
        async with metered(calls.context(budget=budget), "acme", "listen", price={"seconds": "0.1"}) as bill:
            bill.used(seconds=0.1)
            bill.used(seconds=0.2)
    assert budget.spent() == Decimal("0.03")


@pytest.mark.parametrize("rates", [Rates(Decimal(-5), ONE), Rates(ONE, Decimal("NaN")), Rates(1.5, ONE)], ids=str)
async def test_a_price_source_that_says_nonsense_makes_a_cost_unknown(rates):
    """Whatever a source of one's own returns, the answer is kept and nobody gets money back."""

    class Source:
        def find(self, provider, model, *, at=None, tier=None, facts=None):
            return rates

    class Plain:
        stream = ScriptedModel([Reply("Hi.", usage=Usage(1000, 1000))]).stream

    budget = Budget(max_calls=3)
    async with CallRuntime(pricing=Source()) as calls:
        ctx = calls.context(budget=budget)
        route = Route(Plain(), "m", "acme")
        answer = await ctx.services.invoker.chat(ChatRequest((UserMessage("Hi"),)), ctx, route=route)
    assert (answer.message.content, budget.spent(), budget.held(), budget.calls) == ("Hi.", 0, 0, 1)
    assert not budget.cost_complete


async def test_a_row_that_no_store_takes_keeps_no_other_back(tmp_path):
    """Ends behind it are written all the same, and it goes on waiting alone."""
    clock = ManualClock()
    store = open_store(f"sqlite:{tmp_path / 'ledger.db'}", clock=clock)
    ledger = PatientLedger(store.ledger)
    try:
        await ledger.settle([entry(clock, "bad", usage=Usage(2**70, 1))])
        for name in ("a", "b"):
            await ledger.settle([entry(clock, name)])
            assert ledger.kept == 1
        await ledger.settle([entry(clock, "worse", agent="\ud800")])
        await ledger.settle([entry(clock, "c"), entry(clock, "d")])
        assert ledger.kept == 2
        with pytest.raises(StoreError):
            await ledger.flush()
        rows = (await ledger.entries(CostQuery(tenant="acme"))).entries
    finally:
        await store.aclose()
    assert [row.record.call_id for row in rows] == ["a", "b", "d", "c"]


@pytest.mark.parametrize("path", ["", "details", "list"])
@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-9e99", "1e400"])
async def test_a_number_that_no_store_takes_loses_no_row(number, path, tmp_path):
    """Whatever numbers a server puts beside the tokens, its answer's row is settled with its cost."""
    odd = {"": number, "details": f'{{"a": {number}}}', "list": f"[{number}]"}[path]
    usage = f'{{"prompt_tokens": 50, "completion_tokens": 7, "odd": {odd}}}'
    body = f'{{"id": "x", "choices": [{{"index": 0, "finish_reason": "stop", "message": {{"content": "Hi."}}}}], "usage": {usage}}}'
    answer = HttpAnswer(headers={"content-type": "application/json"}, pieces=(body.encode(),))
    async with LoopbackServer([answer]) as server, CallRuntime(store=f"sqlite:{tmp_path / 'ledger.db'}") as calls:
        binding = Binding("openai:m", base_url=server.url, api_key="k", price="1/1")
        await calls.ask(binding, "Hi", ctx=calls.context("r", Scope(tenant="acme")))
        (row,) = (await calls.services.ledger.entries(CostQuery(tenant="acme"))).entries
    assert (row.state, row.record.cost) == ("settled", Decimal("0.000057"))
    assert row.record.raw_usage["prompt_tokens"] == 50


async def test_a_budget_takes_nothing_back():
    """No ceiling, start or charge below zero comes in, at first or later."""
    with pytest.raises(ConfigurationError, match="spent_usd=-5"):
        Budget("1", spent_usd=-5)
    budget, quota = Budget("1"), Quota(max_usd="1")
    with pytest.raises(ConfigurationError, match="below zero"):
        await budget.charge(None, Usage(), cost="-0.5")
    for value, error in ((-1, ConfigurationError), (float("nan"), MoneyPrecisionError)):
        with pytest.raises(error):
            budget.max_cost_usd = value
        with pytest.raises(error):
            quota.max_usd = value
    assert (budget.remaining(), budget.ceiling(), quota.ceiling()) == (1, 1, 1)


def test_a_moment_without_a_zone_asks_for_nothing():
    """A ledger's question names its time zone, whatever the store would have made of it."""
    with pytest.raises(ConfigurationError, match="until="):
        CostQuery(tenant=None, until=datetime(2026, 12, 1))  # noqa: DTZ001


def test_words_of_providers_to_keys_that_are_gone_take_no_memory():
    """What has run out is forgotten also of tenants that never come back."""
    feedback = Feedback()
    for number in range(5_000):
        feedback.learn(f"t{number}", None, RateLimit(tokens_left=1, tokens_reset=10.0), now=float(number))
    assert len(feedback._said) < 300
    assert feedback.until("t4999", None, 5_000.0) == 5_009.0
