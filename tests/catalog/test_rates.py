"""From rates and usage to dollars: exact, against a reference that uses fractions only."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.catalog import FREE, assess, bound, cost, parse_price
from agentkit.core.contracts import RateBand, Rates, Usage
from agentkit.errors import ConfigurationError

AMOUNTS = st.decimals(min_value=0, max_value=10_000, places=6, allow_nan=False, allow_infinity=False)
OPTIONAL = st.none() | AMOUNTS
TOKENS = st.integers(min_value=0, max_value=5_000_000)
CACHES = (OPTIONAL, OPTIONAL, OPTIONAL)
HOSTILE = decimal.Context(prec=2, rounding=decimal.ROUND_DOWN, Emax=3, Emin=-3, traps=[decimal.Inexact])


@st.composite
def rates(draw: st.DrawFn) -> Rates:
    """Return rates with up to three bands in ascending order."""
    above = sorted(draw(st.sets(st.integers(min_value=0, max_value=1_000_000), max_size=3)))
    bands = tuple(RateBand(start, *(draw(field) for field in (AMOUNTS, AMOUNTS, *CACHES))) for start in above)
    return Rates(*(draw(field) for field in (AMOUNTS, AMOUNTS, *CACHES, AMOUNTS)), bands=bands)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Return a usage whose cached parts lie within its input, some parts unknown."""
    total = draw(TOKENS)
    read = draw(st.none() | st.integers(min_value=0, max_value=total))
    written = draw(st.none() | st.integers(min_value=0, max_value=total - (read or 0)))
    written_1h = draw(st.none() | st.integers(min_value=0, max_value=written or 0))
    return Usage(total, draw(TOKENS), read, written, written_1h)


def reference(rates: Rates, usage: Usage) -> Fraction | None:
    """Return dollars, each token priced in its own bucket, in fractions and without rounding; None when one is not."""
    row: Rates | RateBand = rates
    for band in rates.bands:
        if usage.input_tokens > band.above_input_tokens:
            row = band
    read, written, hour = (
        part or 0 for part in (usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens)
    )
    priced = [
        (usage.input_tokens - read - written, row.input),
        (read, row.cache_read),
        (written - hour, row.cache_write),
        (hour, row.cache_write_1h),
        (usage.output_tokens, row.output),
    ]
    assert sum(tokens for tokens, _ in priced[:4]) == usage.input_tokens
    if any(tokens and rate is None for tokens, rate in priced):
        return None
    total = sum((tokens * Fraction(rate or 0) for tokens, rate in priced), Fraction(0))
    return total / 1_000_000 + Fraction(rates.request)


@given(rates(), usages())
def test_cost_is_the_exact_sum_of_its_buckets(rates: Rates, usage: Usage) -> None:
    """A cost is the exact sum over disjoint buckets, at twelve places, under any decimal context of the host."""
    with decimal.localcontext(HOSTILE):
        priced = cost(rates, usage)
    exact = reference(rates, usage)
    assert (None if priced is None else Fraction(priced)) == exact
    assert priced is None or priced.as_tuple().exponent == -12


@given(rates(), usages(), TOKENS, TOKENS)
def test_bound_is_never_below_a_cost_within_it(rates: Rates, usage: Usage, more_input: int, more_output: int) -> None:
    """What is reserved covers every usage with at most so many tokens, whatever band or cache bucket it falls in."""
    priced = cost(rates, usage)
    with decimal.localcontext(HOSTILE):
        reserved = bound(rates, usage.input_tokens + more_input, usage.output_tokens + more_output)
    with decimal.localcontext(HOSTILE):
        known = assess(rates, usage).known
    assert reserved >= (known if priced is None else priced)


def test_cache_writes_are_charged_once() -> None:
    """The bill of a call whose input is nearly all a cache write counts each token once (B53)."""
    rates = Rates(Decimal(3), Decimal(15), Decimal("0.30"), Decimal("3.75"))
    usage = Usage(3 + 12304, 550, cache_write_tokens=12304)
    assert cost(rates, usage) == Decimal("0.054399")


def test_own_and_list_prices_are_one_function_with_inclusive_input() -> None:
    """A price given by the user prices cached parts out of the inclusive input, as list prices do (B54)."""
    rates = parse_price({"input": 1, "output": 2, "cache_read": "0.1", "cache_write": "1.25"})
    usage = Usage(1000, 0, cache_read_tokens=200, cache_write_tokens=700)
    assert cost(rates, usage) == Decimal("0.000995")


def test_a_band_prices_the_whole_request_just_above_its_start() -> None:
    """200,000 tokens are ordinary and 200,001 are dear, cached parts and output included (B59)."""
    band = RateBand(200_000, Decimal(4), Decimal(8), Decimal("0.4"))
    rates = Rates(Decimal(2), Decimal(4), Decimal("0.2"), bands=(band,))
    assert cost(rates, Usage(200_000, 1)) == Decimal("0.400004")
    assert cost(rates, Usage(200_001, 1)) == Decimal("0.800012")
    assert cost(rates, Usage(250_000, 0)) == Decimal(1)
    assert cost(rates, Usage(200_001, 0, cache_read_tokens=200_000)) == Decimal("0.080004")


