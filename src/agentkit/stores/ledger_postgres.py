"""The ledger in PostgreSQL: exact NUMERIC, shared ceilings by one conditional update each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

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
from agentkit.core.contracts.codec import decode_data, encode_data
from agentkit.stores.ledger_rules import columns, in_the_way, settled, sum_of
from agentkit.stores.postgres_place import PostgresPlace

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PostgresLedgerStore"]

_COLUMNS = (
    'tenant, run_id, call_id, attempt, "user", session, agent, provider, model, purpose, at, state, known, complete, '
    "accepted, estimated, unknown, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, entry"
)
_COUNT = 22
_VALUES = ", ".join(f"${number}" for number in range(1, _COUNT + 1))
_ADD = (
    f"INSERT INTO ledger ({_COLUMNS}, hold, keys, until) VALUES ({_VALUES}, $23, $24, "
    "COALESCE($25, clock_timestamp()) + $26) ON CONFLICT DO NOTHING RETURNING seq"
)
_END = f"UPDATE ledger SET ({_COLUMNS}, until) = ({_VALUES}, NULL) WHERE seq = $23"
_FIND = (
    "SELECT seq, state, at, hold, keys FROM ledger "
    "WHERE tenant = $1 AND run_id = $2 AND call_id = $3 AND attempt = $4 FOR UPDATE"
)
_EXPIRED = (
    "SELECT seq, hold, keys, entry FROM ledger WHERE state = 'open' AND until <= COALESCE($1, clock_timestamp()) "
    "ORDER BY seq FOR UPDATE SKIP LOCKED"
)
_KNOW = "INSERT INTO shared (key) VALUES ($1) ON CONFLICT DO NOTHING"
_TAKE = "UPDATE shared SET held = held + $2 WHERE key = $1 AND spent + uncertain + held + $2 <= $3 RETURNING key"
_STANDING = "SELECT spent, held, uncertain FROM shared WHERE key = $1"
_STAND = "UPDATE shared SET spent = $2, held = $3, uncertain = $4 WHERE key = $1"
_GIVE = "UPDATE shared SET held = GREATEST(0, held - $2) WHERE key = $1"
_SUMS = (
    "COUNT(*) FILTER (WHERE accepted), COUNT(*), SUM(input_tokens)::bigint, SUM(output_tokens)::bigint, "
    "SUM(cache_read_tokens)::bigint, SUM(cache_write_tokens)::bigint, SUM(known), "
    "COUNT(*) FILTER (WHERE NOT complete), COUNT(*) FILTER (WHERE unknown), COUNT(*) FILTER (WHERE estimated)"
)
_GROUPS: dict[CostDimension, str] = {
    "tenant": "tenant",
    "user": "COALESCE(\"user\", '')",
    "session": "COALESCE(session, '')",
    "agent": "agent",
    "run": "run_id",
    "provider": "provider",
    "model": "model",
    "purpose": "purpose",
    "day": "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
}
_FILTERS = {
    "tenant": "tenant",
    "user": '"user"',
    "session": "session",
    "agent": "agent",
    "run_id": "run_id",
    "provider": "provider",
    "model": "model",
}


class PostgresLedgerStore:
    """The ledger in PostgreSQL; its ceilings hold over every worker of the database."""

    def __init__(self, place: PostgresPlace) -> None:
        self._place = place

    async def begin(
        self,
        entry: LedgerEntry,
        *,
        hold: Decimal = ZERO,
        ceilings: Sequence[SharedCeiling] = (),
        lease: float = 600.0,
    ) -> SharedRefusal | None:
        """Add an open row and hold its bound under every ceiling, or do nothing and say which is in the way."""
        refusal = await self._begin(entry, hold, ceilings, lease)
        if refusal is not None and await self._lose():
            refusal = await self._begin(entry, hold, ceilings, lease)
        return refusal

    async def settle(self, entries: Sequence[LedgerEntry]) -> None:
        """Tell how attempts ended, begun or not; a row that is settled already stays as it is."""

        async def work(db: asyncpg.Connection) -> None:
            for entry in sorted(entries, key=lambda entry: entry.id):
                found = await db.fetchrow(_FIND, *entry.id)
                if found is None:
                    await db.fetchval(_ADD, *_row(entry), ZERO, [], None, None)
                elif found[1] != "settled":
                    await _end(db, entry, found)

        if entries:
            await self._place.transact(work)

    async def entries(self, query: CostQuery, *, after: int = 0, limit: int = 1000) -> EntryPage:
        """Return the rows the query asks for, at most `limit` of them."""
        await self._lose()
        where, values = _where(query)

        async def work(db: asyncpg.Connection) -> EntryPage:
            rows = await db.fetch(
                f"SELECT seq, entry FROM ledger WHERE {where} AND seq > {after:d} ORDER BY seq LIMIT {limit + 1:d}",
                *values,
            )
            entries = tuple(_decoded(row[1]) for row in rows[:limit])
            return EntryPage(entries, rows[limit - 1][0] if len(rows) > limit else None)

        return await self._place.transact(work)

    async def totals(self, query: CostQuery) -> list[CostSum]:
        """Return a sum for each value of the query's dimensions, ordered by key."""
        await self._lose()
        where, values = _where(query)
        groups = ", ".join(_GROUPS[dimension] for dimension in query.by)
        head = f"{groups}, " if groups else ""
        grouped = f"GROUP BY {groups}" if groups else ""

        async def work(db: asyncpg.Connection) -> list[CostSum]:
            rows = await db.fetch(f"SELECT {head}{_SUMS} FROM ledger WHERE {where} {grouped}", *values)
            sums = [sum_of(tuple(row), len(query.by)) for row in rows if row[len(query.by) + 1]]
            return sorted(sums, key=lambda total: total.key)

        return await self._place.transact(work)

    async def standing(self, key: str) -> SharedSpend:
        """Return what stands under a shared key."""
        await self._lose()

        async def work(db: asyncpg.Connection) -> SharedSpend:
            return await _standing(db, key)

        return await self._place.transact(work)

    async def _begin(
        self, entry: LedgerEntry, hold: Decimal, ceilings: Sequence[SharedCeiling], lease: float
    ) -> SharedRefusal | None:
        lowest: dict[str, SharedCeiling] = {}  # two budgets may name one key: it is held once, under the lower
        for each in sorted(ceilings, key=lambda ceiling: (ceiling.key, ceiling.dollars)):
            lowest.setdefault(each.key, each)
        keys = list(lowest)

        async def work(db: asyncpg.Connection) -> None:
            added = await db.fetchval(_ADD, *_row(entry), hold, keys, self._place.now(), timedelta(seconds=lease))
            if added is None:
                return
            for ceiling in lowest.values():
                await db.execute(_KNOW, ceiling.key)
                if await db.fetchval(_TAKE, ceiling.key, hold, ceiling.dollars) is None:
                    raise _Refused(in_the_way(ceiling, await _standing(db, ceiling.key), hold))

        try:
            await self._place.transact(work)
        except _Refused as refused:
            return refused.refusal
        return None

    async def _lose(self) -> int:
        """Give up open rows whose lease has run out; return how many."""

        async def work(db: asyncpg.Connection) -> int:
            rows = await db.fetch(_EXPIRED, self._place.now())
            freed: dict[str, Decimal] = {}
            for seq, hold, keys, data in rows:
                lost = replace(_decoded(data), state="lost")
                await db.execute(_END, *_row(lost), seq)
                for key in keys:
                    freed[key] = freed.get(key, ZERO) + hold
            for key in sorted(freed):
                await db.execute(_GIVE, key, freed[key])
            return len(rows)

        return await self._place.transact(work)


