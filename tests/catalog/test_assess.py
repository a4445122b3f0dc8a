"""A bill line by line: nothing priced twice, nothing unknown priced at all."""

from __future__ import annotations

import decimal
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.catalog import FREE, assess, bill_group, bound, cost, parse_price
from agentkit.core.contracts import PriceStep, RateBand, Rates, UnitRate, Usage

D = Decimal
HOSTILE = decimal.Context(prec=2, rounding=decimal.ROUND_DOWN, Emax=3, Emin=-3, traps=[decimal.Inexact])


def test_the_worked_example_to_the_digit() -> None:
    """1,000 ordinary, 12,000 read, 2,000 written and 500 output tokens: 0.072, or unknown with 0.047 known."""
    usage = Usage(15_000, 500, cache_read_tokens=12_000, cache_write_tokens=2_000)
    whole = assess(Rates(D(10), D(50), D(1), D("12.5")), usage)
    assert whole.cost == whole.known == D("0.072")
    assert [(line.what, line.quantity, line.cost) for line in whole.lines] == [
        ("cache_read_tokens", 12_000, D("0.012")),
        ("cache_write_tokens", 2_000, D("0.025")),
        ("input_tokens", 1_000, D("0.01")),
        ("output_tokens", 500, D("0.025")),
    ]
    without = Rates(D(10), D(50), D(1))
    part = assess(without, usage)
    assert (part.cost, part.known, part.missing) == (None, D("0.047"), ("cache_write_tokens",))
    assert cost(without, usage) is None


def test_cache_writes_split_by_how_long_they_last() -> None:
    """500 for five minutes and 1,500 for an hour are 2,000 written once."""
    rates = Rates(D(10), D(0), D(1), D("12.5"), D(20))
    bill = assess(rates, Usage(2_000, 0, 0, 2_000, 1_500))
    assert bill.cost == D("0.00625") + D("0.03")
    assert cost(Rates(D(10), D(0), D(1), D("12.5")), Usage(2_000, 0, 0, 2_000, 1_500)) is None


def test_a_plain_price_covers_cached_tokens_and_a_partial_one_does_not() -> None:
    """'10/50' prices cached input as input; a table with one cache rate leaves the other unknown."""
    usage = Usage(100, 0, cache_read_tokens=40, cache_write_tokens=60)
    assert cost(parse_price("10/50"), usage) == D("0.001")
    assert cost(parse_price({"input": 10, "output": 50}), usage) == D("0.001")
    assert cost(parse_price({"input": 10, "output": 50, "cache_read": 1}), usage) is None
    assert cost(parse_price(0), Usage(1, 1, units=(("web_searches", 3),))) == 0


def test_marginal_bands_price_only_what_is_above_their_start() -> None:
    """250,000 tokens at 2 up to 200,000 and at 4 above; the cached prefix fills the cheap part first."""
    rates = Rates(D(2), D(4), D(1), bands=(RateBand(200_000, D(4), D(8), D(2)),), marginal=True)
    assert cost(rates, Usage(200_000, 0)) == D("0.4")
    assert cost(rates, Usage(250_000, 10)) == D("0.4") + D("0.2") + D("0.00004")
    assert cost(rates, Usage(250_000, 0, cache_read_tokens=220_000)) == D("0.2") + D("0.04") + D("0.12")


def test_tokens_of_a_modality_leave_the_ordinary_ones() -> None:
    """Audio among the input has its own rate; where some of it was cached and nobody says how much, it is unknown."""
    units = (UnitRate("input_audio_tokens", D(40), 1_000_000), UnitRate("cache_audio_read_tokens", D(2), 1_000_000))
    rates = Rates(D(4), D(16), D(1), units=units)
    spoken = (("input_audio_tokens", 600),)
    assert cost(rates, Usage(1_000, 0, units=spoken)) == D("0.0016") + D("0.024")
    told = (("cache_audio_read_tokens", 100), *spoken)
    assert cost(rates, Usage(1_000, 0, 300, units=told)) == D("0.0002") + D("0.02") + D("0.0002") + D("0.0008")
    unsaid = assess(rates, Usage(1_000, 0, 300, units=spoken))
    assert unsaid.cost is None
    assert unsaid.known == D("0.0004")
    assert cost(Rates(D(4), D(16)), Usage(1_000, 0, units=spoken)) is None
    assert bound(rates, 1_000, 0) == D("0.04")


