"""List prices by exact name and date."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from agentkit.catalog.snapshot import Rule, Snapshot, load_snapshot
from agentkit.core.contracts import Rates

__all__ = ["DEFAULT_PRICES", "PriceRow", "PriceTable", "family"]

STANDARD_TIERS = frozenset({"default", "standard", "auto", "on_demand"})
_DATED = re.compile(r"(?P<name>.+?)[-@](?P<year>\d{4})-?(?P<month>\d{2})-?(?P<day>\d{2})", re.ASCII)


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a price table: the rates of a model from a day on, for one service tier (None: the standard one).

    `hours` limits it to a part of each day, from and until in UTC, across midnight when it ends before it starts.
    """

    provider: str
    model: str
    rates: Rates
    starts: date | None = None
    tier: str | None = None
    hours: tuple[time, time] | None = None

    def applies(self, moment: datetime, tier: str | None) -> bool:
        """Return whether the rule is in force at the UTC moment for the tier."""
        if self.tier != tier or (self.starts is not None and self.starts > moment.date()):
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        now = moment.time()
        return start <= now < end if start <= end else now >= start or now < end


class PriceTable:
    """Prices by exact (provider, model), dated; a dated model id matches its family only when the date is a real one.

    Without rows it is the shipped snapshot, loaded on first use; rules added to it win over shipped ones, and a rule
    for some hours over one for the whole day. A service tier that has no rule of its own is unpriced, except the
    provider's standard one.
    """

    def __init__(self, rows: Iterable[PriceRow] | None = None) -> None:
        self._own: dict[tuple[str, str], tuple[PriceRow, ...]] = {}
        self._ships = rows is None
        for row in rows or ():
            self._add(row)

    def find(self, provider: str, model: str, *, at: datetime | None = None, tier: str | None = None) -> Rates | None:
        """Return the rates in force at `at` (now when None; UTC without a zone), None when there are none."""
        moment = datetime.now(UTC) if at is None else at if at.tzinfo is None else at.astimezone(UTC)
        wanted = None if tier in STANDARD_TIERS else tier
        name: str | None = model
        while name is not None:
            own = self._own.get((provider, name), ())
            shipped = _shipped(provider, name) if self._ships else ()
            if own or shipped:
                return _in_force(own, moment, wanted) or _in_force(shipped, moment, wanted)
            name = family(name) if name == model else None
        return None

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

    def _add(self, row: PriceRow) -> None:
        key = (row.provider, row.model)
        self._own[key] = (*self._own.get(key, ()), row)


def _in_force(rows: Iterable[PriceRow], moment: datetime, tier: str | None) -> Rates | None:
    best: PriceRow | None = None
    for row in rows:
        if row.applies(moment, tier) and (best is None or _rank(row) >= _rank(best)):
            best = row
    return None if best is None else best.rates


def _rank(row: PriceRow) -> tuple[bool, date]:
    return row.hours is not None, row.starts or date.min


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
    daily = "" if rule.hours is None else f" {rule.hours[0]:%H:%M}-{rule.hours[1]:%H:%M} UTC"
    rates = rule.rates(f"{snapshot.source}: {provider}/{name}{tier}{since}{daily}")
    return PriceRow(provider=provider, model=name, rates=rates, starts=rule.starts, tier=rule.tier, hours=rule.hours)


DEFAULT_PRICES = PriceTable()
