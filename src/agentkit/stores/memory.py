"""Stores that live as long as the process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from agentkit.core.contracts import Lease, LogRecord, RecordKind, RunStatus, RunSummary, Slot
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import RunConflict

__all__ = ["MemoryKeyValueStore", "MemoryRunLog"]

ALL_KINDS: tuple[RecordKind, ...] = ("checkpoint", "journal", "approval")


class _Place:
    __slots__ = ("journal", "records", "revision", "status", "updated_at")

    def __init__(self) -> None:
        self.revision = 0
        self.records: list[tuple[int, LogRecord]] = []
        self.journal: set[str] = set()
        self.status: RunStatus
        self.updated_at: datetime


class MemoryRunLog:
    """A run log in memory; `volatile` tells runs that writing every step would protect nothing."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, volatile: bool = True) -> None:
        self.volatile = volatile
        self._clock = clock
        self._runs: dict[tuple[str, str], dict[str, _Place]] = {}
        self._leases: dict[Slot, Lease] = {}
        self._fence = 0

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
        place = self._place(slot) or _Place()
        if place.revision != expected_revision:
            raise moved_on(slot, place.revision, expected_revision)
        lease = self._leases.get(slot)
        if fence is not None and (lease is None or fence != lease.fence):
            raise lease_lost(slot)
        keys = [record.key for record in records if record.kind == "journal"]
        if len(set(keys)) < len(keys) or not place.journal.isdisjoint(keys):
            raise position_taken(slot)
        self._runs.setdefault((slot.tenant, slot.run_id), {})[slot.path] = place
        place.journal.update(keys)
        place.revision += 1
        place.status = status
        place.updated_at = self._clock.wall()
        place.records.extend((place.revision, record) for record in records)
        return place.revision

    async def read(
        self, slot: Slot, *, kinds: Sequence[RecordKind] = ALL_KINDS, after: int = 0
    ) -> tuple[RunSummary | None, list[LogRecord]]:
        """Return the slot's summary and its records after that revision, in order."""
        place = self._place(slot)
        if place is None:
            return None, []
        records = [record for revision, record in place.records if revision > after and record.kind in kinds]
        return _summary(slot, place), records

    async def slots(
        self, tenant: str, run_id: str | None = None, *, status: RunStatus | None = None
    ) -> list[RunSummary]:
        """Return the tenant's slots, newest first."""
        found = [
            _summary(Slot(owner, run, path), place)
            for (owner, run), places in self._runs.items()
            if owner == tenant and run_id in (None, run)
            for path, place in places.items()
            if status in (None, place.status)
        ]
        found.sort(key=lambda summary: (summary.slot.run_id, summary.slot.path))
        return sorted(found, key=lambda summary: summary.updated_at, reverse=True)

    async def acquire(self, slot: Slot, owner: str, *, ttl: float) -> Lease:
        """Take the slot's lease for `ttl` seconds; raises RunConflict while another owner holds it."""
        now = self._clock.wall()
        held = self._leases.get(slot)
        if held is not None and held.owner != owner and held.expires_at > now:
            raise RunConflict(f"{named(slot)} is held by {held.owner} until {held.expires_at:%H:%M:%S} UTC.")
        self._fence += 1
        lease = self._leases[slot] = Lease(slot, owner, self._fence, now + timedelta(seconds=ttl))
        return lease

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Extend a held lease; raises RunConflict when it was lost."""
        held = self._leases.get(lease.slot)
        if held is None or held.fence != lease.fence:
            raise lease_lost(lease.slot)
        renewed = Lease(lease.slot, lease.owner, lease.fence, self._clock.wall() + timedelta(seconds=ttl))
        self._leases[lease.slot] = renewed
        return renewed

    async def release(self, lease: Lease) -> None:
        """Give the lease back; releasing a lost one does nothing."""
        held = self._leases.get(lease.slot)
        if held is not None and held.fence == lease.fence:
            del self._leases[lease.slot]

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove every slot of a run, with its leases."""
        self._runs.pop((tenant, run_id), None)
        for slot in [slot for slot in self._leases if slot.tenant == tenant and slot.run_id == run_id]:
            del self._leases[slot]

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _place(self, slot: Slot) -> _Place | None:
        return self._runs.get((slot.tenant, slot.run_id), {}).get(slot.path)


class MemoryKeyValueStore:
    """A cache in memory; expired values are dropped when they are asked for, and at every 1,000th write."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._values: dict[tuple[str, str], tuple[bytes, float | None]] = {}
        self._writes = 0

    async def get(self, tenant: str, key: str) -> bytes | None:
        """Return the value, None when absent or expired."""
        found = self._values.get((tenant, key))
        if found is None:
            return None
        value, expires = found
        if expires is not None and expires <= self._clock.now():
            del self._values[tenant, key]
            return None
        return value

    async def set(self, tenant: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store the value for `ttl` seconds, for ever when None."""
        self._writes += 1
        if self._writes % 1000 == 0:
            now = self._clock.now()
            self._values = {k: v for k, v in self._values.items() if v[1] is None or v[1] > now}
        self._values[tenant, key] = (bytes(value), None if ttl is None else self._clock.now() + ttl)

    async def delete(self, tenant: str, key: str) -> None:
        """Remove the value; absent is fine."""
        self._values.pop((tenant, key), None)


def _summary(slot: Slot, place: _Place) -> RunSummary:
    return RunSummary(slot, place.status, place.revision, place.updated_at)


def named(slot: Slot) -> str:
    """Return how messages call the slot."""
    return f"Run {slot.run_id!r}" + (f" at {slot.path!r}" if slot.path else "")


def moved_on(slot: Slot, revision: int, expected: int) -> RunConflict:
    """Return the error of a write that another writer came before."""
    return RunConflict(f"{named(slot)} is at revision {revision}, not {expected}: somebody else wrote it.")


def lease_lost(slot: Slot) -> RunConflict:
    """Return the error of a write or renewal by somebody who holds the slot's lease no longer."""
    return RunConflict(f"The lease on {named(slot)} was lost to another holder, or given back.")


def position_taken(slot: Slot) -> RunConflict:
    """Return the error of a second write of a journal position."""
    return RunConflict(f"{named(slot)} has that journal position already; it is written once.")
