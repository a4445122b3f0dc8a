"""A ledger that lives as long as the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import (
    ZERO,
    CostQuery,
    CostSum,
    EntryPage,
    LedgerEntry,
    SharedCeiling,
    SharedRefusal,
    SharedSpend,
)
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.stores.ledger_rules import held, in_the_way, released, settled, summed, wanted

__all__ = ["MemoryLedgerStore"]

_NOTHING = SharedSpend()


class _Row(Struct):
    entry: LedgerEntry
    hold: Decimal = ZERO
    keys: tuple[str, ...] = ()
    until: datetime | None = None


class MemoryLedgerStore:
    """A ledger in memory, for tests and short processes; shared ceilings hold within the process."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._rows: list[_Row] = []
        self._places: dict[tuple[str, str, str, int], int] = {}
        self._open: set[int] = set()
        self._shared: dict[str, SharedSpend] = {}
        self._lock = threading.Lock()

    async def begin(
        self,
        entry: LedgerEntry,
        *,
        hold: Decimal = ZERO,
        ceilings: Sequence[SharedCeiling] = (),
        lease: float = 600.0,
    ) -> SharedRefusal | None:
        """Add an open row and hold its bound under every ceiling, or do nothing and say which is in the way."""
        now = self._clock.wall()
        with self._lock:
            if entry.id in self._places:
                return None
            self._lose(now)
            for ceiling in ceilings:
                refusal = in_the_way(ceiling, self._shared.get(ceiling.key, _NOTHING), hold)
                if refusal is not None:
                    return refusal
            keys = tuple(dict.fromkeys(ceiling.key for ceiling in ceilings))
            for key in keys:
                self._shared[key] = held(self._shared.get(key, _NOTHING), hold)
            self._open.add(self._add(_Row(entry, hold, keys, now + timedelta(seconds=lease))))
            return None

    async def settle(self, entries: Sequence[LedgerEntry]) -> None:
        """Tell how attempts ended, begun or not; a row that is settled already stays as it is."""
        with self._lock:
            for entry in entries:
                place = self._places.get(entry.id)
                if place is None:
                    self._add(_Row(entry))
                elif self._rows[place].entry.state != "settled":
                    self._end(place, entry)

    async def entries(self, query: CostQuery, *, after: int = 0, limit: int = 1000) -> EntryPage:
        """Return the rows the query asks for, at most `limit` of them."""
        with self._lock:
            self._lose(self._clock.wall())
            found: list[LedgerEntry] = []
            for place in range(after, len(self._rows)):
                if wanted(self._rows[place].entry, query):
                    if len(found) == limit:
                        return EntryPage(tuple(found), place)
                    found.append(self._rows[place].entry)
            return EntryPage(tuple(found))

    async def totals(self, query: CostQuery) -> list[CostSum]:
        """Return a sum for each value of the query's dimensions, ordered by key."""
        with self._lock:
            self._lose(self._clock.wall())
            return summed((row.entry for row in self._rows if wanted(row.entry, query)), query.by)

    async def standing(self, key: str) -> SharedSpend:
        """Return what stands under a shared key."""
        with self._lock:
            self._lose(self._clock.wall())
            return self._shared.get(key, _NOTHING)

    def _add(self, row: _Row) -> int:
        place = self._places[row.entry.id] = len(self._rows)
        self._rows.append(row)
        return place

    def _end(self, place: int, entry: LedgerEntry) -> None:
        row = self._rows[place]
        lost = row.entry.state == "lost"
        for key in row.keys:
            self._shared[key] = settled(self._shared[key], row.hold, entry, lost=lost)
        row.entry = replace(entry, at=row.entry.at)
        self._open.discard(place)

    def _lose(self, now: datetime) -> None:
        """Give up open rows whose lease has run out."""
        for place in [place for place in self._open if (until := self._rows[place].until) is not None and until <= now]:
            row = self._rows[place]
            for key in row.keys:
                self._shared[key] = released(self._shared[key], row.hold)
            row.entry = replace(row.entry, state="lost")
            self._open.discard(place)
