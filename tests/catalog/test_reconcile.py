"""Our cost beside what others say a call cost, and one way of counting for all prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.catalog import ReportedCost, assess, cost, divergences, parse_price, reconcile, reported_cost
from agentkit.core.contracts import CostRecord, RateBand, Rates, UnitRate, Usage
from agentkit.core.contracts.messages import JsonObject
from agentkit.errors import MoneyPrecisionError
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.testing.turns import sse

D = Decimal


def record(own: Decimal | None, raw: JsonObject | None = None, **fields: Any) -> CostRecord:
    """Return a settled record of ours."""
    return CostRecord(
        run_id="r",
        path="",
        call_id="c",
        attempt=1,
        purpose="main",
        provider="openrouter",
        model="m",
        outcome="ok",
        usage=Usage(1, 1),
        cost=own,
        raw_usage=raw,
        **fields,
    )


def test_equal_amounts_are_equal_however_they_are_written() -> None:
    """1.00 is 1.0, as text, number or decimal; nothing of the record changes."""
    for told in ("1.0", 1, D("1.000000"), 1.0, ReportedCost(D("1.00"), "usd")):
        found = reconcile(record(D("1.00")), told)
        assert (found.disposition, found.difference, found.reason) == ("equal", D(0), "")


def test_a_divergence_is_exact_and_signed() -> None:
    """What was reported above ours is positive, below it negative, to the last place."""
    over = reconcile(record(D("0.000000000001")), "0.000000000003")
    assert (over.disposition, over.difference) == ("divergent", D("0.000000000002"))
    assert reconcile(record(D("0.3")), 0.1).difference == D("-0.2")


@pytest.mark.parametrize(
    ("own", "reported", "reason"),
    [
        (D(1), None, "no cost was reported"),
        (D(1), ReportedCost(None), "no cost was reported"),
        (D(1), ReportedCost(D(1), "EUR"), "in EUR, ours in USD"),
        (None, ReportedCost(D(1)), "our cost is not known, at least $0.25"),
    ],
)
def test_what_cannot_be_compared_is_unknown(own: Decimal | None, reported: ReportedCost | None, reason: str) -> None:
    """A missing side or another currency is no divergence and no match; the reason is told."""
    found = reconcile(record(own, known_cost=D("0.25")), reported)
    assert (found.disposition, found.difference) == ("unknown", None)
    assert reason in found.reason


@given(st.decimals(0, 1000, places=12), st.decimals(0, 1000, places=12))
def test_the_disposition_is_derived(ours: Decimal, theirs: Decimal) -> None:
    """Equal exactly when the amounts are; ours plus the difference is always theirs."""
    found = reconcile(record(ours), theirs)
    assert found.difference is not None
    assert (found.disposition == "equal") == (ours == theirs)
    assert ours + found.difference == theirs


@pytest.mark.parametrize(
    ("raw", "amount"),
    [
        (None, None),
        ({}, None),
        ({"cost": 0}, "0"),
        ({"cost": 0.00014}, "0.00014"),
        ({"cost": 1.5e-05}, "0.000015"),
        ({"cost": "0.2"}, "0.2"),
        ({"cost": True}, None),
        ({"cost": "much"}, None),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.19}}, "0.2"),
        ({"cost": 0.01, "is_byok": True}, None),
        ({"cost": {"total_cost": 0.006, "currency": "USD"}}, "0.006"),
        ({"cost_in_usd_ticks": 37_756_000}, "0.0037756"),
    ],
)
def test_what_providers_report_of_a_call(raw: JsonObject | None, amount: str | None) -> None:
    """The answer's own cost is read exactly, and nonsense is nothing."""
    found = reported_cost(record(D(0), raw))
    assert (None if found is None else found.amount) == (None if amount is None else D(amount))
    with pytest.raises(MoneyPrecisionError):
        reconcile(record(D(0)), "much")


def test_divergences_are_those_of_reported_costs() -> None:
    """Of many records only those come back that were reported and are not ours."""
    same, other = record(D("0.1"), {"cost": 0.1}), record(D("0.1"), {"cost": 0.2})
    unknown, silent = record(None, {"cost": 0.1}), record(D("0.1"))
    found = divergences([same, other, unknown, silent])
    assert [(each.record, each.disposition) for each in found] == [(other, "divergent"), (unknown, "unknown")]


def test_b53_cache_writes_are_charged_once() -> None:
    """B53: input told without its cached part is counted whole, and every token is on one line only."""
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 12_304,
        "cache_read_input_tokens": 0,
        "output_tokens": 550,
    }
    message: JsonObject = {"id": "m", "content": [], "usage": usage}
    decoder = CODECS["messages"].decoder(Asked())
    decoder.feed(sse({"type": "message_start", "message": message}, "message_start"))
    rates = Rates(D(3), D(15), D("0.30"), D("3.75"))
    bill = assess(rates, decoder.usage())
    assert decoder.usage().input_tokens == 12_307
    assert bill.cost == D("0.054399")
    assert sum(int(line.quantity or 0) for line in bill.lines) == 12_307 + 550
    assert all(line.quantity is not None and line.quantity > 0 for line in bill.lines)


def test_b54_prices_of_any_kind_count_alike() -> None:
    """B54: prices as text, as a mapping and as rules give one answer for one inclusive usage."""
    usage = Usage(1_000, 0, 200, 700)
    assert cost(parse_price("10/20"), usage) == D("0.01")
    given_price = parse_price({"input": 10, "output": 20, "cache_read": 1, "cache_write": "12.5"})
    listed = Rates(D(10), D(20), D(1), D("12.5"))
    assert cost(given_price, usage) == cost(listed, usage) == D("0.001") + D("0.0002") + D("0.00875")


def test_images_are_ordinary_input_where_no_rate_is_named() -> None:
    """Pictures that were read cost what text costs, cached ones too, unless the rule prices them; written ones never."""
    seen = Usage(1_000, 0, 300, units=(("input_image_tokens", 600), ("cache_image_read_tokens", 100)))
    plain = Rates(D(4), D(16), D(1))
    assert cost(plain, seen) == cost(plain, Usage(1_000, 0, 300))
    images = (UnitRate("input_image_tokens", D(40), 1_000_000), UnitRate("cache_image_read_tokens", D(2), 1_000_000))
    apart = Rates(D(4), D(16), D(1), units=images)
    assert cost(apart, seen) == (D(500) * 40 + D(100) * 2 + D(200) * 1 + D(200) * 4) / 1_000_000
    drawn = assess(plain, Usage(10, 500, units=(("output_image_tokens", 400),)))
    assert (drawn.cost, drawn.missing) == (None, ("output_image_tokens",))


@pytest.mark.parametrize(
    ("marginal", "tokens", "expected"),
    [(False, 200_000, "0.4"), (False, 200_001, "0.800004"), (True, 200_001, "0.400004"), (True, 250_000, "0.6")],
)
def test_b59_long_context_rates_are_data(marginal: bool, tokens: int, expected: str) -> None:
    """B59: above the threshold the whole request or only the excess costs more, as the rule says; caches count too."""
    rates = Rates(D(2), D(10), D(2), bands=(RateBand(200_000, D(4), D(20), D(4)),), marginal=marginal)
    assert cost(rates, Usage(tokens, 0)) == cost(rates, Usage(tokens, 0, 150_000)) == D(expected)
