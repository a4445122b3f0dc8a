"""What went wrong with money elsewhere, one test each; the numbers are those of the list of such faults."""

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
    Scope,
    ToolCall,
    UnpricedPolicy,
    Usage,
    tool,
)
from agentkit.core.contracts import Charge, ChatEnd, CostRecord
from agentkit.core.runtime import ActorBudget
from agentkit.errors import ConfigurationError, MeterExceeded, MoneyPrecisionError, Overloaded
from agentkit.testing import Fault, ManualClock, Reply, ScriptedModel, make_context

ONE = Usage(1_000, 0)  # a cent at 10/10


def binding(replies):
    """Return a binding over a scripted model."""
    return Binding(ScriptedModel(replies), price="10/10")


def say(text="ok", usage=ONE):
    """Return an answer that costs a cent."""
    return Reply(text, usage=usage)


async def asked(replies, budget, times=1, **more):
    """Ask so many times under one budget; return the answers."""
    async with CallRuntime(**more) as calls:
        bound = binding(replies)
        return [await calls.ask(bound, "hi", budget=budget) for _ in range(times)]


async def test_r01_a_hundred_cents_are_one_dollar():
    budget = Budget("5")
    for _ in range(100):
        await budget.charge(None, Usage(1, 1), cost=0.01)
    assert budget.spent() == Decimal("1.00")
    assert budget.remaining() == Decimal(4)


async def test_r02_places_are_refused_in_ceilings_and_kept_in_charges():
    with pytest.raises(MoneyPrecisionError, match=r"0\.123456789012"):
        Budget("0.1234567890123")
    budget = Budget("1")
    await budget.charge(None, Usage(1, 1), cost="0.1234567890126")
    assert budget.spent() == Decimal("0.123456789013")


@pytest.mark.parametrize("ceiling", ["1e400", "9" * 80, "Infinity", "NaN", "-sNaN"])
def test_r03_a_ceiling_that_money_cannot_hold_is_an_error_of_ours(ceiling):
    for meter in (Budget, lambda usd: Quota(max_usd=usd), lambda usd: ActorBudget(max_cost_usd=usd)):
        with pytest.raises(MoneyPrecisionError):
            meter(ceiling)


async def test_r05_calls_below_a_cent_add_up_and_cents_are_made_when_read():
    budget = Budget("1")
    for _ in range(15):
        await budget.charge(None, Usage(1, 1), cost="0.001")
    assert (budget.spent(), budget.spent_cents()) == (Decimal("0.015"), 2)


async def test_r06_spent_is_a_decimal():
    (answer,) = await asked([say()], budget := Budget("1"))
    assert {type(each) for each in (budget.spent(), budget.remaining(), answer.cost)} == {Decimal}


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def worker():
    """Return an agent of two calls, a cent each."""
    wish = Reply("", (ToolCall("c", "look", "{}"),), usage=ONE)
    return Agent("worker", binding([wish, say("done")]), tools=[look], settings=ModelSettings(max_tokens=100))


async def test_r07_crossing_leaves_a_current_checkpoint_that_goes_on():
    agent = worker()
    async with CallRuntime() as calls:
        stopped = await agent.run("go", calls.context("r", budget=Budget("0.0105", on_exceeded="stop")))
        assert (stopped.stop_reason, stopped.cost, stopped.is_suspended) == ("budget_exhausted", Decimal("0.01"), True)
        result = await agent.resume("r", calls.context("r", budget=Budget("1")))
    assert (result.output, result.cost) == ("done", Decimal("0.02"))


async def test_r08_asking_again_costs_nothing():
    agent = worker()
    async with CallRuntime() as calls:
        budget = Budget("0.0105", on_exceeded="stop")
        await agent.run("go", calls.context("r", budget=budget))
        for _ in range(3):
            again = await agent.resume("r", calls.context("r", budget=budget))
            assert again.stop_reason == "budget_exhausted"
    assert budget.spent() == Decimal("0.01")
    assert len(agent.binding.port.requests) == 1


async def test_r09_an_assigned_ceiling_holds():
    budget, quota = Budget("0.001"), Quota(max_usd="0.001")
    budget.max_cost_usd = 10
    quota.max_usd = 10
    assert await asked([say()], budget, quota=quota)
    budget.max_cost_usd = 0
    with pytest.raises(MeterExceeded):
        await asked([say()], budget)


async def test_r10_a_finished_answer_is_not_thrown_away_for_its_price():
    long = Usage(1_000, 90_000)  # far more than the bound
    (answer,) = await asked([say("all of it", long)], budget := Budget("0.05", on_exceeded="stop"))
    assert (answer.value, answer.stop_reason) == ("all of it", "stop")
    assert budget.exhausted()


def test_r11_dollars_have_one_type_by_name():
    assert isinstance(Charge(True).spent, Decimal)
    assert isinstance(Budget("1").spent_usd, float)
    assert not hasattr(Charge(True), "spent_usd")


