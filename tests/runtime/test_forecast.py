"""What a budget says of how long it will last."""

from __future__ import annotations

import asyncio
import decimal
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkit import Budget
from agentkit.core.runtime import Forecast
from agentkit.testing import ManualClock


async def spend(budget, make, *costs, accepted=True):
    """Reserve and settle a call for each cost."""
    for cost in costs:
        call = make.call("0")
        await budget.reserve(call)
        budget.settle(call, make.row(call, cost, accepted=accepted))


async def test_nothing_is_known_before_the_first_call(make):
    """No ceiling or no call: no number is made up."""
    assert Budget().forecast() == Forecast()
    assert Budget("1.00").forecast() == Forecast(calls_at_least=None)
    budget = Budget()
    await spend(budget, make, "0.10")
    assert budget.forecast().calls is None and budget.forecast().per_call == Decimal("0.10")


async def test_pace_and_bounds(make, clock):
    """Averages, the calls that will likely fit, and the same at the dearest and the cheapest so far."""
    budget = Budget("1.00", clock=clock)
    await spend(budget, make, "0.05", "0.15", "0.10")
    clock.advance(90)
    told = budget.forecast()
    assert (told.per_call, told.per_minute) == (Decimal("0.1"), Decimal("0.2"))
    assert (told.calls, told.calls_at_least, told.calls_at_most) == (7, 4, 14)
    assert (told.seconds, told.axis) == (Decimal(210), "cost")
    await spend(budget, make, "0.10", accepted=False)
    assert budget.forecast().per_call == Decimal("0.133333333333"), "failed attempts belong to the calls they failed"


async def test_the_axis_that_ends_first(make, clock):
    """Calls, tokens and seconds are looked at beside money; where tokens end it, no least is promised."""
    budget = Budget("1.00", 5, max_duration=100, clock=clock)
    await spend(budget, make, "0.10", "0.10")
    clock.advance(60)
    told = budget.forecast()
    assert (told.axis, told.calls, told.calls_at_least, told.calls_at_most) == ("calls", 3, 3, 3)
    assert told.seconds == Decimal(40)
    budget = Budget("1.00", max_output_tokens=20)
    await spend(budget, make, "0.10", "0.10")
    told = budget.forecast()
    assert (told.axis, told.calls, told.calls_at_least) == ("output tokens", 2, 0)


async def test_an_unpriced_part_promises_nothing(make):
    """What is known is a lower bound of the spending, so any number of calls is an upper one."""
    budget = Budget("1.00")
    await spend(budget, make, "0.10", None)
    told = budget.forecast()
    assert told.calls_at_least == 0 and told.calls is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(costs=st.lists(st.integers(0, 400), min_size=1, max_size=30), seconds=st.integers(1, 10_000))
def test_bounds_hold_and_no_host_context_matters(make, costs, seconds):
    """The likely number lies between the bounds, and playing the extremes out meets them exactly."""
    clock = ManualClock()
    budget = Budget("20", clock=clock)
    asyncio.run(spend(budget, make, *(f"{cost}e-3" for cost in costs)))
    clock.advance(seconds)
    with decimal.localcontext(decimal.Context(prec=2)):
        told = budget.forecast()
    if not any(costs):
        assert told.calls is told.seconds is None
        return
    left, dearest = budget.remaining(), Decimal(max(costs)) / 1000
    assert told.calls_at_least == left // dearest <= told.calls
    if min(costs):
        assert told.calls <= told.calls_at_most == left // (Decimal(min(costs)) / 1000)
