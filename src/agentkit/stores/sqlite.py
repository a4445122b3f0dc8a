"""The embedded run log and cache: tables of one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from agentkit.core.contracts import Lease, LogRecord, RecordKind, RunStatus, RunSummary, Slot
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import RunConflict
from agentkit.stores.memory import ALL_KINDS, lease_lost, moved_on, named, position_taken
from agentkit.stores.sqlite_file import SqliteFile
from agentkit.stores.sqlite_schema import to_text

__all__ = ["SqliteKeyValueStore", "SqliteRunLog"]

_REVISION = (
    "SELECT revision, CASE WHEN lease_owner IS NULL THEN 0 ELSE fence END FROM slots "
    "WHERE tenant = ? AND run_id = ? AND path = ?"
)
_ADVANCE = (
    "INSERT INTO slots (tenant, run_id, path, status, revision, updated_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT "
    "DO UPDATE SET status = excluded.status, revision = excluded.revision, updated_at = excluded.updated_at"
)
_SUMMARY = "SELECT status, revision, updated_at FROM slots WHERE tenant = ? AND run_id = ? AND path = ?"
_RECORDS = (
    "SELECT kind, key, data FROM records WHERE tenant = ? AND run_id = ? AND path = ? AND revision > ? "
    "AND kind IN (?, ?, ?) ORDER BY revision, position"
)
_SLOTS = (
    "SELECT run_id, path, status, revision, updated_at FROM slots WHERE tenant = ? AND revision > 0 "
    "AND (? IS NULL OR run_id = ?) AND (? IS NULL OR status = ?) ORDER BY updated_at DESC, run_id, path"
)
_HOLDER = "SELECT lease_owner, lease_expires_at FROM slots WHERE tenant = ? AND run_id = ? AND path = ?"
_HOLD = (
    "INSERT INTO slots (tenant, run_id, path, status, revision, updated_at, lease_owner, lease_expires_at, fence) "
    "VALUES (?, ?, ?, 'running', 0, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET lease_owner = excluded.lease_owner, "
    "lease_expires_at = excluded.lease_expires_at, fence = excluded.fence"
)
_RENEW = (
    "UPDATE slots SET lease_expires_at = ? WHERE tenant = ? AND run_id = ? AND path = ? AND fence = ? "
    "AND lease_owner IS NOT NULL"
)
_RELEASE = (
    "UPDATE slots SET lease_owner = NULL, lease_expires_at = NULL "
    "WHERE tenant = ? AND run_id = ? AND path = ? AND fence = ?"
)
_DELETE = (
    "DELETE FROM slots WHERE tenant = ? AND run_id = ?",
    "DELETE FROM records WHERE tenant = ? AND run_id = ?",
    "DELETE FROM approvals WHERE tenant = ? AND run_id = ?",
)


class SqliteRunLog:
    """Checkpoints, journal and approvals of runs in a SQLite file; closing it closes the file."""

    volatile = False

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._file = file
        self._clock = clock

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
        place = (slot.tenant, slot.run_id, slot.path)
        now = to_text(self._clock.wall())

        def work(db: sqlite3.Connection) -> int:
            revision, held = db.execute(_REVISION, place).fetchone() or (0, 0)
            if revision != expected_revision:
                raise moved_on(slot, revision, expected_revision)
            if fence is not None and fence != held:
                raise lease_lost(slot)
            db.execute(_ADVANCE, (*place, status, revision + 1, now))
            rows = [
                (*place, revision + 1, position, record.kind, record.key, record.data)
                for position, record in enumerate(records)
            ]
            try:
                db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            except sqlite3.IntegrityError as error:
                raise position_taken(slot) from error
            return int(revision) + 1

        return await self._file.transact(work)

    async def read(
        self, slot: Slot, *, kinds: Sequence[RecordKind] = ALL_KINDS, after: int = 0
    ) -> tuple[RunSummary | None, list[LogRecord]]:
        """Return the slot's summary and its records after that revision, in order."""
        place = (slot.tenant, slot.run_id, slot.path)
        wanted = tuple(kind if kind in kinds else None for kind in ALL_KINDS)

        def work(db: sqlite3.Connection) -> tuple[RunSummary | None, list[LogRecord]]:
            row = db.execute(_SUMMARY, place).fetchone()
            if row is None or not row[1]:
                return None, []
            rows = db.execute(_RECORDS, (*place, after, *wanted)) if any(wanted) else ()
            return _summary(slot, *row), [LogRecord(*record) for record in rows]

        return await self._file.transact(work, write=False)

    async def slots(
        self, tenant: str, run_id: str | None = None, *, status: RunStatus | None = None
    ) -> list[RunSummary]:
        """Return the tenant's slots, newest first."""

        def work(db: sqlite3.Connection) -> list[RunSummary]:
            rows = db.execute(_SLOTS, (tenant, run_id, run_id, status, status))
            return [_summary(Slot(tenant, run, path), *rest) for run, path, *rest in rows]

        return await self._file.transact(work, write=False)

    async def acquire(self, slot: Slot, owner: str, *, ttl: float) -> Lease:
        """Take the slot's lease for `ttl` seconds; raises RunConflict while another owner holds it."""
        place = (slot.tenant, slot.run_id, slot.path)
        now = self._clock.wall()
        expires = now + timedelta(seconds=ttl)

        def work(db: sqlite3.Connection) -> Lease:
            held_by, until = db.execute(_HOLDER, place).fetchone() or (None, None)
            if held_by not in (None, owner) and until is not None and datetime.fromisoformat(until) > now:
                raise RunConflict(f"{named(slot)} is held by {held_by} until {until[11:19]} UTC.")
            (fence,) = db.execute("UPDATE fences SET last = last + 1 RETURNING last").fetchone()
            db.execute(_HOLD, (*place, to_text(now), owner, to_text(expires), fence))
            return Lease(slot, owner, int(fence), expires)

        return await self._file.transact(work)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Extend a held lease; raises RunConflict when it was lost."""
        slot = lease.slot
        expires = self._clock.wall() + timedelta(seconds=ttl)

        def work(db: sqlite3.Connection) -> Lease:
            changed = db.execute(_RENEW, (to_text(expires), slot.tenant, slot.run_id, slot.path, lease.fence))
            if not changed.rowcount:
                raise lease_lost(slot)
            return Lease(slot, lease.owner, lease.fence, expires)

        return await self._file.transact(work)

    async def release(self, lease: Lease) -> None:
        """Give the lease back; releasing a lost one does nothing."""
        slot = lease.slot

        def work(db: sqlite3.Connection) -> None:
            db.execute(_RELEASE, (slot.tenant, slot.run_id, slot.path, lease.fence))

        await self._file.transact(work)

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove every slot of a run, with its leases."""

        def work(db: sqlite3.Connection) -> None:
            for statement in _DELETE:
                db.execute(statement, (tenant, run_id))

        await self._file.transact(work)

    async def aclose(self) -> None:
        """Close the file."""
        await self._file.aclose()


class SqliteKeyValueStore:
    """A cache in a SQLite file; expired values are dropped when something is written."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._file = file
        self._clock = clock

    async def get(self, tenant: str, key: str) -> bytes | None:
        """Return the value, None when absent or expired."""
        now = to_text(self._clock.wall())

        def work(db: sqlite3.Connection) -> bytes | None:
            row = db.execute(
                "SELECT value FROM entries WHERE tenant = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)",
                (tenant, key, now),
            ).fetchone()
            return None if row is None else bytes(row[0])

        return await self._file.transact(work, write=False)

    async def set(self, tenant: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store the value for `ttl` seconds, for ever when None."""
        now = self._clock.wall()
        expires = None if ttl is None else to_text(now + timedelta(seconds=ttl))

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM entries WHERE expires_at <= ?", (to_text(now),))
            db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (tenant, key, value, expires))

        await self._file.transact(work)

    async def delete(self, tenant: str, key: str) -> None:
        """Remove the value; absent is fine."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM entries WHERE tenant = ? AND key = ?", (tenant, key))

        await self._file.transact(work)


def _summary(slot: Slot, status: RunStatus, revision: int, updated_at: str) -> RunSummary:
    return RunSummary(slot, status, revision, datetime.fromisoformat(updated_at))
