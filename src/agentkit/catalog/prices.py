"""List prices by exact name, date and billing facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from agentkit.catalog.rates import scaled
from agentkit.catalog.rules import ANY, STANDARD_TIERS, PriceRow, check_unambiguous, ranked
from agentkit.catalog.snapshot import Rule, Snapshot, load_snapshot
from agentkit.catalog.sound import sound_rule
from agentkit.core.contracts import Rates

__all__ = ["DEFAULT_PRICES", "Explanation", "PriceTable", "family"]

_DATED = re.compile(r"(?P<name>.+?)[-@](?P<year>\d{4})-?(?P<month>\d{2})-?(?P<day>\d{2})", re.ASCII)
_ANY_TIER = (None, "auto")
_EXTRA = {"speed": "standard", "inference_geo": "global"}  # facts of answers that cost extra, unless they are these
_UNASKED = {"speed": "standard"}  # what no account's defaults can make of a call
_SURCHARGES = {"anthropic": (("inference_geo", "us", Decimal("1.1")),)}
_NO_FACTS: Mapping[str, str] = {}


class Explanation(Struct, frozen=True):
    """Why a call costs what it does: the rule that holds, the runner-up, and why each other rule does not apply."""

    rule: PriceRow | None
    runner_up: PriceRow | None
    others: tuple[tuple[PriceRow, str], ...]


class PriceTable:
    """Prices by exact (provider, model), dated; a dated model id matches its family only when the date is a real one.

    Without rows it is the shipped snapshot, loaded on first use. Rules of one's own win over shipped ones; among
    them the one that names more billing facts, then one for some hours, then the latest. A service tier that has no
    rule of its own is unpriced, except the provider's standard one. Raises ConfigurationError for rules of which
    nothing says which holds.
    """

    def __init__(self, rows: Iterable[PriceRow] | None = None) -> None:
        self._own: dict[tuple[str, str], tuple[PriceRow, ...]] = {}
        self._ships = rows is None
        for row in rows or ():
            sound_rule(row)
            key = (row.provider, row.model)
            self._own[key] = (*self._own.get(key, ()), row)
        for same in self._own.values():
            check_unambiguous(same)

    def find(
        self,
        provider: str,
        model: str,
        *,
        at: datetime | None = None,
        tier: str | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> Rates | None:
        """Return the rates in force at `at` (now when None; UTC without a zone), None when there are none."""
        rows = self._rows(provider, model)
        if len(rows) == 1 and not facts and rows[0][1].always and (tier is None or tier in STANDARD_TIERS):
            return rows[0][1].rates
        rule = self.explain(provider, model, at=at, tier=tier, facts=facts, briefly=True).rule
        return None if rule is None else rule.rates

    def explain(
        self,
        provider: str,
        model: str,
        *,
        at: datetime | None = None,
        tier: str | None = None,
        facts: Mapping[str, str] | None = None,
        briefly: bool = False,
    ) -> Explanation:
        """Return the rule that holds, the one that would hold without it, and why the others do not apply.

        `briefly` leaves the others out.
        """
        moment = datetime.now(UTC) if at is None else at if at.tzinfo is None else at.astimezone(UTC)
        wanted = None if tier in STANDARD_TIERS else tier
        known = _NO_FACTS if facts is None else facts
        rows = self._rows(provider, model)
        fitting = [(own, row) for own, row in rows if _unfit(own, row, moment, wanted, known) is None]
        fitting.sort(key=lambda pair: (pair[0], *ranked(pair[1])), reverse=True)
        best = [row for _, row in fitting[:2]]
        others = (
            ()
            if briefly
            else tuple((row, why) for own, row in rows if (why := _unfit(own, row, moment, wanted, known)))
        )
        return Explanation(best[0] if best else None, best[1] if best[1:] else None, others)

    def possible(
        self,
        provider: str,
        model: str,
        *,
        tier: str | None = None,
        facts: Mapping[str, str] | None = None,
        at: datetime | None = None,
    ) -> tuple[Rates, ...]:
        """Return the rates that a call now may turn out to be billed by: what is not known may be as any rule says.

        A tier that is asked for may be served, or the standard one in its place; "auto", or none, may be any.
        """
        rows = self._rows(provider, model)
        if len(rows) == 1:
            return (rows[0][1].rates,)
        moment = datetime.now(UTC) if at is None else at if at.tzinfo is None else at.astimezone(UTC)
        known = {**_UNASKED, **(facts or _NO_FACTS)}
        tiers = None if tier in _ANY_TIER else {None, None if tier in STANDARD_TIERS else tier, ANY}
        return tuple(
            row.rates
            for own, row in rows
            if row.tier != "batch"
            and (tiers is None or row.tier in tiers)
            and _unfit(own, row, moment, row.tier, {**row.facts, **known}) is None
        )

    def rules(self, provider: str, model: str) -> tuple[PriceRow, ...]:
        """Return every rule that this table has for the model, its own first."""
        return tuple(row for _, row in self._rows(provider, model))

    def all_rules(self) -> tuple[PriceRow, ...]:
        """Return every rule of one's own."""
        return tuple(row for rows in self._own.values() for row in rows)

    def providers(self) -> list[str]:
        """Return the providers this table knows prices of."""
        names = dict.fromkeys(owner for owner, _ in self._own)
        if self._ships:
            names |= dict.fromkeys(load_snapshot().models)
        return list(names)

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
        """Return a copy with one more rule; it replaces an own rule for the same facts, days and hours."""
        return self.with_rules([row])

    def with_rules(self, rows: Iterable[PriceRow]) -> PriceTable:
        """Return a copy with these rules; each replaces an own rule for the same facts, days and hours."""
        table = PriceTable(None if self._ships else ())
        table._own = dict(self._own)
        for row in rows:
            sound_rule(row)
            key = (row.provider, row.model)
            kept = tuple(other for other in table._own.get(key, ()) if other.key() != row.key())
            table._own[key] = (*kept, row)
            check_unambiguous(table._own[key])
        return table

    def _rows(self, provider: str, model: str) -> list[tuple[bool, PriceRow]]:
        """Return the rules by the model's own name, else by that of its family; own ones are marked."""
        name: str | None = model
        while name is not None:
            rows = [(True, row) for row in self._own.get((provider, name), ())]
            if self._ships:
                rows += [(False, row) for row in _shipped(provider, name)]
            if rows:
                return rows
            name = family(name) if name == model else None
        return []


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
    rows = tuple(_row(provider, model, rule, snapshot) for rule in source.rules)
    return rows + tuple(_dearer(row, *each) for each in _SURCHARGES.get(provider, ()) for row in rows)


