"""The meter layer: guards, prices and settles every attempt however it ends."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit.catalog import PriceTable
from agentkit.catalog.prices import PriceRow
from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    ChatEnd,
    ChatRequest,
    CostQuery,
    ModelSettings,
    Rates,
    Route,
    TextDelta,
    UnpricedPolicy,
    Usage,
    UserMessage,
)
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.services import Services
from agentkit.errors import BadRequest, ConfigurationError, MeterExceeded, Overloaded, StreamBroken
from agentkit.middleware.meter import meter
from agentkit.stores import MemoryLedgerStore
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel, make_context

RATES = Rates(Decimal(1), Decimal(2), rule="test")
REQUEST = ChatRequest((UserMessage("x" * 396),))  # 99 tokens and 4 for the message


class Plain:
    """A model that does not say it is free."""

    def __init__(self, model: ScriptedModel) -> None:
        self.stream = model.stream


class Ledger(MemoryLedgerStore):
    """A ledger that may fail to write an end."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    async def settle(self, entries):
        if self.error is not None:
            raise self.error
        await super().settle(entries)

    async def rows(self):
        """Return tenant, user, state and record of each row."""
        page = await self.entries(CostQuery(tenant=None))
        return [(entry.tenant, entry.user, entry.state, entry.record) for entry in page.entries]


def a_route(script, rates=RATES, **fields) -> Route:
    model = script if isinstance(script, ScriptedModel) else ScriptedModel([script])
    return Route(model, "gpt-test", "openai", rates, **fields)


async def test_an_answer_is_priced_exactly_and_told_before_its_end():
    """The row of an answer stands in the account, the budget, the ledger and the stream, with one exact cost."""
    ledger, clock = Ledger(), ManualClock()
    services = Services(ledger=ledger)
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"), services=services, clock=clock)
    route = a_route(Reply("ok", usage=Usage(1000, 500)))
    async with ctx.invoker.stream(REQUEST, ctx, purpose="final", route=route) as events:
        seen = [event async for event in events]
    assert [type(event) for event in seen[-2:]] == [AttemptEnded, ChatEnd]
    record = seen[-2].record
    assert record.cost == Decimal("0.002") == ctx.budget.spent() == ctx.account.tally.spent
    assert (record.outcome, record.accepted, record.purpose, record.model) == ("ok", True, "final", "gpt-test")
    assert (record.provider, record.rates, record.run_id) == ("openai", RATES, "test-run")
    assert await ledger.rows() == [("test", None, "settled", record)]
    assert (ctx.budget.calls, ctx.budget.held()) == (1, 0)


async def test_a_stream_left_early_pays_for_what_arrived_before_control_returns():
    """Breaking off settles the estimated input and delivered output, flagged, as outcome closed."""
    ledger = Ledger()
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"), services=Services(ledger=ledger))
    route = a_route(Reply("abcdefgh" * 10, chunk=8))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    (record,) = ctx.account.records
    assert (record.outcome, record.accepted) == ("closed", True)
    assert record.usage == Usage(103, 2, estimated=True)
    assert ctx.budget.spent() == Decimal("0.000107") and ctx.budget.held() == 0
    ((_, _, state, told),) = await ledger.rows()
    assert (state, told) == ("settled", record)


async def test_a_cancelled_call_pays_for_what_arrived():
    """A task that is cancelled while the model writes leaves a row with outcome cancelled and no reservation."""
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"))
    route = a_route(Hang(after=3))
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    (record,) = ctx.account.records
    assert task.cancelled() and record.outcome == "cancelled" and record.accepted
    assert record.usage.estimated and record.usage.output_tokens == 2
    assert ctx.budget.held() == 0 and ctx.budget.calls == 1


async def test_cancelling_at_any_await_leaves_no_reservation_and_the_counter_equals_the_rows():
    """Wherever a call is cancelled, the budget holds nothing and has spent what its rows say."""
    for turns in range(14):
        ctx = make_context(middleware=[meter()], budget=Budget("0.01"))
        model = ScriptedModel([Reply("a b c d", pause=0.0, delay=0.0)] * 2)
        task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=a_route(model)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert ctx.budget.held() == 0
        assert ctx.budget.spent() == sum((record.cost for record in ctx.account.records), Decimal(0))


