"""The shipped snapshot of prices and windows, as it lies on disk."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from functools import cache
from pathlib import Path

import msgspec

from agentkit.core.contracts import ZERO, RateBand, Rates

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
    tier: str | None = None
    hours: tuple[time, time] | None = None

    def rates(self, label: str) -> Rates:
        """Return the rule as rates."""
        bands = tuple(
            RateBand(band.above, band.input, band.output, band.cache_read, band.cache_write, band.cache_write_1h)
            for band in self.bands
        )
        return Rates(
            self.input, self.output, self.cache_read, self.cache_write, self.cache_write_1h, ZERO, bands, label
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
    """Return the shipped snapshot, read once a process."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Snapshot)