def test_of_two_bands_the_higher_one_that_is_passed_counts() -> None:
    """Each band replaces the one below it."""
    bands = (RateBand(10, Decimal(2), Decimal(0)), RateBand(20, Decimal(3), Decimal(0)))
    rates = Rates(Decimal(1), Decimal(0), bands=bands)
    assert [cost(rates, Usage(tokens, 0)) for tokens in (10, 11, 20, 21)] == [
        Decimal("0.00001"),
        Decimal("0.000022"),
        Decimal("0.00004"),
        Decimal("0.000063"),
    ]


def test_zero_is_a_number_and_unknown_is_not() -> None:
    """An explicit zero costs nothing; unknown tokens have no cost at all, even of a free model (B64)."""
    rates = Rates(Decimal(3), Decimal(15))
    assert cost(rates, Usage(0, 0)) == 0
    for unknown in (Usage(None, 5), Usage(5, None), Usage(None, None)):
        assert cost(rates, unknown) is None
        assert cost(FREE, unknown) is None
    assert cost(FREE, Usage(5, 5)) == 0


def test_an_unknown_cache_part_is_ordinary_input() -> None:
    """When nothing is said of the cache, all input is ordinary input."""
    rates = Rates(Decimal(3), Decimal(15), Decimal("0.3"))
    assert cost(rates, Usage(100, 0, None, None, None)) == Decimal("0.0003")


def test_a_fee_per_request_is_added_once() -> None:
    """The request fee is dollars, not dollars per million."""
    rates = Rates(Decimal(1), Decimal(1), request=Decimal("0.01"))
    assert cost(rates, Usage(0, 0)) == Decimal("0.01")
    assert bound(rates, 0, 0) == Decimal("0.01")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1.25/10", (Decimal("1.25"), Decimal(10))),
        (" 0.1 / 0.4 ", (Decimal("0.1"), Decimal("0.4"))),
        ("0/0", (Decimal(0), Decimal(0))),
        ("0", (Decimal(0), Decimal(0))),
        (0, (Decimal(0), Decimal(0))),
        (0.0, (Decimal(0), Decimal(0))),
        ({"input": 0.1, "output": "0.4"}, (Decimal("0.1"), Decimal("0.4"))),
        (Rates(Decimal(7), Decimal(8)), (Decimal(7), Decimal(8))),
    ],
)
def test_prices_as_users_write_them(written: object, expected: tuple[Decimal, Decimal]) -> None:
    """Every documented spelling of a price is read; a float enters by its digits."""
    rates = parse_price(written)
    assert (rates.input, rates.output) == expected


def test_a_mapping_may_name_every_rate() -> None:
    """Cache rates and the fee per request are read from a mapping."""
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "request")
    rates = parse_price({name: index + 1 for index, name in enumerate(names)})
    assert [getattr(rates, name) for name in names] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("5", "INPUT/OUTPUT"),
        (5, "INPUT/OUTPUT"),
        ("", "digits"),
        ("a/b", "digits"),
        ("1/", "digits"),
        ("1/2/3", "digits"),
        ("-1/2", "below zero"),
        (-0.5, "below zero"),
        ("nan/1", "finite"),
        ("inf/1", "finite"),
        (True, "not an amount"),
        (None, "not an amount"),
        ({"input": 1}, "'output'"),
        ({"input": 1, "output": 2, "ouput": 3}, "'ouput'"),
        ({"input": 1, "output": None}, "not an amount"),
    ],
)
def test_a_price_that_is_none_is_refused(written: object, said: str) -> None:
    """What cannot be read is refused with the value and how to write it."""
    with pytest.raises(ConfigurationError) as caught:
        parse_price(written)
    assert said in str(caught.value)
    assert "price=" in str(caught.value)


@pytest.mark.parametrize("dear", ["input", "output", "cache_read", "cache_write", "cache_write_1h"])
@pytest.mark.parametrize("banded", [False, True])
def test_bound_reserves_at_the_dearest_bucket(dear: str, banded: bool) -> None:
    """Whichever single rate is the dearest, of the base or of a band, a call that hits only it is covered exactly."""
    row = {name: Decimal(1) for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h")}
    dearest = {**row, dear: Decimal(9)}
    rates = Rates(**row, bands=(RateBand(0, **dearest),)) if banded else Rates(**dearest)
    usage = {
        "input": Usage(1000, 0),
        "output": Usage(0 if not banded else 1, 1000),
        "cache_read": Usage(1000, 0, cache_read_tokens=1000),
        "cache_write": Usage(1000, 0, cache_write_tokens=1000),
        "cache_write_1h": Usage(1000, 0, cache_write_tokens=1000, cache_write_1h_tokens=1000),
    }[dear]
    assert bound(rates, usage.input_tokens, usage.output_tokens) == cost(rates, usage)