@pytest.mark.parametrize(
    ("error", "spent", "usage"),
    [
        (Overloaded("busy", accepted=False), Decimal(0), Usage()),
        (BadRequest("no", accepted=False), Decimal(0), Usage()),
        (ConfigurationError("no key"), Decimal(0), Usage()),
        (StreamBroken("reset"), Decimal("0.000103"), Usage(103, 0, estimated=True)),
    ],
)
async def test_a_failure_costs_nothing_only_when_the_provider_provably_did_no_work(error, spent, usage):
    """A proven refusal is free, an attempt that may have been read pays its input; neither is a call that counts."""
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"))
    with pytest.raises(type(error)):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(error))
    (record,) = ctx.account.records
    assert (record.outcome, record.accepted, record.cost, record.usage) == ("error", False, spent, usage)
    assert (ctx.budget.spent(), ctx.budget.calls, ctx.budget.held()) == (spent, 0, 0)


async def test_a_failed_attempt_is_told_before_its_error():
    """AttemptEnded comes up the stream before the error is raised."""
    ctx = make_context(middleware=[meter()])
    seen = []
    with pytest.raises(StreamBroken):
        async with ctx.invoker.stream(REQUEST, ctx, route=a_route(Fault(StreamBroken("cut"), after=3))) as events:
            async for event in events:
                seen.append(event)
    assert isinstance(seen[-1], AttemptEnded) and seen[-1].record.accepted


async def test_explicit_zero_is_not_missing():
    """A provider that reports zero tokens is believed; only what is absent is estimated, and flagged."""
    ctx = make_context(middleware=[meter()])
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("some words here", usage=Usage(0, 0))))
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("some words here", usage=Usage(None, None))))
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("some words here", usage=Usage(None, 0))))
    reported, missing, half = ctx.account.records
    assert half.usage == Usage(103, 0, estimated=True)
    assert (reported.usage, reported.cost) == (Usage(0, 0), 0)
    assert missing.usage.estimated and missing.usage.input_tokens == 103 and missing.usage.output_tokens == 4


async def test_the_placeholder_output_of_a_cut_stream_is_not_believed():
    """Usage on the error gives the input; delivered text outweighs the output count the stream began with."""
    error = Overloaded("mid")
    error.usage = {"input_tokens": 25, "output_tokens": 1, "cache_read_tokens": 5}
    ctx = make_context(middleware=[meter()])
    with pytest.raises(Overloaded):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(Fault(error, after=6)))
    usage = ctx.account.records[0].usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.estimated) == (25, 5, True)
    assert usage.output_tokens > 1


async def test_a_stream_without_its_end_is_an_error_that_is_settled():
    """A model that simply stops yields no answer: the attempt fails and its reservation is given back."""

    class Stops:
        async def stream(self, call):
            yield TextDelta("half an ans")

    ctx = make_context(middleware=[meter()], budget=Budget("1.00"))
    with pytest.raises(StreamBroken, match="without its end"):
        await ctx.invoker.chat(REQUEST, ctx, route=Route(Stops(), "m", "p", RATES))
    assert ctx.account.records[0].outcome == "error" and ctx.budget.held() == 0


async def test_an_unpriced_model_is_refused_before_sending_under_a_money_ceiling():
    """The error prints the price to add and the nearest priced names; nothing was sent."""
    prices = PriceTable([PriceRow(provider="openai", model="gpt-tent", rates=RATES)])
    model = ScriptedModel(["never"])
    route = Route(Plain(model), "gpt-test", "openai")
    ctx = make_context(middleware=[meter(prices)], budget=Budget("1.00"))
    with pytest.raises(ConfigurationError, match=r"openai:gpt-test.*price='INPUT/OUTPUT'.*gpt-tent"):
        await ctx.invoker.chat(REQUEST, ctx, route=route)
    assert model.requests == [] and ctx.account.records == []


async def test_every_fallback_route_is_looked_at_before_the_first_send():
    """A priced model with an unpriced fallback is refused as well."""
    model = ScriptedModel(["never"])
    other = Route(Plain(ScriptedModel([])), "other", "openai")
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"))
    with pytest.raises(ConfigurationError, match="openai:other"):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(model, fallback=(other,)))
    assert model.requests == []


@pytest.mark.parametrize("ceiling", ["none", "observe"])
async def test_without_a_ceiling_an_unpriced_answer_runs_and_stays_unknown(ceiling):
    """Nothing enforces money, so the call runs; its cost is None and the total stays incomplete."""
    budget = Budget() if ceiling == "none" else Budget("1.00", mode="observe")
    ctx = make_context(middleware=[meter()], budget=budget)
    await ctx.invoker.chat(REQUEST, ctx, route=Route(Plain(ScriptedModel(["fine"])), "m", "p"))
    assert ctx.account.records[0].cost is None and not ctx.budget.cost_complete


