"""Usage adds up, token by token and unit by unit, whatever the host's decimal context is."""

from __future__ import annotations

import decimal
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import Usage, decode_data, encode_data, total_usage

HOSTILE = decimal.Context(prec=2, Emax=3, Emin=-3, traps=[decimal.Inexact])
AMOUNT = st.integers(1, 10**9) | st.decimals(min_value="0.001", max_value=10**6, places=3)
UNITS = st.dictionaries(st.sampled_from(["images", "seconds", "web_search_requests"]), AMOUNT).map(
    lambda found: tuple(sorted(found.items()))
)
USAGE = st.builds(Usage, st.integers(0, 10**9), st.integers(0, 10**9), units=UNITS)


@given(st.lists(USAGE, min_size=1, max_size=5))
def test_units_add_up_exactly_and_come_off_again(parts: list[Usage]) -> None:
    """The sum holds each unit once, the same by pairs or at once; taking all parts off leaves no unit."""
    with decimal.localcontext(HOSTILE):
        total = total_usage(parts[0], parts[1:])
        one_by_one = parts[0]
        for part in parts[1:]:
            one_by_one = one_by_one + part
        left = total
        for part in parts:
            left = left.minus(part)
    assert one_by_one == total
    wanted: dict[str, Decimal] = {}
    with decimal.localcontext(prec=50):
        for part in parts:
            for name, amount in part.units:
                wanted[name] = wanted.get(name, Decimal(0)) + amount
    assert dict(total.units) == wanted
    assert [name for name, _ in total.units] == sorted(wanted)
    assert left.units == ()


@given(USAGE)
def test_usage_survives_a_store(usage: Usage) -> None:
    """What is stored is what comes back, decimals too."""
    assert decode_data(encode_data("usage", usage), "usage", Usage) == usage
