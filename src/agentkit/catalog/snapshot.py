"""The shipped snapshot of prices and windows, as it lies on disk."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from agentkit.catalog.genai import convert_genai_prices, installed_genai_prices, version_of
from agentkit.catalog.rates import with_plain_cache
from agentkit.core.contracts import RateBand, Rates, UnitRate

__all__ = ["Entry", "Rule", "Snapshot", "load_snapshot"]

_FILE = Path(__file__).parent / "data" / "prices.json"


class Band(msgspec.Struct, frozen=True):
    """Rates of the whole request above so many input tokens."""

    above: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class Rule(msgspec.Struct, frozen=True):
    """Rates from a day on, for one service tier, at all hours or some (UTC)."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    bands: tuple[Band, ...] = ()
    starts: date | None = msgspec.field(default=None, name="from")
    units: dict[str, tuple[Decimal, int]] = {}
    tier: str | None = None
    hours: tuple[time, time] | None = None
    facts: dict[str, str] = {}

    def rates(self, label: str) -> Rates:
        """Return the rule as rates; its source prices cached tokens it says nothing of as other input."""
        bands = tuple(
            RateBand(band.above, band.input, band.output, band.cache_read, band.cache_write, band.cache_write_1h)
            for band in self.bands
        )
        units = tuple(UnitRate(unit, price, per) for unit, (price, per) in self.units.items())
        return with_plain_cache(
            Rates(
                self.input,
                self.output,
                self.cache_read,
                self.cache_write,
                self.cache_write_1h,
                bands=bands,
                rule=label,
                units=units,
            )
        )


class Entry(msgspec.Struct, frozen=True):
    """A model's rules, or the name of the model that has the same ones."""

    rules: tuple[Rule, ...] = ()
    context: int | None = None
    same: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that is known of models on the day it was taken."""

    taken: date
    source: str
    models: dict[str, dict[str, Entry]]


@cache
def load_snapshot() -> Snapshot:
    """Return the shipped snapshot, or that of an installed genai-prices which is newer; read once a process."""
    shipped = msgspec.json.decode(_FILE.read_bytes(), type=Snapshot)
    if find_spec("genai_prices") is None:
        return shipped
    installed = installed_genai_prices()
    if installed is None or installed <= version_of(shipped.source):
        return shipped
    return msgspec.convert(convert_genai_prices(), Snapshot)
