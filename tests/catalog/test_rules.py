"""Which rule prices a call: by exact facts, the closer one first, and never by which was written first."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from agentkit.catalog import DEFAULT_PRICES, PriceRow, PriceTable
from agentkit.core.contracts import Rates
from agentkit.errors import ConfigurationError

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def row(amount: int, **more: object) -> PriceRow:
    """Return a rule for one model at so many dollars."""
    return PriceRow(
        provider="acme", model="m-1", rates=Rates(Decimal(amount), Decimal(0), rule=f"rule {amount}"), **more
    )


def found(table: PriceTable, **call: object) -> int | None:
    """Return the dollars of the rule that holds at noon."""
    rates = table.find("acme", "m-1", at=NOON, **call)
    return None if rates is None else int(rates.input)


def test_a_fact_has_to_be_known_and_equal() -> None:
    """A rule for a region prices calls of that region, not those of another or of none; a star is for all."""
    table = PriceTable([row(1, facts={"region": "eu"}), row(2, facts={"region": "us", "biller": "*"})])
    assert found(table, facts={"region": "eu"}) == 1
    assert found(table, facts={"region": "us", "biller": "azure"}) == 2
    assert found(table, facts={"region": "us"}) == 2
    assert found(table, facts={"region": "asia"}) is None
    assert found(table) is None


def test_the_closer_rule_holds_whatever_the_order() -> None:
    """More facts beat fewer, hours beat the whole day, a later day beats an earlier one; own beats shipped."""
    rules = [
        row(1),
        row(2, starts=date(2026, 5, 1)),
        row(3, hours=(time(11), time(13))),
        row(4, facts={"region": "eu"}),
        row(5, facts={"region": "eu", "biller": "azure"}),
        row(6, starts=date(2026, 7, 1)),
        row(7, ends=date(2026, 6, 1), starts=date(2026, 5, 2)),
    ]
    for table in (PriceTable(rules), PriceTable(rules[::-1])):
        assert found(table) == 3
        assert found(table, facts={"region": "eu"}) == 4
        assert found(table, facts={"region": "eu", "biller": "azure"}) == 5
        assert int(table.find("acme", "m-1", at=datetime(2026, 6, 1, 14, tzinfo=UTC)).input) == 2
        assert int(table.find("acme", "m-1", at=datetime(2026, 5, 31, 14, tzinfo=UTC)).input) == 7
    mine = DEFAULT_PRICES.with_rule(
        PriceRow(provider="openai", model="gpt-5.2", rates=Rates(Decimal(9), Decimal(9)), starts=date(2020, 1, 1))
    )
    assert mine.find("openai", "gpt-5.2").input == 9
    assert DEFAULT_PRICES.find("openai", "gpt-5.2").input != 9


@pytest.mark.parametrize(
    "rules",
    [
        [row(1), row(2)],
        [row(1, facts={"region": "eu"}), row(2, facts={"biller": "azure"})],
        [row(1, hours=(time(22), time(2))), row(2, hours=(time(1), time(3)))],
        [row(1, tier="*"), row(2, tier="*")],
        [row(1, starts=date(2026, 1, 1), ends=date(2026, 3, 1)), row(2, starts=date(2026, 1, 1))],
    ],
)
def test_rules_of_which_nothing_says_which_holds_are_refused(rules: list[PriceRow]) -> None:
    """Two rules that can meet on one call are an error when the table is made, and both are named."""
    with pytest.raises(ConfigurationError, match="ambiguous") as caught:
        PriceTable(rules)
    assert "rule 1" in str(caught.value)
    assert "rule 2" in str(caught.value)


def test_rules_that_never_meet_or_are_settled_by_a_third_are_fine() -> None:
    """Other values of a fact, other tiers, days or hours do not meet; a rule for both facts settles a pair."""
    PriceTable([row(1, facts={"region": "eu"}), row(2, facts={"region": "us"})])
    PriceTable([row(1, tier="flex"), row(2, tier="batch"), row(3)])
    PriceTable([row(1, hours=(time(22), time(2))), row(2, hours=(time(2), time(22)))])
    PriceTable([row(1, ends=date(2026, 1, 1)), row(2, starts=date(2026, 1, 1), ends=date(2027, 1, 1))])
    both = row(3, facts={"region": "eu", "biller": "azure"})
    table = PriceTable([row(1, facts={"region": "eu"}), row(2, facts={"biller": "azure"}), both])
    assert found(table, facts={"region": "eu", "biller": "azure"}) == 3


def test_a_rule_replaces_an_own_one_for_the_same_calls() -> None:
    """Adding a rule for the same facts and days changes the price instead of making it ambiguous."""
    assert found(PriceTable([row(1)]).with_rule(row(2))) == 2
    assert found(PriceTable([row(1)]).with_rules([row(2), row(3, facts={"region": "eu"})])) == 2


def test_an_explanation_names_the_rule_the_runner_up_and_the_rest() -> None:
    """Why this price: what holds, what would hold without it, and what is wrong with the others."""
    first = row(1, starts=date(2026, 1, 1))
    table = PriceTable([first, row(2, starts=date(2026, 5, 1)), row(3, tier="flex"), row(4, ends=date(2026, 1, 1))])
    told = table.explain("acme", "m-1", at=NOON)
    assert told.rule is not None
    assert told.runner_up is not None
    assert (told.rule.rates.rule, told.runner_up.rates.rule) == ("rule 2", "rule 1")
    assert {each.rates.rule: why for each, why in told.others} == {
        "rule 3": "it is for tier flex",
        "rule 4": "it ended on 2026-01-01",
    }
    nothing = table.explain("acme", "m-2")
    assert (nothing.rule, nothing.runner_up, nothing.others) == (None, None, ())