class _Refused(Exception):
    """Undoes a transaction that cannot begin its attempt."""

    def __init__(self, refusal: SharedRefusal | None) -> None:
        super().__init__()
        self.refusal = refusal


async def _end(db: asyncpg.Connection, entry: LedgerEntry, found: Sequence[object]) -> None:
    seq, state, at, hold, keys = found
    for key in sorted(keys):  # type: ignore[call-overload]
        await db.execute("SELECT FROM shared WHERE key = $1 FOR UPDATE", key)
        after = settled(await _standing(db, key), hold, entry, lost=state == "lost")  # type: ignore[arg-type]
        await db.execute(_STAND, key, after.spent, after.held, after.uncertain)
    await db.execute(_END, *_row(replace(entry, at=at)), seq)


async def _standing(db: asyncpg.Connection, key: str) -> SharedSpend:
    found = await db.fetchrow(_STANDING, key)
    return SharedSpend() if found is None else SharedSpend(*found)


def _row(entry: LedgerEntry) -> tuple[object, ...]:
    return (*columns(entry, at=entry.at, known=entry.record.at_least), encode_data("ledger_entry", entry))


def _where(query: CostQuery) -> tuple[str, list[object]]:
    clauses, values = ["TRUE"], list[object]()
    for name, column in _FILTERS.items():
        value = getattr(query, name)
        if value is not None:
            values.append(value)
            clauses.append(f"{column} = ${len(values)}")
    for sign, moment in ((">=", query.since), ("<", query.until)):
        if moment is not None:
            values.append(moment)
            clauses.append(f"at {sign} ${len(values)}")
    return " AND ".join(clauses), values


def _decoded(data: bytes) -> LedgerEntry:
    return decode_data(bytes(data), "ledger_entry", LedgerEntry)