async def test_warn_says_it_once_a_model():
    """UnpricedPolicy.WARN lets the calls run and warns for the first one only."""
    layer = meter(unpriced_policy=UnpricedPolicy.WARN)
    ctx = make_context(middleware=[layer], budget=Budget("1.00"))
    route = Route(Plain(ScriptedModel(["fine"] * 2)), "m", "p")
    with pytest.warns(RuntimeWarning, match="p:m has no price"):
        await ctx.invoker.chat(REQUEST, ctx, route=route)
    await ctx.invoker.chat(REQUEST, ctx, route=route)
    assert ctx.budget.calls == 2


async def test_the_tier_that_served_sets_the_price():
    """A request priced by the list is billed by the returned tier, and a tier without a rule is unpriced."""

    class Tiered:
        def __init__(self, tier):
            self.tier = tier

        async def stream(self, call):
            async for event in ScriptedModel([Reply("ok", usage=Usage(1000, 0))]).stream(call):
                if isinstance(event, ChatEnd):
                    from msgspec.structs import replace

                    event = ChatEnd(replace(event.response, service_tier=self.tier))
                yield event

    prices = PriceTable(
        [
            PriceRow(provider="p", model="m", rates=RATES),
            PriceRow(provider="p", model="m", rates=Rates(Decimal(4), Decimal(8)), tier="priority"),
        ]
    )
    ctx = make_context(middleware=[meter(prices)])
    for tier in ("default", "priority", "unheard-of"):
        await ctx.invoker.chat(REQUEST, ctx, route=Route(Tiered(tier), "m", "p"))
    assert [record.cost for record in ctx.account.records] == [Decimal("0.001"), Decimal("0.004"), None]


class Foreign:
    """A meter from elsewhere: guard and charge only."""

    def __init__(self, log, name, verdict=None, error=None) -> None:
        self.log, self.name, self.verdict, self.error = log, name, verdict, error

    async def guard(self, call=None):
        self.log.append(f"guard {self.name}")
        if self.verdict == "refuse":
            raise MeterExceeded("full", axis="mine")

    async def charge(self, call, usage):
        self.log.append(f"charge {self.name} {usage and usage.input_tokens}")
        if self.error is not None:
            raise self.error


class Native(Foreign):
    """One that also settles and releases."""

    def settle(self, call, record):
        self.log.append(f"settle {self.name}")
        if self.error is not None:
            raise self.error

    def release(self, call):
        self.log.append(f"release {self.name}")


async def test_meters_are_guarded_in_order_and_released_in_reverse():
    """When a later meter refuses, the earlier ones give back what they held, last first, and nothing is sent."""
    log: list[str] = []
    meters = [Native(log, "a"), Foreign(log, "b"), Native(log, "c"), Native(log, "d", "refuse")]
    model = ScriptedModel(["never"])
    ctx = make_context(middleware=[meter()], budget=Budget("1.00"), meters=meters)
    with pytest.raises(MeterExceeded, match="full") as refused:
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(model))
    assert log == ["guard a", "guard b", "guard c", "guard d", "release c", "release a"]
    assert refused.value.axis == "mine" and ctx.budget.held() == 0 and model.requests == []


async def test_a_verdict_that_is_not_ok_stops_the_call_resumably():
    """A budget that answers instead of raising refuses with MeterExceeded that asks for a suspension."""
    ctx = make_context(middleware=[meter()], budget=Budget("0.000001", on_exceeded="stop"))
    with pytest.raises(MeterExceeded) as refused:
        await ctx.invoker.chat(REQUEST, ctx, route=a_route("never"))
    assert refused.value.suspends and refused.value.axis == "cost"


async def test_an_answer_is_not_thrown_away_for_a_meter_that_fails_or_refuses_to_book_it():
    """Meters from elsewhere are charged; whatever a meter raises while settling stays inside."""
    log: list[str] = []
    meters = [
        Foreign(log, "a", error=MeterExceeded("over")),
        Native(log, "b", error=RuntimeError("bug")),
        Foreign(log, "c"),
    ]
    ctx = make_context(middleware=[meter()], meters=meters, services=Services(ledger=Ledger(OSError("disk"))))
    answer = await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("ok", usage=Usage(7, 1))))
    assert answer.message.content == "ok" and len(answer.attempts) == 1
    assert log[-3:] == ["settle b", "charge a 7", "charge c 7"]


