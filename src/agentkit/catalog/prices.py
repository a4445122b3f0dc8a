"""List prices by exact name and date."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from agentkit.catalog.snapshot import Rule, Snapshot, load_snapshot
from agentkit.core.contracts import Rates

__all__ = ["DEFAULT_PRICES", "PriceRow", "PriceTable", "family"]

STANDARD_TIERS = frozenset({"default", "standard", "auto", "on_demand"})
_DATED = re.compile(r"(?P<name>.+?)[-@](?P<year>\d{4})-?(?P<month>\d{2})-?(?P<day>\d{2})", re.ASCII)


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a price table: the rates of a model from a day on, for one service tier (None: the standard one)."""

    provider: str
    model: str
    rates: Rates
    starts: date | None = None
    tier: str | None = None


class PriceTable:
    """Prices by exact (provider, model), dated; a dated model id matches its family only when the date is a real one.

    Without rows it is the shipped snapshot, loaded on first use. A service tier that has no rule of its own is
    unpriced, except the provider's standard one.
    """

    def __init__(self, rows: Iterable[PriceRow] | None = None) -> None:
        self._own: dict[tuple[str, str], tuple[PriceRow, ...]] = {}
        self._ships = rows is None
        for row in rows or ():
            self._add(row)

    def find(self, provider: str, model: str, *, at: datetime | None = None, tier: str | None = None) -> Rates | None:
        """Return the rates in force on the UTC day of `at` (now when None), None when there are none."""
        rows = self._rows(provider, model)
        if not rows and (base := family(model)) is not None:
            rows = self._rows(provider, base)
        if not rows:
            return None
        moment = at or datetime.now(UTC)
        day = (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
        wanted = None if tier in STANDARD_TIERS else tier
        best: PriceRow | None = None
        for row in rows:
            applies = row.tier == wanted and (row.starts is None or row.starts <= day)
            if applies and (best is None or (row.starts or date.min) >= (best.starts or date.min)):
                best = row
        return None if best is None else best.rates

    def names(self, provider: str) -> list[str]:
        """Return every model name this table has of the provider, whatever the day and tier of its rules."""
        names = dict.fromkeys(name for owner, name in self._own if owner == provider)
        if self._ships:
            names |= dict.fromkeys(load_snapshot().models.get(provider, {}))
        return list(names)

    def nearest(self, provider: str, model: str) -> list[str]:
        """Return up to three names of this provider that look like the model's."""
        return get_close_matches(model, self.names(provider), n=3, cutoff=0.5)

    def with_rule(self, row: PriceRow) -> PriceTable:
        """Return a copy with one more rule; a later rule of the same day beats an earlier one."""
        table = PriceTable(None if self._ships else ())
        table._own = dict(self._own)
        table._add(row)
        return table

    def _rows(self, provider: str, model: str) -> tuple[PriceRow, ...]:
        shipped = _shipped(provider, model) if self._ships else ()
        return (*shipped, *self._own.get((provider, model), ()))

    def _add(self, row: PriceRow) -> None:
        key = (row.provider, row.model)
        self._own[key] = (*self._own.get(key, ()), row)


def family(model: str) -> str | None:
    """Return a dated id without its date, None when it ends in none or in no real one."""
    match = _DATED.fullmatch(model)
    if match is None:
        return None
    try:
        date(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError:
        return None
    return match["name"]


@lru_cache(maxsize=1024)
def _shipped(provider: str, model: str) -> tuple[PriceRow, ...]:
    snapshot = load_snapshot()
    models = snapshot.models.get(provider, {})
    entry = models.get(model)
    if entry is None:
        return ()
    source = models[entry.same] if entry.same else entry
    return tuple(_row(provider, model, rule, snapshot) for rule in source.rules)


def _row(provider: str, name: str, rule: Rule, snapshot: Snapshot) -> PriceRow:
    since = f" from {rule.starts}" if rule.starts else ""
    tier = f" {rule.tier}" if rule.tier else ""
    label = f"{snapshot.source}: {provider}/{name}{tier}{since}"
    return PriceRow(provider=provider, model=name, rates=rule.rates(label), starts=rule.starts, tier=rule.tier)


DEFAULT_PRICES = PriceTable()
