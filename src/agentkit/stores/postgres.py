"""The run log and the cache in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agentkit.core.contracts import Lease, LogRecord, RecordKind, RunStatus, RunSummary, Slot
from agentkit.errors import RunConflict
from agentkit.stores.memory import ALL_KINDS, lease_lost, moved_on, named, position_taken
from agentkit.stores.postgres_place import PostgresPlace

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PostgresKeyValueStore", "PostgresRunLog"]

_HERE = "tenant = $1 AND run_id = $2 AND path = $3"
_REVISION = f"SELECT revision, CASE WHEN lease_owner IS NULL THEN 0 ELSE fence END FROM slots WHERE {_HERE} FOR UPDATE"
_FIRST = (
    "INSERT INTO slots (tenant, run_id, path, status, revision, updated_at) "
    "VALUES ($1, $2, $3, $4, 1, COALESCE($5, clock_timestamp())) ON CONFLICT DO NOTHING RETURNING revision"
)
_ADVANCE = (
    "UPDATE slots SET status = $4, revision = revision + 1, updated_at = COALESCE($5, clock_timestamp()) "
    f"WHERE {_HERE} RETURNING revision"
)
_WRITE = "INSERT INTO records VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
_SUMMARY = f"SELECT status, revision, updated_at FROM slots WHERE {_HERE}"
_RECORDS = (
    f"SELECT kind, key, data FROM records WHERE {_HERE} AND revision > $4 AND kind = ANY($5) "
    "ORDER BY revision, position"
)
_SLOTS = (
    "SELECT run_id, path, status, revision, updated_at FROM slots WHERE tenant = $1 AND revision > 0 "
    "AND ($2::text IS NULL OR run_id = $2) AND ($3::text IS NULL OR status = $3) "
    'ORDER BY updated_at DESC, run_id COLLATE "C", path COLLATE "C"'
)
_HOLD = (
    "INSERT INTO slots (tenant, run_id, path, status, revision, updated_at, lease_owner, lease_expires_at, fence) "
    "VALUES ($1, $2, $3, 'running', 0, COALESCE($5, clock_timestamp()), $4, "
    "COALESCE($5, clock_timestamp()) + $6, nextval('fences')) ON CONFLICT (tenant, run_id, path) DO UPDATE SET "
    "lease_owner = excluded.lease_owner, lease_expires_at = excluded.lease_expires_at, fence = excluded.fence "
    "WHERE slots.lease_owner IS NULL OR slots.lease_owner = excluded.lease_owner "
    "OR slots.lease_expires_at <= COALESCE($5, clock_timestamp()) RETURNING fence, lease_expires_at"
)
_HOLDER = f"SELECT lease_owner, lease_expires_at FROM slots WHERE {_HERE}"
_RENEW = (
    f"UPDATE slots SET lease_expires_at = COALESCE($5, clock_timestamp()) + $6 WHERE {_HERE} AND fence = $4 "
    "AND lease_owner IS NOT NULL RETURNING lease_expires_at"
)
_RELEASE = f"UPDATE slots SET lease_owner = NULL, lease_expires_at = NULL WHERE {_HERE} AND fence = $4"


class PostgresRunLog:
    """Checkpoints, journal and approvals of runs in PostgreSQL; closing it closes the place."""

    volatile = False

    def __init__(self, place: PostgresPlace) -> None:
        self._place = place

    async def append(
        self,
        slot: Slot,
        expected_revision: int,
        records: Sequence[LogRecord],
        *,
        status: RunStatus,
        fence: int | None = None,
    ) -> int:
        """Write all records or none, set the slot's status, and return its new revision."""
        import asyncpg

        here = (slot.tenant, slot.run_id, slot.path)

        async def work(db: asyncpg.Connection) -> int:
            found = await db.fetchrow(_REVISION, *here)
            revision, held = (0, 0) if found is None else (int(found[0]), int(found[1]))
            if revision != expected_revision:
                raise moved_on(slot, revision, expected_revision)
            if fence is not None and fence != held:
                raise lease_lost(slot)
            statement = _FIRST if found is None else _ADVANCE
            advanced = await db.fetchval(statement, *here, status, self._place.now())
            if advanced is None:  # another writer was first to make the slot
                raise moved_on(slot, 1, expected_revision)
            rows = [
                (*here, advanced, position, record.kind, record.key, record.data)
                for position, record in enumerate(records)
            ]
            try:
                await db.executemany(_WRITE, rows)
            except asyncpg.UniqueViolationError as error:
                raise position_taken(slot) from error
            return int(advanced)

        return await self._place.transact(work)

    async def read(
        self, slot: Slot, *, kinds: Sequence[RecordKind] = ALL_KINDS, after: int = 0
    ) -> tuple[RunSummary | None, list[LogRecord]]:
        """Return the slot's summary and its records after that revision, in order."""
        here = (slot.tenant, slot.run_id, slot.path)

        async def work(db: asyncpg.Connection) -> tuple[RunSummary | None, list[LogRecord]]:
            row = await db.fetchrow(_SUMMARY, *here)
            if row is None or not row[1]:
                return None, []
            rows = await db.fetch(_RECORDS, *here, after, list(kinds)) if kinds else []
            return RunSummary(slot, *row), [LogRecord(kind, key, bytes(data)) for kind, key, data in rows]

        return await self._place.transact(work)

    async def slots(
        self, tenant: str, run_id: str | None = None, *, status: RunStatus | None = None
    ) -> list[RunSummary]:
        """Return the tenant's slots, newest first."""

        async def work(db: asyncpg.Connection) -> list[RunSummary]:
            rows = await db.fetch(_SLOTS, tenant, run_id, status)
            return [RunSummary(Slot(tenant, run, path), *rest) for run, path, *rest in rows]

        return await self._place.transact(work)

    async def acquire(self, slot: Slot, owner: str, *, ttl: float) -> Lease:
        """Take the slot's lease for `ttl` seconds; raises RunConflict while another owner holds it."""
        here = (slot.tenant, slot.run_id, slot.path)

        async def work(db: asyncpg.Connection) -> Lease:
            held = await db.fetchrow(_HOLD, *here, owner, self._place.now(), timedelta(seconds=ttl))
            if held is None:
                holder, until = await db.fetchrow(_HOLDER, *here)
                raise RunConflict(f"{named(slot)} is held by {holder} until {until:%H:%M:%S} UTC.")
            return Lease(slot, owner, int(held[0]), held[1])

        return await self._place.transact(work)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Extend a held lease; raises RunConflict when it was lost."""
        slot = lease.slot

        async def work(db: asyncpg.Connection) -> Lease:
            here = (slot.tenant, slot.run_id, slot.path, lease.fence)
            until: datetime | None = await db.fetchval(_RENEW, *here, self._place.now(), timedelta(seconds=ttl))
            if until is None:
                raise lease_lost(slot)
            return Lease(slot, lease.owner, lease.fence, until)

        return await self._place.transact(work)

    async def release(self, lease: Lease) -> None:
        """Give the lease back; releasing a lost one does nothing."""
        slot = lease.slot

        async def work(db: asyncpg.Connection) -> None:
            await db.execute(_RELEASE, slot.tenant, slot.run_id, slot.path, lease.fence)

        await self._place.transact(work)

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove every slot of a run, with its leases."""

        async def work(db: asyncpg.Connection) -> None:
            await db.execute("DELETE FROM slots WHERE tenant = $1 AND run_id = $2", tenant, run_id)
            await db.execute("DELETE FROM records WHERE tenant = $1 AND run_id = $2", tenant, run_id)

        await self._place.transact(work)

    async def aclose(self) -> None:
        """Close the place."""
        await self._place.aclose()


