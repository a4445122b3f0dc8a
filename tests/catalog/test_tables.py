"""Price tables in TOML: exact, and wrong ones are refused with the place."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from agentkit.catalog import cost, load_prices
from agentkit.core.contracts import Usage
from agentkit.errors import ConfigurationError

TABLE = """
[[rule]]
provider = "acme"
model = "m-1"
input = 0.1
output = "0.30"
cache_read = "0.01"
cache_write = 0.125
cache_write_1h = "0.2"
request = "0.001"
bands = [{ above = 200000, input = 0.2, output = 0.6, cache_read = 0.02 }]
units = [{ unit = "web_searches", price = "10", per = 1000 }]
adjust = [{ multiply = "1.1", reason = "paid in euros" }]

[[rule]]
provider = "acme"
model = "m-1"
tier = "flex"
from = 2026-10-12
until = 2027-01-01
hours = [16:30:00, 00:30:00]
facts = { region = "eu" }
input = "0.05"
output = "0.15"

[[rule]]
provider = "openai"
model = "gpt-5.2"
input = "7"
output = "7"
"""


def written(tmp_path: Path, text: str) -> Path:
    """Return the file that holds the text."""
    file = tmp_path / "prices.toml"
    file.write_text(text, "utf-8")
    return file


def test_a_table_is_read_exactly_and_wins_over_the_shipped_one(tmp_path: Path) -> None:
    """Numbers are what is written there, not their nearest floats; every field has its effect."""
    table = load_prices(written(tmp_path, TABLE))
    rates = table.find("acme", "m-1")
    assert rates is not None
    assert str(rates.input) == "0.100000000000"
    usage = Usage(1_000_000, 0, 0, units=(("web_searches", 2),))
    assert cost(rates, usage) == Decimal("0.2431")  # (0.2 above 200,000 + 0.001 + 0.02) and a tenth
    night = datetime(2026, 12, 1, 0, 15, tzinfo=UTC)
    flex = table.find("acme", "m-1", at=night, tier="flex", facts={"region": "eu"})
    assert flex is not None
    assert flex.input == flex.cache_read == Decimal("0.05")
    assert "prices.toml" in flex.rule
    assert table.find("acme", "m-1", at=night, tier="flex") is None
    assert table.find("acme", "m-1", at=night.replace(hour=9), tier="flex", facts={"region": "eu"}) is None
    assert table.find("acme", "m-1", at=night.replace(year=2027), tier="flex", facts={"region": "eu"}) is None
    assert table.find("openai", "gpt-5.2").input == 7
    assert table.find("openai", "gpt-5.4").input == Decimal("2.5")
    assert load_prices(written(tmp_path, TABLE), over=None).find("openai", "gpt-5.4") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no rule"),
        ("price = 1", "unknown key 'price'"),
        ("[[rule]]\nmodel = 'm'\ninput = 1\noutput = 1", "rule 1: 'provider' is needed"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1", "rule 1 (a:m): 'output' is needed"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = -1\noutput = 1", "input=-1 is below zero"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = nan\noutput = 1", "not a finite amount"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = true\noutput = 1", "is not an amount"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\ncach_read = 1", "unknown key 'cach_read'"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nfrom = '2026-01-01'", "without quotes"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nhours = [1, 2]", "two times of day"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nfacts = { region = 1 }", "facts.region"),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nadjust = [{}]", "one of multiply"),
        (
            "[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nunits = [{ unit = 'x', price = 1, per = 0 }]",
            "per=0",
        ),
        (
            "[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\nbands = [{ above = 9, input = 1, output = 1 }, { above = 3, input = 1, output = 1 }]",
            "in the order of 'above'",
        ),
        ("[[rule]]\nprovider = 'a'\nmodel = 'm'\ninput = 1\noutput = 1\n" * 2, "ambiguous"),
        ("rule = 1", "holds no rule"),
        ("[[rule", "cannot be read"),
    ],
)
def test_what_is_no_price_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    """The error names the file, the rule and the field."""
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_prices(file)
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(ConfigurationError, match="no-such-file"):
        load_prices(tmp_path / "no-such-file.toml")
