"""Soft limits of one actor, and shares of them for children."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import Usage
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.errors import ConfigurationError, MeterExceeded, MoneyPrecisionError


def test_ten_tenths_exhaust_a_dollar():
    """$1.00 with ten float charges of 0.10 is exhausted exactly (fault 19)."""
    actor = ActorBudget(max_cost_usd=1.0)
    for _ in range(10):
        assert not actor.exhausted()
        actor.charge(Usage(1, 1), 0.1)
    assert actor.exhausted_axis() == "cost"
    assert actor.remaining_cost() == 0 and type(actor.used_cost()) is Decimal


@pytest.mark.parametrize(
    ("limits", "axis"),
    [({"max_tokens": 4}, "tokens"), ({"max_cost_usd": "0.02"}, "cost"), ({"max_steps": 2}, "steps")],
)
def test_each_axis_ends_it_and_a_charge_never_raises(limits, axis):
    """Tokens, dollars and steps each exhaust it at the limit; going on charging raises nothing (fault 18)."""
    actor = ActorBudget(**limits)
    actor.charge(Usage(1, 1), "0.01")
    assert not actor.exhausted()
    actor.charge(Usage(1, 1), "0.01")
    assert actor.exhausted_axis() == axis and not actor.can_spawn_child()
    actor.charge(Usage(100, None), None)
    assert not actor.cost_complete and actor.used_tokens == 104 and actor.used_steps == 3
    with pytest.raises(MeterExceeded) as caught:
        actor.reserve_for_child()
    assert caught.value.axis == axis


def test_seconds_count_from_construction(clock):
    """The wall axis is rooted where the budget was made, and a child's where it was reserved."""
    actor = ActorBudget(max_wall_seconds=10, clock=clock)
    clock.advance(4)
    child = actor.reserve_for_child()
    assert child.max_wall_seconds == 6 and actor.remaining_wall_seconds() == 6
    clock.advance(6)
    assert actor.exhausted_axis() == child.exhausted_axis() == "wall"
    seconds = [0.0]
    assert ActorBudget(max_wall_seconds=1, clock=lambda: seconds[0]).remaining_wall_seconds() == 1


money = st.decimals(min_value=Decimal("0.01"), max_value=100, places=12)


@given(money, st.integers(1, 10_000), st.integers(1, 1000), st.integers(1, 50), st.data())
def test_equal_shares_are_exact_and_come_back(dollars, tokens, steps, children, data):
    """Shares are equal, sum to at most the whole, and settling books what was used, at most the share (fault 27)."""
    actor = ActorBudget(tokens, dollars, steps)
    if tokens < children or steps < children:
        assert not actor.can_spawn_child(children)
        with pytest.raises(MeterExceeded) as caught:
            actor.reserve_equally(children)
        assert caught.value.axis == ("tokens" if tokens < children else "steps")
        assert actor.remaining_cost() == dollars and actor.remaining_tokens() == tokens
        return
    shares = actor.reserve_equally(children)
    assert len({share.max_cost() for share in shares}) == 1
    assert actor.reserved_cost() == sum(share.max_cost() for share in shares) <= dollars
    assert dollars - actor.reserved_cost() < Decimal("1e-12") * children
    used = Decimal(0)
    for share in shares:
        part = data.draw(st.decimals(0, 10, places=12))
        share.charge(Usage(1, 0), part)
        used += min(part, share.max_cost())
        actor.settle_child(share)
        actor.settle_child(share)
    assert actor.reserved_cost() == 0 and actor.used_cost() == used
    assert actor.used_tokens == children and actor.used_steps == children


def test_a_share_too_large_is_refused_by_axis():
    """More than is left is refused with the axis, whatever spelling the money has (fault 28)."""
    actor = ActorBudget(max_tokens=100, max_cost_usd=1)
    actor.reserve_for_child(max_tokens=60, max_cost_usd=0.4)
    with pytest.raises(MeterExceeded, match="wants 50 of the actor's tokens, 40 is left") as caught:
        actor.reserve_for_child(max_tokens=50, max_cost_usd="0.1")
    assert caught.value.axis == "tokens"
    with pytest.raises(MeterExceeded, match=r"wants 0.7 of the actor's cost, 0.6 is left"):
        actor.reserve_for_child(max_tokens=1, max_cost_usd=0.7)
    rest = actor.reserve_for_child()
    assert rest.max_tokens == 40 and rest.max_cost() == Decimal("0.6")
    assert actor.exhausted_axis() == "tokens"


def test_an_unlimited_axis_takes_what_the_child_used():
    """Without a limit of the parent's nothing is reserved, and the child's use is booked as it was."""
    actor = ActorBudget()
    child = actor.reserve_for_child(max_steps=2)
    for _ in range(3):
        child.charge(Usage(5, 5), "0.5")
    assert child.exhausted_axis() == "steps"
    actor.settle_child(child)
    assert actor.used_cost() == Decimal("1.5") and actor.used_tokens == 30 and actor.used_steps == 3
    assert actor.remaining_tokens() is None and actor.remaining_steps() is None
    assert actor.remaining_wall_seconds() is None and actor.remaining_cost_usd() is None


def test_tighten_only_lowers_and_never_below_what_is_used(clock):
    """A limit goes down, never up, and never under used plus reserved."""
    actor = ActorBudget(100, 1, 10, 60, clock)
    actor.charge(Usage(20, 10), "0.30", steps=2)
    actor.reserve_for_child(max_tokens=10, max_cost_usd="0.10", max_steps=1)
    actor.tighten(max_tokens=1000, max_cost_usd=9, max_steps=99, max_wall_seconds=99)
    assert (actor.max_tokens, actor.max_cost(), actor.max_steps, actor.max_wall_seconds) == (100, 1, 10, 60)
    clock.advance(5)
    actor.tighten(max_tokens=1, max_cost_usd=0.01, max_steps=1, max_wall_seconds=1)
    assert (actor.max_tokens, actor.max_cost(), actor.max_steps) == (40, Decimal("0.40"), 3)
    assert actor.max_wall_seconds == 5
    open_ended = ActorBudget()
    open_ended.tighten(max_cost_usd="0.5")
    assert open_ended.max_cost() == Decimal("0.5") and open_ended.remaining_cost_usd() == 0.5


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_steps": 0.5}, "max_steps"),
        ({"max_wall_seconds": -1}, "max_wall_seconds"),
        ({"max_cost_usd": -1}, "max_cost_usd"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_by_name(limits, named):
    """Bad limits are refused at construction."""
    with pytest.raises(ConfigurationError, match=named):
        ActorBudget(**limits)
    with pytest.raises(MoneyPrecisionError):
        ActorBudget(max_cost_usd="0.1234567890123")