class PostgresKeyValueStore:
    """A cache in PostgreSQL; expired values are dropped when something is written."""

    def __init__(self, place: PostgresPlace) -> None:
        self._place = place

    async def get(self, tenant: str, key: str) -> bytes | None:
        """Return the value, None when absent or expired."""

        async def work(db: asyncpg.Connection) -> bytes | None:
            value = await db.fetchval(
                "SELECT value FROM entries WHERE tenant = $1 AND key = $2 "
                "AND (expires_at IS NULL OR expires_at > COALESCE($3, clock_timestamp()))",
                *(tenant, key, self._place.now()),
            )
            return None if value is None else bytes(value)

        return await self._place.transact(work)

    async def set(self, tenant: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store the value for `ttl` seconds, for ever when None."""
        seconds = None if ttl is None else timedelta(seconds=ttl)

        async def work(db: asyncpg.Connection) -> None:
            now = self._place.now()
            await db.execute("DELETE FROM entries WHERE expires_at <= COALESCE($1, clock_timestamp())", now)
            await db.execute(
                "INSERT INTO entries VALUES ($1, $2, $3, COALESCE($4, clock_timestamp()) + $5) "
                "ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
                *(tenant, key, value, now, seconds),
            )

        await self._place.transact(work)

    async def delete(self, tenant: str, key: str) -> None:
        """Remove the value; absent is fine."""

        async def work(db: asyncpg.Connection) -> None:
            await db.execute("DELETE FROM entries WHERE tenant = $1 AND key = $2", tenant, key)

        await self._place.transact(work)
