"""A budget's ceilings, verdicts and account."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agentkit.core.contracts import Charge, Scope, Usage
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.metering.account import AccountState
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import ConfigurationError, MeterExceeded


async def spend(budget, make, cost="0.30", **row):
    """Guard and settle one call."""
    call = make.call(cost)
    charge = await budget.guard(call)
    if charge.ok:
        budget.settle(call, make.row(call, cost, **row))
    return charge


async def test_the_ledger_is_decimal_and_the_mirror_float(make):
    """`spent` and `remaining` are Decimal, `*_usd` is float, cents are an int (faults 6, 11)."""
    budget = Budget(1)
    await spend(budget, make, "0.10")
    assert type(budget.spent()) is Decimal and type(budget.remaining()) is Decimal
    assert type(budget.ceiling()) is Decimal
    assert type(budget.spent_usd) is float and type(budget.remaining_usd()) is float
    assert type(budget.spent_cents()) is int
    verdict = budget.verdict()
    assert type(verdict.spent) is Decimal and type(verdict.remaining) is Decimal


async def test_landing_on_the_ceiling_passes_and_the_next_one_does_not(make):
    """Crossing is strictly more; the refusal names money without padding or exponent."""
    budget = Budget("0.60")
    await spend(budget, make)
    await spend(budget, make)
    assert not budget.exhausted()
    assert budget.remaining() == 0
    with pytest.raises(MeterExceeded, match=r"cost up to \$0.9 > \$0.6") as caught:
        await spend(budget, make)
    assert caught.value.axis == "cost"
    assert budget.calls == 2


async def test_a_ceiling_of_zero_admits_what_is_free(make):
    """Zero dollars: a free call goes, a priced one is refused."""
    budget = Budget(0)
    assert (await spend(budget, make, "0")).ok
    with pytest.raises(MeterExceeded):
        await spend(budget, make, "0.000000000001")


async def test_max_calls_admits_exactly_that_many(make):
    """Three of three logical calls go and the fourth is refused; one that was not accepted does not count (fault 20)."""
    budget = Budget(max_calls=3)
    await spend(budget, make, accepted=False)
    for _ in range(3):
        assert (await spend(budget, make)).ok
    with pytest.raises(MeterExceeded) as caught:
        await spend(budget, make)
    assert caught.value.axis == "calls"
    assert await_none(Budget(max_calls=0))


def await_none(budget):
    """Return whether the budget is not exhausted before the first call."""
    return not budget.exhausted()


async def test_stop_returns_a_verdict_instead_of_raising(make):
    """With on_exceeded="stop" guard and charge return a verdict that is not ok, and it raises when asked (fault 7)."""
    budget = Budget("0.50", on_exceeded="stop")
    charge = await budget.charge(None, Usage(1, 1), cost="0.60")
    assert not charge.ok and charge.axis == "cost" and charge.spent == Decimal("0.60")
    assert budget.exhausted()
    refused = await spend(budget, make)
    assert not refused.ok and budget.calls == 1
    with pytest.raises(MeterExceeded, match="cost"):
        refused.raise_if_exceeded()
    assert Charge(True).raise_if_exceeded() == Charge(True)
    assert budget.remaining() == 0 and budget.remaining_usd() == 0.0


async def test_an_exhausted_budget_refuses_without_spending(make):
    """Asking again and again buys nothing more (fault 8)."""
    budget = Budget("0.10", on_exceeded="stop")
    await budget.charge(None, Usage(1, 1), cost="0.20")
    for _ in range(5):
        assert not (await budget.guard()).ok
        assert not (await spend(budget, make)).ok
    assert budget.spent() == Decimal("0.20") and budget.calls == 1 and budget.held() == 0


async def test_assigning_a_ceiling_counts_for_what_comes(make):
    """Raised and lowered limits are read on the next guard; a float with many places is rounded, not refused (fault 9)."""
    budget = Budget("0.10")
    with pytest.raises(MeterExceeded):
        await spend(budget, make)
    budget.max_cost_usd = 10
    budget.max_calls = 1
    await spend(budget, make)
    with pytest.raises(MeterExceeded):
        await spend(budget, make)
    budget.max_calls = None
    budget.max_cost_usd = 0.1 + 0.2 + 1e-17
    assert budget.ceiling() == Decimal("0.3")
    budget.max_cost_usd = None
    assert budget.remaining() is None and budget.remaining_usd() is None


def test_a_shared_ceiling_keeps_its_dollars():
    """Without them its calls would be counted nowhere."""
    budget = Budget("1.00", shared="acme")
    with pytest.raises(ConfigurationError, match="max_cost_usd=None.*acme"):
        budget.max_cost_usd = None
    budget.max_cost_usd = "2.00"
    assert budget.ceiling() == 2


async def test_the_whole_usage_adds_up(make):
    """Every part of the usage is kept, and an unknown part stays unknown (fault 12)."""
    budget = Budget()
    await budget.charge(None, Usage(10, 5, 3, 2, 1, 4), cost=0)
    charge = await budget.charge(None, Usage(1, 1), cost=0)
    assert charge.usage == Usage(11, 6, 3, 2, 1, 4) == budget.usage
    await budget.charge(None, Usage(None, 1), cost=0)
    assert budget.usage.input_tokens is None and budget.usage.output_tokens == 7


async def test_an_unpriced_charge_makes_the_sum_a_lower_bound_for_good(make):
    """Unpriced is not zero: `cost_complete` is False from then on and the mirror is None (fault 21, B60)."""
    budget = Budget("1.00")
    await spend(budget, make, "0.40")
    call = make.call("0.30")
    await budget.guard(call)
    budget.settle(call, make.row(call, None))
    charge = budget.verdict()
    assert not charge.cost_complete and not budget.cost_complete
    assert budget.spent() == Decimal("0.40") and budget.spent_usd is None
    assert budget.remaining() == Decimal("0.30"), "the bound of the unpriceable call stays held"
    await spend(budget, make, "0.10")
    assert not budget.cost_complete


@pytest.mark.parametrize(
    ("changes", "axis"),
    [
        ({"max_input_tokens": 99}, "input tokens"),
        ({"max_output_tokens": 49}, "output tokens"),
        ({"max_total_tokens": 149}, "total tokens"),
    ],
)
async def test_tokens_are_bounded(make, changes, axis):
    """Each token ceiling refuses a bound above it, names its axis and crosses only beyond."""
    with pytest.raises(MeterExceeded) as caught:
        await Budget(**changes).guard(make.call(None, tokens=(100, 50)))
    assert caught.value.axis == axis
    (name, limit), *_ = changes.items()
    exact = Budget(**{name: limit + 1})
    call = make.call(None, tokens=(100, 50))
    assert (await exact.guard(call)).ok
    exact.settle(call, make.row(call, "0", usage=Usage(100, 50)))
    assert not exact.exhausted()
    await exact.charge(None, Usage(0, 0), cost=0)
    exact.on_exceeded = "stop"
    assert not (await exact.charge(None, Usage(1, 1), cost=0)).ok


async def test_duration_counts_from_the_first_call(make, clock):
    """The clock starts with the first guard; later calls than max_duration are refused."""
    budget = Budget(max_duration=10, clock=clock)
    clock.advance(100)
    await spend(budget, make)
    clock.advance(10)
    await spend(budget, make)
    clock.advance(0.5)
    with pytest.raises(MeterExceeded, match=r"duration 10.5 s > 10 s"):
        await spend(budget, make)


async def test_observe_only_records(make):
    """mode="observe" refuses nothing, needs no bounds and still counts everything."""
    budget = Budget("0.10", max_calls=0, mode="observe")
    assert not budget.needs_quotes and Budget("0.10").needs_quotes
    for _ in range(3):
        assert (await spend(budget, make)).ok
    assert budget.spent() == Decimal("0.90") and budget.calls == 3 and not budget.exhausted()


def test_earlier_spend_seeds_the_ledger():
    """`spent_usd`, `calls` and `usage` go on from a saved state; None says that earlier spend is unknown."""
    budget = Budget(1, spent_usd=0.7, calls=3, usage=Usage(5, 5))
    assert (budget.spent(), budget.calls, budget.usage) == (Decimal("0.7"), 3, Usage(5, 5))
    unknown = Budget(1, spent_usd=None)
    assert unknown.spent() == 0 and unknown.spent_usd is None and not unknown.cost_complete


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"max_depth": -1}, "max_depth"),
        ({"max_calls": -1}, "max_calls"),
        ({"max_calls": 1.5}, "max_calls"),
        ({"calls": -1}, "calls"),
        ({"max_input_tokens": -1}, "max_input_tokens"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_total_tokens": -1}, "max_total_tokens"),
        ({"max_width": 0}, "max_width"),
        ({"max_duration": 0}, "max_duration"),
        ({"max_duration": float("nan")}, "max_duration"),
        ({"max_wait": -1}, "max_wait"),
        ({"on_exceeded": "explode"}, "on_exceeded"),
        ({"mode": "off"}, "mode"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_by_name(changes, named):
    """Every bad limit is refused at construction and the error names it (fault 14)."""
    with pytest.raises(ConfigurationError, match=named):
        Budget(**changes)


def test_zero_is_a_legal_limit_of_depth_and_calls():
    """max_depth=0 is the root alone, max_calls=0 no calls."""
    ctx = RunContext("r", Scope("t"), Budget(max_depth=0, max_calls=0))
    with pytest.raises(MeterExceeded) as caught:
        ctx.child()
    assert caught.value.axis == "depth"


async def test_an_account_is_kept_by_run_and_restored_once(make):
    """A checkpoint's account is added unless this budget has already seen that version of it."""
    budget = Budget(5)
    ctx = RunContext("run-a", Scope("t"), budget)
    budget.track("t", "run-a")
    for _ in range(2):
        call = make.call("0.25", ctx=ctx)
        await budget.guard(call)
        budget.settle(call, make.row(call, "0.25"))
    saved = budget.account("t", "run-a")
    assert saved.spent == Decimal("0.50") and saved.calls == 2 and saved.version == 2
    budget.restore("t", "run-a", saved)
    assert budget.spent() == Decimal("0.50"), "seen before"
    other = Budget(5)
    other.restore("t", "run-a", saved)
    other.restore("t", "run-a", saved)
    assert other.spent() == Decimal("0.50") and other.calls == 2 and other.usage == Usage(20, 10)
    newer = AccountState(Decimal("0.75"), 0, 3, Usage(30, 15), 3)
    other.restore("t", "run-a", newer)
    assert other.spent() == Decimal("0.75") and other.calls == 3
    other.forget("t", "run-a")
    assert other.account("t", "run-a") == AccountState() and other.spent() == Decimal("0.75")