async def test_r12_the_whole_usage_adds_up_over_children():
    used = Usage(100, 50, cache_read_tokens=40, reasoning_tokens=10)
    child = Agent("child", binding([say(usage=used)]))
    wish = Reply("", (ToolCall("c", "child", '{"task": "t"}'),), usage=used)
    lead = Agent("lead", binding([wish, say(usage=used)]), tools=[child.as_tool()])
    budget = Budget("1")
    async with CallRuntime() as calls:
        result = await lead.run("go", calls.context(budget=budget))
    for usage in (result.usage, budget.usage):
        assert (usage.input_tokens, usage.output_tokens) == (300, 150)
        assert (usage.cache_read_tokens, usage.reasoning_tokens) == (120, 30)


@pytest.mark.parametrize("slots", [0, -1])
def test_r14_no_slots_is_refused_by_name(slots):
    with pytest.raises(ConfigurationError, match="max_concurrency"):
        Budget(max_concurrency=slots)


async def test_r15_quiet_tenants_take_no_memory():
    clock = ManualClock()
    quota = Quota(max_rpm=10, clock=clock)
    async with CallRuntime(quota=quota) as calls:
        for number in range(300):
            await calls.ask(Binding("scripted:ok"), "hi", ctx=calls.context(scope=Scope(f"t{number}")))
        assert len(quota.keys()) == 300
        clock.advance(quota.window * 2 + 2)
        await calls.ask(Binding("scripted:ok"), "hi", ctx=calls.context(scope=Scope("new")))
    assert quota.keys() == (Scope("new").key(),)


@pytest.mark.parametrize("how", ["left", "cancelled", "failed"])
async def test_r16_a_stream_that_ends_early_is_charged_for_what_arrived(how):
    fault = Fault(Overloaded("cut"), after=3)
    budget = Budget("1.00")
    bound = binding([Reply("one two three four five " * 20, usage=ONE) if how != "failed" else fault])

    async def some(calls):
        async with calls.stream(bound, "hi", budget=budget) as events:
            async for event in events:
                if "one" in str(event) or how == "failed":
                    if how == "left":
                        return
                    if how == "cancelled":
                        asyncio.current_task().cancel()
                        await asyncio.sleep(0)

    async with CallRuntime() as calls:
        (ended,) = await asyncio.gather(asyncio.ensure_future(some(calls)), return_exceptions=True)
    expected = {"left": type(None), "cancelled": asyncio.CancelledError, "failed": Overloaded}
    assert type(ended) is expected[how]
    assert budget.spent() > 0
    assert budget.held() == 0


async def test_r16_what_never_began_is_not_charged():
    with pytest.raises(Overloaded):
        await asked([Fault(Overloaded("no", retryable=False, accepted=False))], budget := Budget("1"))
    assert (budget.spent(), budget.calls, budget.held()) == (0, 0, 0)


async def test_r17_an_answer_from_a_cache_is_free():
    kept = []

    async def cache(call, call_next):
        if kept:
            for event in kept:
                yield event
            return
        async for event in call_next(call):
            if type(event) is ChatEnd:
                kept.append(event)
            yield event

    answers = await asked([say("once")], budget := Budget("0.011"), times=5, chat_middleware=[cache])
    assert [answer.value for answer in answers] == ["once"] * 5
    assert budget.spent() == Decimal("0.01")


async def test_r18_an_actor_is_charged_and_looked_at():
    actor = ActorBudget(max_cost_usd="0.015")
    ctx = make_context(budget=Budget("1"), actor_budget=actor)
    agent = Agent("a", binding([Reply("", (ToolCall("c", "look", "{}"),), usage=ONE)] * 5), tools=[look])
    async with CallRuntime() as calls:
        ctx.services = calls.services
        result = await agent.run("go", ctx)
    assert (result.stop_reason, "cost" in result.reason) == ("budget_exhausted", True)
    assert actor.used_cost() == Decimal("0.02")


def test_r19_ten_tenths_exhaust_an_actors_dollar():
    actor = ActorBudget(max_cost_usd=1.00)
    for _ in range(10):
        actor.charge(Usage(), 0.1)
    assert actor.exhausted_axis() == "cost"
    assert actor.remaining_cost() == 0


async def test_r20_max_calls_admits_exactly_so_many():
    budget = Budget(max_calls=1)
    await asked([say()], budget)
    with pytest.raises(MeterExceeded):
        await asked([say()], budget)
    assert (budget.calls, budget.spent()) == (1, Decimal("0.01"))


class Unpriced:
    """A model of somebody else's, which nobody gave a price."""

    def stream(self, call, /):
        return ScriptedModel([say()]).stream(call)


async def test_r21_what_has_no_price_is_not_zero():
    budget = Budget("1")
    async with CallRuntime(unpriced_policy=UnpricedPolicy.ALLOW) as calls:
        ctx = calls.context(budget=budget)
        await calls.ask(binding([say()]), "hi", ctx=ctx)
        answer = await calls.ask(Binding(Unpriced()), "hi", ctx=ctx)
        again = await calls.ask(binding([say()]), "hi", ctx=ctx)
    assert (answer.cost, answer.cost_complete, again.cost) == (None, False, Decimal("0.01"))
    assert (budget.spent(), budget.cost_complete) == (Decimal("0.02"), False)
    assert budget.spent_usd is None
    assert all(isinstance(row, CostRecord) for row in answer.records)
