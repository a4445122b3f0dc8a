"""One price rule: what it is for, when it holds, and which of two that fit is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from itertools import combinations

from msgspec import Struct

from agentkit.core.contracts import Rates
from agentkit.errors import ConfigurationError

__all__ = ["ANY", "STANDARD_TIERS", "PriceRow", "check_unambiguous", "ranked"]

ANY = "*"
STANDARD_TIERS = frozenset({"default", "standard", "auto", "on_demand"})


class PriceRow(Struct, frozen=True, kw_only=True):
    """One rule of a price table: the rates of a model from a day on, for one service tier (None: the standard one).

    It holds from `starts` until before `ends`, and at some `hours` of each day: from and until in UTC, across midnight
    when they end before they start. `facts` are what the call has to be besides, such as {"region": "eu", "biller":
    "azure"}: each has to be known of the call and equal, unless it is "*". A tier of "*" is for every tier.
    """

    provider: str
    model: str
    rates: Rates
    starts: date | None = None
    ends: date | None = None
    tier: str | None = None
    hours: tuple[time, time] | None = None
    facts: Mapping[str, str] = {}

    @property
    def always(self) -> bool:
        """Return whether the rule holds for the standard tier at any time, whatever the facts."""
        return not (self.facts or self.starts or self.ends or self.hours or self.tier)

    def misfit(self, moment: datetime, tier: str | None, facts: Mapping[str, str]) -> str | None:
        """Return why the rule does not apply to a call at the UTC moment, None when it does."""
        if self.tier not in (ANY, tier):
            return f"it is for tier {self.tier or 'standard'}"
        if self.starts is not None and moment.date() < self.starts:
            return f"it holds from {self.starts}"
        if self.ends is not None and moment.date() >= self.ends:
            return f"it ended on {self.ends}"
        for name, value in self.facts.items():
            if value not in (ANY, facts.get(name)):
                return f"it is for {name} {value}, the call's is {facts.get(name, 'unknown')}"
        return None if self.hours is None or _inside(self.hours, moment.time()) else "it is for other hours"

    def applies(self, moment: datetime, tier: str | None, facts: Mapping[str, str] | None = None) -> bool:
        """Return whether the rule is in force at the UTC moment for the tier and the facts."""
        return self.misfit(moment, tier, facts or {}) is None

    def key(self) -> tuple[object, ...]:
        """Return what two rules have in common that are for the same calls."""
        return self.starts, self.ends, self.tier, self.hours, tuple(sorted(self._bound().items()))

    def _bound(self) -> dict[str, str]:
        return {name: value for name, value in self.facts.items() if value != ANY}


def ranked(row: PriceRow) -> tuple[int, bool, bool, date]:
    """Return how closely a rule describes its calls: more facts, then a tier, then hours, then the later day."""
    return len(row._bound()), row.tier != ANY, row.hours is not None, row.starts or date.min


def check_unambiguous(rows: Sequence[PriceRow]) -> None:
    """Raise ConfigurationError when two rules of a model can apply to one call and neither is the closer one."""
    for one, other in combinations(rows, 2):
        if ranked(one) == ranked(other) and _meet(one, other) and not _settled(rows, one, other):
            names = " and ".join(_named(row) for row in (one, other))
            raise ConfigurationError(
                f"Prices of {one.provider}:{one.model} are ambiguous: the rules {names} can apply to the same call. "
                "Give one of them another fact, day or hour, or add a rule for both."
            )


def _meet(one: PriceRow, other: PriceRow) -> bool:
    mine, theirs = one._bound(), other._bound()
    if any(theirs.get(name, value) != value for name, value in mine.items()):
        return False
    if ANY not in (one.tier, other.tier) and one.tier != other.tier:
        return False
    for first, second in ((one, other), (other, one)):
        if first.ends is not None and first.ends <= (second.starts or date.min):
            return False
    return one.hours is None or other.hours is None or _overlap(one.hours, other.hours)


def _settled(rows: Sequence[PriceRow], one: PriceRow, other: PriceRow) -> bool:
    """Return whether a closer rule holds wherever both of these do."""
    both = {**one._bound(), **other._bound()}
    if both in (one._bound(), other._bound()):
        return False
    return any(
        row._bound() == both
        and row.tier in (ANY, one.tier, other.tier)
        and (row.starts or date.min) <= max(one.starts or date.min, other.starts or date.min)
        and row.ends is None
        and row.hours is None
        for row in rows
    )


def _named(row: PriceRow) -> str:
    facts = " ".join(f"{name}={value}" for name, value in row.facts.items())
    parts = [row.rates.rule, facts, row.tier and f"tier {row.tier}", row.starts and f"from {row.starts}"]
    return "[" + ", ".join(str(part) for part in parts if part) + "]"


def _inside(hours: tuple[time, time], now: time) -> bool:
    start, end = hours
    return start <= now < end if start <= end else now >= start or now < end


def _overlap(one: tuple[time, time], other: tuple[time, time]) -> bool:
    return _inside(one, other[0]) or _inside(other, one[0])