def test_reasoning_with_a_rate_of_its_own_leaves_the_output() -> None:
    """Reasoning tokens are inside the output and are charged once, at their own rate where there is one."""
    rates = Rates(D(2), D(8), units=(UnitRate("output_reasoning_tokens", D(3), 1_000_000),))
    assert cost(rates, Usage(0, 1_000, reasoning_tokens=400)) == D("0.0048") + D("0.0012")
    assert cost(Rates(D(2), D(8)), Usage(0, 1_000, reasoning_tokens=400)) == D("0.008")


def test_units_beside_tokens_are_priced_or_unknown() -> None:
    """Searches cost what the rule says for each thousand; a unit that no rule prices makes the cost unknown."""
    rates = Rates(D(1), D(2), request=D("0.5"), units=(UnitRate("web_searches", D(10), 1_000),))
    usage = Usage(1_000, 1_000, units=(("web_searches", 3),))
    assert cost(rates, usage) == D("0.5") + D("0.003") + D("0.03")
    other = assess(rates, Usage(1_000, 0, units=(("code_executions", 1),)))
    assert (other.cost, other.known, other.missing) == (None, D("0.501"), ("code_executions",))


def test_a_minimum_holds_for_the_group_not_for_each_call() -> None:
    """Two calls of 20 seconds at a minimum of a minute are one minute, shared; alone each would be a minute."""
    rates = Rates(D(0), D(0), units=(UnitRate("audio_seconds", D("0.36"), 60, D(60), D(15)),), group="speech")
    call = Usage(0, 0, units=(("audio_seconds", 20),))
    assert cost(rates, call) == D("0.36")
    bill = bill_group(rates, [call, call])
    assert (bill.total, bill.shares, bill.unallocated) == (D("0.36"), (D("0.18"), D("0.18")), 0)
    assert bill_group(rates, [call, call, call, call]).total == D("0.54")  # 80 seconds are six steps of 15


def test_adjustments_apply_in_their_order() -> None:
    """A tenth more, then a cent for the request, then up to the next tenth of a cent, then at least two cents."""
    steps = (
        PriceStep("multiply", D("1.1"), "region"),
        PriceStep("add", D("0.01")),
        PriceStep("round_up", D("0.001")),
        PriceStep("minimum", D("0.02")),
    )
    rates = Rates(D(1), D(0), steps=steps)
    assert cost(rates, Usage(1_000, 0)) == D("0.02")
    assert cost(rates, Usage(10_000, 0)) == D("0.021")
    assert cost(rates, Usage(10_001, 0)) == D("0.022")
    assert bound(rates, 10_001, 0) == D("0.022")


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=9), st.integers(1, 100), st.integers(0, 5))
def test_shares_of_a_group_add_up_to_the_total(seconds: list[int], price: int, places: int) -> None:
    """Whatever the thirds: the shares are the total to the last digit, and none is negative but for rounding."""
    rate = UnitRate("audio_seconds", D(price).scaleb(-places), 7, D(30), D(10))
    usages = [Usage(0, 0, units=(("audio_seconds", each),)) if each else Usage(0, 0) for each in seconds]
    with decimal.localcontext(HOSTILE):
        bill = bill_group(Rates(D(0), D(0), units=(rate,)), usages)
    assert bill.total is not None
    with decimal.localcontext(prec=60):
        assert sum(bill.shares) + bill.unallocated == bill.total
        assert all(share >= D("-1e-11") for share in bill.shares)


def test_of_a_free_model_nothing_costs() -> None:
    """Free is zero for tokens that are known, and unknown for those that are not."""
    assert cost(FREE, Usage(10, 10, units=(("web_searches", 1),))) == 0
    assert cost(FREE, Usage(None, 10)) is None


@pytest.mark.parametrize("usage", [Usage(None, 5), Usage(5, None)])
def test_unknown_tokens_leave_a_lower_bound(usage: Usage) -> None:
    """What is known of an unknown usage is its lower bound."""
    bill = assess(Rates(D(2), D(2)), usage)
    assert (bill.cost, bill.known) == (None, D("0.00001"))
