"""The ledger in a SQLite file: exact decimal text, one transaction for many attempts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from agentkit.core.contracts import (
    ZERO,
    CostDimension,
    CostQuery,
    CostSum,
    EntryPage,
    LedgerEntry,
    SharedCeiling,
    SharedRefusal,
    SharedSpend,
)
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.stores.ledger_rows import add, decoded, end, find, lose, stand, standing
from agentkit.stores.ledger_rules import held, in_the_way, sum_of
from agentkit.stores.sqlite_file import SqliteFile
from agentkit.stores.sqlite_schema import to_text

__all__ = ["SqliteLedgerStore"]

_SUMS = (
    "SUM(accepted), COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(cache_read_tokens), "
    "SUM(cache_write_tokens), money_sum(known), SUM(NOT complete), SUM(unknown), SUM(estimated)"
)
_GROUPS: dict[CostDimension, str] = {
    "tenant": "tenant",
    "user": "COALESCE(user, '')",
    "session": "COALESCE(session, '')",
    "agent": "agent",
    "run": "run_id",
    "provider": "provider",
    "model": "model",
    "purpose": "purpose",
    "day": "substr(at, 1, 10)",
}
_FILTERS = ("tenant", "user", "session", "agent", "run_id", "provider", "model")


class SqliteLedgerStore:
    """The ledger in a SQLite file; attempts that begin or end together share one commit."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._file = file
        self._clock = clock

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
        keys = tuple(dict.fromkeys(ceiling.key for ceiling in ceilings))
        until = now + timedelta(seconds=lease)

        def work(db: sqlite3.Connection) -> SharedRefusal | None:
            if ceilings:
                if find(db, entry) is not None:
                    return None
                lose(db, now)
                for ceiling in ceilings:
                    refusal = in_the_way(ceiling, standing(db, ceiling.key), hold)
                    if refusal is not None:
                        return refusal
            if add(db, entry, hold, keys, until):
                for key in keys:
                    stand(db, key, held(standing(db, key), hold))
            return None

        return await self._file.transact(work)

    async def settle(self, entries: Sequence[LedgerEntry]) -> None:
        """Tell how attempts ended, begun or not; a row that is settled already stays as it is."""

        def work(db: sqlite3.Connection) -> None:
            for entry in entries:
                found = find(db, entry)
                if found is None:
                    add(db, entry, ZERO, (), None)
                elif found[1] != "settled":
                    end(db, entry, found)

        if entries:
            await self._file.transact(work)

    async def entries(self, query: CostQuery, *, after: int = 0, limit: int = 1000) -> EntryPage:
        """Return the rows the query asks for, at most `limit` of them."""
        where, values = _where(query)

        def work(db: sqlite3.Connection) -> EntryPage:
            lose(db, self._clock.wall())
            rows = db.execute(
                f"SELECT seq, entry FROM ledger WHERE {where} AND seq > ? ORDER BY seq LIMIT ?",
                (*values, after, limit + 1),
            ).fetchall()
            entries = tuple(decoded(entry) for _, entry in rows[:limit])
            return EntryPage(entries, rows[limit - 1][0] if len(rows) > limit else None)

        return await self._file.transact(work)

    async def totals(self, query: CostQuery) -> list[CostSum]:
        """Return a sum for each value of the query's dimensions, ordered by key."""
        where, values = _where(query)
        groups = ", ".join(_GROUPS[dimension] for dimension in query.by)
        head = f"{groups}, " if groups else ""
        grouped = f" GROUP BY {groups}" if groups else ""

        def work(db: sqlite3.Connection) -> list[CostSum]:
            lose(db, self._clock.wall())
            rows = db.execute(f"SELECT {head}{_SUMS} FROM ledger WHERE {where}{grouped}", values)
            sums = [sum_of(row, len(query.by)) for row in rows if row[len(query.by) + 1]]
            return sorted(sums, key=lambda total: total.key)

        return await self._file.transact(work)

    async def standing(self, key: str) -> SharedSpend:
        """Return what stands under a shared key."""

        def work(db: sqlite3.Connection) -> SharedSpend:
            lose(db, self._clock.wall())
            return standing(db, key)

        return await self._file.transact(work)


def _where(query: CostQuery) -> tuple[str, list[object]]:
    clauses, values = ["1"], list[object]()
    for name in _FILTERS:
        value = getattr(query, name)
        if value is not None:
            clauses.append(f"{name} = ?")
            values.append(value)
    for sign, moment in ((">=", query.since), ("<", query.until)):
        if moment is not None:
            clauses.append(f"at {sign} ?")
            values.append(to_text(moment))
    return " AND ".join(clauses), values
