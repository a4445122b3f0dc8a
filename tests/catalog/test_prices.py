"""Finding a price by exact name, real date and service tier, and the shipped snapshot."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import catalog
from agentkit.catalog import DEFAULT_PRICES, PriceRow, PriceTable, bound, cost, family
from agentkit.catalog.snapshot import load_snapshot
from agentkit.core.contracts import Rates, Usage

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(catalog.__file__).parent / "data/prices.json"


def row(model: str, price: int, *, starts: date | None = None, tier: str | None = None) -> PriceRow:
    """Return a rule with one price for input and output."""
    return PriceRow(provider="p", model=model, rates=Rates(Decimal(price), Decimal(price)), starts=starts, tier=tier)


def price(table: PriceTable, model: str, **when: object) -> int | None:
    """Return the whole input price found, None when there is none."""
    rates = table.find("p", model, **when)
    return None if rates is None else int(rates.input)


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("gpt-5.5-2026-04-23", "gpt-5.5"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("m-2024-02-29", "m"),
        ("m-2023-02-29", None),
        ("m-20251301", None),
        ("m-20250132", None),
        ("m-00000101", None),
        ("m-202510", None),
        ("m-2025100111", None),
        ("gpt-4-0613", None),
        ("m20251001", None),
        ("m-20251001-preview", None),
        ("m-２０２５１００１", None),
        ("-20251001", None),
        ("", None),
    ],
)
def test_only_a_real_date_is_taken_off(model: str, base: str | None) -> None:
    """A dated id belongs to its family only when what it ends in is a day of the calendar (B56)."""
    assert family(model) == base


@given(st.dates(min_value=date(1000, 1, 1)), st.sampled_from(["%Y%m%d", "%Y-%m-%d"]), st.sampled_from("-@"))
def test_every_real_date_is_found_under_its_family(day: date, shape: str, mark: str) -> None:
    """Whatever the day, the dated id has the price of the family and its neighbours have none."""
    table = PriceTable([row("m", 5)])
    assert price(table, f"m{mark}{day.strftime(shape)}") == 5
    assert price(table, f"mm{mark}{day.strftime(shape)}") is None


def test_names_are_exact() -> None:
    """A name that contains, starts or ends another one, or differs in case, is unpriced."""
    table = PriceTable([row("gpt-5", 5)])
    assert price(table, "gpt-5") == 5
    for other in ("gpt-5-mini", "gpt-5o", "xgpt-5", "gpt", "GPT-5", "gpt-5 ", "", "gpt-5-latest"):
        assert price(table, other) is None
    assert table.find("q", "gpt-5") is None


def test_a_dated_rule_beats_its_family() -> None:
    """An exact name wins over the family it would fall back to."""
    table = PriceTable([row("m", 5), row("m-20251001", 6)])
    assert price(table, "m-20251001") == 6
    assert price(table, "m-20251002") == 5


def test_the_rule_in_force_on_the_day_counts() -> None:
    """Rules form a history, whatever order they are given in; before its first day a model is unpriced."""
    table = PriceTable(
        [
            row("m", 3, starts=date(2026, 3, 1)),
            row("m", 1, starts=date(2025, 1, 1)),
            row("m", 2, starts=date(2026, 1, 1)),
        ]
    )
    days = {"2024-12-31": None, "2025-01-01": 1, "2025-12-31": 1, "2026-01-01": 2, "2026-02-28": 2, "2026-03-01": 3}
    for day, expected in days.items():
        assert price(table, "m", at=datetime.fromisoformat(f"{day}T12:00:00+00:00")) == expected
    assert price(table, "m") == 3


def test_days_are_counted_in_utc() -> None:
    """A moment that is already the next day elsewhere is priced by its day in UTC."""
    table = PriceTable([row("m", 1), row("m", 2, starts=date(2026, 1, 1))])
    tokyo = timezone(timedelta(hours=9))
    assert price(table, "m", at=datetime(2026, 1, 1, 8, 59, tzinfo=tokyo)) == 1
    assert price(table, "m", at=datetime(2026, 1, 1, 9, 0, tzinfo=tokyo)) == 2


def test_tiers_have_rules_of_their_own() -> None:
    """A tier without a rule is unpriced, never standard; every word for standard is standard (B58)."""
    table = PriceTable([row("m", 4), row("m", 2, tier="flex"), row("m", 8, tier="priority"), row("f", 1, tier="flex")])
    for standard in (None, "default", "standard", "auto", "on_demand"):
        assert price(table, "m", tier=standard) == 4
    assert price(table, "m", tier="flex") == 2
    assert price(table, "m", tier="priority") == 8
    assert price(table, "m", tier="batch") is None
    assert price(table, "m", tier="") is None
    assert price(table, "f") is None
    assert price(table, "m-20260101", tier="flex") == 2


def test_a_rule_added_later_wins_and_the_table_stays_as_it_was() -> None:
    """`with_rule` makes a changed copy, over the shipped rows too; nothing else changes."""
    table = PriceTable([row("m", 1)])
    assert price(table.with_rule(row("m", 2)), "m") == 2
    assert price(table, "m") == 1
    own = PriceRow(provider="openai", model="gpt-4o", rates=Rates(Decimal("0.5"), Decimal("0.5")))
    changed = DEFAULT_PRICES.with_rule(own)
    assert changed.find("openai", "gpt-4o") == own.rates
    assert changed.find("openai", "gpt-4o-mini") == DEFAULT_PRICES.find("openai", "gpt-4o-mini")
    assert DEFAULT_PRICES.find("openai", "gpt-4o") != own.rates


def test_a_rule_of_ones_own_wins_over_a_dated_one_that_is_shipped() -> None:
    """Who gives a price without a day means it, also for a model whose shipped history has a later day."""
    own = PriceRow(provider="openai", model="o3", rates=Rates(Decimal(7), Decimal(7)))
    assert any(rule.starts for rule in load_snapshot().models["openai"]["o3"].rules if rule.tier is None)
    assert DEFAULT_PRICES.with_rule(own).find("openai", "o3") == own.rates
    shipped = DEFAULT_PRICES.find("openai", "o3", tier="flex")
    assert shipped is not None
    assert DEFAULT_PRICES.with_rule(own).find("openai", "o3", tier="flex") == shipped
    later = PriceRow(provider="openai", model="o3", rates=own.rates, starts=date(2999, 1, 1))
    assert DEFAULT_PRICES.with_rule(later).find("openai", "o3") == DEFAULT_PRICES.find("openai", "o3")


def test_some_hours_of_the_day_may_have_a_price_of_their_own() -> None:
    """Hours are UTC, from inclusive, until exclusive, and may cross midnight; they win over any day's price."""
    peak, night = Rates(Decimal(4), Decimal(4)), Rates(Decimal(2), Decimal(2))
    table = PriceTable(
        [
            PriceRow(provider="p", model="m", rates=peak, hours=(time(1), time(4))),
            PriceRow(provider="p", model="m", rates=night, hours=(time(22), time(0, 30))),
            row("m", 3, starts=date(2026, 1, 1)),
        ]
    )
    expected = {"00:29": 2, "00:30": 3, "00:59": 3, "01:00": 4, "03:59": 4, "04:00": 3, "21:59": 3, "22:00": 2}
    for moment, amount in expected.items():
        assert price(table, "m", at=datetime.fromisoformat(f"2026-02-01T{moment}:00+00:00")) == amount
    tokyo = timezone(timedelta(hours=9))
    assert price(table, "m", at=datetime(2026, 2, 1, 10, 0, tzinfo=tokyo)) == 4
    assert price(table, "m", at=datetime(2026, 2, 1, 10, 0)) == 3


