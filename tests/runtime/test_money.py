"""Money is exact, whatever decimal context the host has set."""

from __future__ import annotations

import decimal
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import (
    MONEY_SCALE,
    add_money,
    divide_money,
    multiply_money,
    render_money,
    subtract_money,
    to_cents,
    to_money,
)
from agentkit.core.contracts.money import to_nano
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.metering.quota import Quota
from agentkit.errors import ConfigurationError, MoneyPrecisionError

HOSTILE = decimal.Context(
    prec=3, rounding=decimal.ROUND_UP, traps=[decimal.Inexact, decimal.Rounded, decimal.InvalidOperation]
)
amounts = st.decimals(
    min_value=Decimal("-1e20"), max_value=Decimal("1e20"), places=MONEY_SCALE, allow_nan=False, allow_infinity=False
)
small = st.decimals(min_value=0, max_value=1000, places=MONEY_SCALE, allow_nan=False, allow_infinity=False)


def hostile():
    """Return a context with three digits that raises for every rounding."""
    return decimal.localcontext(HOSTILE)


@given(st.lists(amounts, max_size=30))
def test_sums_are_exact_under_a_hostile_context(parts):
    """Adding under three digits and traps gives the sum that integers of the last place give."""
    expected = sum(int(part.scaleb(MONEY_SCALE, context=decimal.Context(prec=80))) for part in parts)
    with hostile():
        total = Decimal(0)
        for part in parts:
            total = add_money(total, to_money(part))
        back = total
        for part in parts:
            back = subtract_money(back, to_money(part))
    assert int(total.scaleb(MONEY_SCALE, context=decimal.Context(prec=80))) == expected
    assert back == 0


@given(amounts)
def test_text_and_back(amount):
    """An amount survives its own spelling, and its rendering has no exponent and no padding."""
    with hostile():
        assert to_money(str(amount), strict=True) == amount
        shown = render_money(to_money(amount))
    assert Decimal(shown) == amount
    assert "E" not in shown.upper()
    assert not ("." in shown and shown.endswith("0"))


@given(small, st.integers(0, 10_000))
def test_products_are_exact_under_a_hostile_context(price, tokens):
    """A price times a count of tokens is the exact product."""
    with hostile():
        product = multiply_money(price, tokens)
    assert product == decimal.Context(prec=80).multiply(price, Decimal(tokens))


@given(small, st.decimals(min_value=Decimal("0.000000000001"), max_value=1, places=12))
def test_dividing_tells_how_often_a_part_fits(amount, part):
    """That many parts fit and one more does not."""
    with hostile():
        fits = divide_money(amount, part)
    wide = decimal.Context(prec=80)
    assert wide.multiply(part, Decimal(fits)) <= amount < wide.multiply(part, Decimal(fits + 1))


@given(st.floats(min_value=0, max_value=1e9, allow_nan=False))
def test_a_float_enters_by_its_spelling(value):
    """0.1 is a tenth: a float means what it prints as, to twelve places."""
    wide = decimal.Context(prec=60)
    expected = Decimal(str(value)).quantize(Decimal("1e-12"), rounding=decimal.ROUND_HALF_UP, context=wide)
    with hostile():
        assert to_money(value) == expected


@given(small)
def test_nano_dollars_round_up(amount):
    """What integers count is never less than the amount, and less than one more."""
    with hostile():
        nano = to_nano(amount)
    wide = decimal.Context(prec=60)
    assert 0 <= wide.subtract(Decimal(nano), wide.multiply(amount, Decimal(10**9))) < 1


def test_a_hundred_cents_are_a_dollar():
    """A hundred charges of 0.01, given as floats, are exactly 1.00 (fault 1)."""
    total = Decimal(0)
    for _ in range(100):
        total = add_money(total, to_money(0.01))
    assert total == Decimal("1.00")


@pytest.mark.parametrize(("amount", "cents"), [("0.004", 0), ("0.005", 1), ("0.0149", 1), ("0.015", 2), ("1", 100)])
def test_cents_are_made_when_read(amount, cents):
    """Cents are rounded half up, once (fault 5)."""
    with hostile():
        assert to_cents(Decimal(amount)) == cents


@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-inf", float("nan"), float("inf"), "", "ten", "1e30", Decimal("1e26"), True, None, [], "0x1"],
)
def test_what_is_no_amount_is_refused(value):
    """Not finite, no number, too large: MoneyPrecisionError, which is also a ValueError (faults 2, 3)."""
    with hostile(), pytest.raises(MoneyPrecisionError) as caught:
        to_money(value)
    assert isinstance(caught.value, ValueError)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("ceiling", [Budget, lambda value: Quota(max_usd=value)])
def test_a_ceiling_with_too_many_places_is_refused_with_the_rounded_one(ceiling):
    """A ceiling is intent: thirteen places are refused, and the error says what to write instead."""
    with pytest.raises(MoneyPrecisionError, match="write '0.123456789012' instead"):
        ceiling("0.1234567890123")
    with pytest.raises(ConfigurationError, match="below zero"):
        ceiling("-1")


async def test_budgets_count_exactly_under_a_hostile_context(make):
    """Guard, settle, cents and remaining work with three digits and traps set by the host."""
    with hostile():
        budget = Budget("1.000000000001", on_exceeded="stop")
        for _ in range(3):
            call = make.call("0.333333333333")
            assert (await budget.guard(call)).ok
            budget.settle(call, make.row(call, "0.333333333333"))
        assert budget.spent() == Decimal("0.999999999999")
        assert budget.remaining() == Decimal("0.000000000002")
        assert budget.spent_cents() == 100
        assert budget.affordable_output(Decimal(0), Decimal("0.000000000001")) == 2
        await budget.charge(None, make.row(make.call()).usage, cost=0.1)
        assert budget.spent() == Decimal("1.099999999999")
        quota = Quota(max_usd="1.000000000001")
        call = make.call("0.333333333333")
        await quota.guard(call)
        quota.settle(call, make.row(call, "0.333333333333"))
        assert quota.spent_in_window(call.ctx.scope.key()) == Decimal("0.333333333333")