def _row(provider: str, name: str, rule: Rule, snapshot: Snapshot) -> PriceRow:
    since = f" from {rule.starts}" if rule.starts else ""
    tier = f" {rule.tier}" if rule.tier else ""
    facts = "".join(f" {fact}={value}" for fact, value in rule.facts.items())
    daily = "" if rule.hours is None else f" {rule.hours[0]:%H:%M}-{rule.hours[1]:%H:%M} UTC"
    rates = rule.rates(f"{snapshot.source}: {provider}/{name}{tier}{facts}{since}{daily}")
    return PriceRow(
        provider=provider,
        model=name,
        rates=rates,
        starts=rule.starts,
        tier=rule.tier,
        hours=rule.hours,
        facts=rule.facts,
    )


def _dearer(row: PriceRow, fact: str, value: str, factor: Decimal) -> PriceRow:
    """Return the rule for calls of that fact, whose tokens, and nothing else, cost so many times as much."""
    label = f"{row.rates.rule} {fact}={value} x{factor}"
    return replace(row, rates=scaled(row.rates, factor, label), facts={**row.facts, fact: value})


def _unfit(own: bool, row: PriceRow, moment: datetime, tier: str | None, facts: Mapping[str, str]) -> str | None:
    """Return why a rule does not apply: a shipped one is not for what costs extra, unless it says so."""
    why = row.misfit(moment, tier, facts)
    if why is None and not own:
        for name, plain in _EXTRA.items():
            value = facts.get(name, plain)
            if value != plain and name not in row.facts:
                return f"it is for {name} {plain}, the call's is {value}"
    return why


DEFAULT_PRICES = PriceTable()