def test_dear_hours_are_in_the_snapshot() -> None:
    """A model that costs twice as much at peak hours is not priced at its cheap ones then."""
    cheap = DEFAULT_PRICES.find("deepseek", "deepseek-flash", at=datetime(2026, 11, 1, 5, tzinfo=UTC))
    dear = DEFAULT_PRICES.find("deepseek", "deepseek-flash", at=datetime(2026, 11, 1, 3, 59, tzinfo=UTC))
    assert cheap is not None
    assert dear is not None
    assert dear.input == 2 * cheap.input
    assert dear.rule.endswith("01:00-04:00 UTC")


def test_a_table_of_rows_ships_nothing() -> None:
    """Given rows, even none, the shipped snapshot is not looked at, also not for the nearest names."""
    assert PriceTable([]).find("openai", "gpt-4o") is None
    assert PriceTable([]).nearest("openai", "gpt-4o") == []
    assert PriceTable([row("alpha", 1), row("alphb", 1)]).nearest("p", "alphc") == ["alphb", "alpha"]
    assert PriceTable([row("alpha", 1)]).nearest("q", "alpha") == []


@pytest.mark.parametrize(
    ("provider", "wrong", "right"),
    [
        ("openai", "gpt-4o-minni", "gpt-4o-mini"),
        ("openai", "gtp-5.2", "gpt-5.2"),
        ("anthropic", "claude-sonet-4-6", "claude-sonnet-4-6"),
    ],
)
def test_a_misspelt_model_has_its_name_among_the_nearest(provider: str, wrong: str, right: str) -> None:
    """At most three names of that provider are suggested, with the one that was meant."""
    nearest = DEFAULT_PRICES.nearest(provider, wrong)
    assert right in nearest
    assert len(nearest) <= 3
    assert DEFAULT_PRICES.nearest(provider, "qqqqqqqqqqqqqq") == []