async def test_a_meter_from_elsewhere_hears_nothing_of_what_was_never_accepted():
    """It could only book a call, so a proven refusal is not told to it."""
    log: list[str] = []
    ctx = make_context(middleware=[meter()], meters=[Foreign(log, "a")])
    with pytest.raises(Overloaded):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(Overloaded("busy", accepted=False)))
    assert log == ["guard a"]


async def test_the_actor_is_asked_and_charged():
    """One accepted call is one step with its tokens and dollars; an actor with nothing left is refused by axis."""
    actor = ActorBudget(max_steps=1)
    ctx = make_context(middleware=[meter()], actor_budget=actor)
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("ok", usage=Usage(1000, 500))))
    assert (actor.used_steps, actor.used_tokens, actor.used_cost()) == (1, 1500, Decimal("0.002"))
    with pytest.raises(MeterExceeded, match="steps"):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route("never"))


async def test_a_strict_budget_lowers_the_output_cap_to_what_fits():
    """The cap is what the money left buys beside the most the input can be; under 64 tokens the call is refused."""
    model = ScriptedModel([Reply("ok", usage=Usage(412, 200))] * 2)
    ctx = make_context(middleware=[meter()], budget=Budget("0.000812", strict=True))
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(model))
    assert model.requests[0].settings.max_tokens == 200
    assert ctx.budget.spent() == Decimal("0.000812")
    with pytest.raises(MeterExceeded):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(model))
    roomy = make_context(middleware=[meter()], budget=Budget("9", strict=True))
    request = ChatRequest(REQUEST.messages, settings=ModelSettings(max_tokens=10))
    await roomy.invoker.chat(request, roomy, route=a_route(model))
    assert model.requests[1].settings.max_tokens == 10


async def test_a_strict_call_waits_for_money_in_flight_instead_of_being_refused():
    """What fits only once another attempt has ended waits for it."""
    clock = ManualClock()
    model = ScriptedModel([Reply("ok", usage=Usage(103, 10), delay=5), Reply("ok", usage=Usage(103, 10))], clock=clock)
    ctx = make_context(middleware=[meter()], budget=Budget("0.0007", strict=True, clock=clock), clock=clock)
    tasks = [asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=a_route(model))) for _ in range(2)]
    await clock.run_for(1)
    assert len(model.requests) == 1
    await clock.run_for(5)
    await asyncio.gather(*tasks)
    assert ctx.budget.calls == 2 and ctx.budget.held() == 0
    assert model.requests[1].settings.max_tokens == 64


async def test_a_strict_budget_refuses_when_less_than_an_answer_fits():
    """Money for 30 tokens of output is not enough to ask at all."""
    ctx = make_context(middleware=[meter()], budget=Budget("0.000472", strict=True))
    with pytest.raises(MeterExceeded, match="cost"):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route("never"))


async def test_at_most_three_of_eight_calls_of_thirty_cents_fit_one_dollar():
    """Admission is one step: calls behind a barrier cannot all pass on the same remaining money."""
    rates = Rates(Decimal(0), Decimal(0), request=Decimal("0.30"))
    ctx = make_context(middleware=[meter()], budget=Budget("1.00", max_wait=0))
    model = ScriptedModel(["ok"], repeat_last=True)
    calls = [ctx.invoker.chat(REQUEST, ctx, route=a_route(model, rates)) for _ in range(8)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(outcome, MeterExceeded) for outcome in outcomes) == 5
    assert len(model.requests) == 3 and ctx.budget.spent() == Decimal("0.9")


async def test_the_bound_comes_from_the_answers_before():
    """The first call reserves 1,024 tokens of output, later ones what this run's answers have shown."""
    quotes = []

    class Watching(Native):
        needs_quotes = True

        async def guard(self, call: Call | None = None):
            quotes.append(call.quote)

    ctx = make_context(middleware=[meter()], meters=[Watching([], "w")])
    for _ in range(2):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("ok", usage=Usage(100, 50))))
    assert [quote.output_tokens for quote in quotes] == [1024, 50]
    assert quotes[0].input_tokens == 103 and quotes[0].cost == Decimal("0.002151")


async def test_a_model_of_the_invokers_own_that_is_free_runs_under_a_ceiling():
    """A scripted model without a route costs exactly nothing."""
    ctx = make_context("hello", middleware=[meter()], budget=Budget("1.00"))
    await ctx.invoker.chat(REQUEST, ctx)
    assert ctx.account.records[0].cost == 0 and ctx.budget.cost_complete