def test_the_snapshot_is_whole() -> None:
    """Every row has prices that are numbers, every alias leads to a model with rules, bands ascend."""
    snapshot = load_snapshot()
    assert {"openai", "anthropic", "gemini"} <= set(snapshot.models)
    for provider, models in snapshot.models.items():
        for name, entry in models.items():
            assert bool(entry.rules) != bool(entry.same), f"{provider}/{name} has rules or is an alias"
            assert not entry.same or models[entry.same].rules, f"{provider}/{name} leads nowhere"
            assert entry.context is None or entry.context > 0
            for rule in entry.rules:
                rates = rule.rates("label")
                parts = [rates.input, rates.output, rates.cache_read, rates.cache_write, rates.cache_write_1h]
                assert all(part is None or (part >= 0 and part.as_tuple().exponent >= -18) for part in parts)
                above = [band.above_input_tokens for band in rates.bands]
                assert above == sorted(set(above))
                usage = Usage(1_000_000, 1_000_000, cache_read_tokens=1000, cache_write_tokens=1000)
                assert cost(rates, usage) <= bound(rates, 1_000_000, 1_000_000)


def test_every_shipped_model_without_a_history_is_priced_today() -> None:
    """Every name in the snapshot that has a standard rule in force is found, and its rule says where it comes from."""
    snapshot = load_snapshot()
    today = datetime.now(UTC)
    for provider, models in snapshot.models.items():
        for name, entry in models.items():
            rules = (models[entry.same] if entry.same else entry).rules
            expected = any(rule.tier is None and (rule.starts or date.min) <= today.date() for rule in rules)
            rates = DEFAULT_PRICES.find(provider, name, at=today)
            assert (rates is not None) is expected
            if rates is not None:
                assert rates.rule.startswith(f"genai-prices {snapshot.source.split()[1]}: {provider}/{name}")


def test_known_prices_are_what_the_vendors_list() -> None:
    """Prices that have been stable for long, cache buckets and tiers included, are the published ones."""
    haiku = DEFAULT_PRICES.find("anthropic", "claude-haiku-4-5-20251001")
    assert haiku is not None
    assert (haiku.input, haiku.output, haiku.cache_read, haiku.cache_write) == (1, 5, Decimal("0.1"), Decimal("1.25"))
    gpt = DEFAULT_PRICES.find("openai", "gpt-4o", at=datetime(2026, 1, 1, tzinfo=UTC))
    assert gpt is not None
    assert (gpt.input, gpt.output, gpt.cache_read) == (Decimal("2.5"), 10, Decimal("1.25"))
    batch = DEFAULT_PRICES.find("openai", "gpt-4o", tier="batch")
    assert batch is not None
    assert batch.input * 2 == gpt.input
    assert DEFAULT_PRICES.find("openai", "gpt-4o", tier="no-such-tier") is None


def test_loading_is_quick_and_lazy() -> None:
    """Importing the room reads no file; reading the snapshot takes under 100 ms of CPU in a fresh process."""
    code = (
        "import time, json; from agentkit.catalog import DEFAULT_PRICES; from agentkit.catalog.snapshot import load_snapshot\n"
        "lazy = load_snapshot.cache_info().currsize == 0; start = time.process_time()\n"
        "found = DEFAULT_PRICES.find('openai', 'gpt-4o') is not None\n"
        "print(json.dumps([lazy, found, time.process_time() - start]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lazy, found, seconds = json.loads(done.stdout)
    assert lazy
    assert found
    assert seconds < 0.1


def test_the_script_reproduces_the_shipped_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on the release it names, the script writes the models that are shipped."""
    pytest.importorskip("genai_prices")
    taken_from = load_snapshot().source
    if taken_from != f"genai-prices {importlib.metadata.version('genai-prices')}":
        pytest.skip(f"the snapshot was taken from {taken_from}")
    spec = importlib.util.spec_from_file_location("make_prices", ROOT / "scripts/make_prices.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "TARGET", tmp_path / "prices.json")
    script.main()
    written = json.loads((tmp_path / "prices.json").read_text())
    assert written["models"] == json.loads(SNAPSHOT.read_text())["models"]
