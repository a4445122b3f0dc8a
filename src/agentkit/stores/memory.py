"""Stores that live as long as the process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from agentkit.core.contracts import CostRecord, Lease, LogRecord, RecordKind, RunStatus, RunSummary, Slot
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import RunConflict

__all__ = ["MemoryKeyValueStore", "MemoryLedgerStore", "MemoryRunLog"]

ALL_KINDS: tuple[RecordKind, ...] = ("checkpoint", "journal", "approval")


class _Place:
    __slots__ = ("records", "revision", "status", "updated_at")

    def __init__(self, status: RunStatus, updated_at: datetime) -> None:
        self.revision = 0
        self.status: RunStatus = status
        self.updated_at = updated_at
        self.records: list[tuple[int, LogRecord]] = []


class MemoryRunLog:
    """A run log in memory; `volatile` tells runs that writing every step would protect nothing."""

    volatile = True

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, volatile: bool = True) -> None:
        self.volatile = volatile
        self._clock = clock
        self._places: dict[Slot, _Place] = {}
        self._written: set[tuple[Slot, str]] = set()
        self._leases: dict[Slot, Lease] = {}
        self._fences: dict[Slot, int] = {}

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
        place = self._places.get(slot)
        revision = 0 if place is None else place.revision
        if revision != expected_revision:
            raise RunConflict(
                f"{_named(slot)} is at revision {revision}, not {expected_revision}: somebody else wrote it."
            )
        if fence is not None and fence != self._fences.get(slot):
            raise RunConflict(f"The lease on {_named(slot)} was lost to another holder.")
        keys = [(slot, record.key) for record in records if record.kind == "journal"]
        if len(set(keys)) < len(keys) or any(key in self._written for key in keys):
            raise RunConflict(f"{_named(slot)} has that journal position already; it is written once.")
        if place is None:
            place = self._places[slot] = _Place(status, self._clock.wall())
        self._written.update(keys)
        place.revision += 1
        place.status = status
        place.updated_at = self._clock.wall()
        place.records.extend((place.revision, record) for record in records)
        return place.revision

    async def read(
        self, slot: Slot, *, kinds: Sequence[RecordKind] = ALL_KINDS, after: int = 0
    ) -> tuple[RunSummary | None, list[LogRecord]]:
        """Return the slot's summary and its records after that revision, in order."""
        place = self._places.get(slot)
        if place is None:
            return None, []
        records = [record for revision, record in place.records if revision > after and record.kind in kinds]
        return _summary(slot, place), records

    async def slots(
        self, tenant: str, run_id: str | None = None, *, status: RunStatus | None = None
    ) -> list[RunSummary]:
        """Return the tenant's slots, newest first."""
        found = [
            _summary(slot, place)
            for slot, place in self._places.items()
            if slot.tenant == tenant and run_id in (None, slot.run_id) and status in (None, place.status)
        ]
        return sorted(found, key=lambda summary: summary.updated_at, reverse=True)

    async def acquire(self, slot: Slot, owner: str, *, ttl: float) -> Lease:
        """Take the slot's lease for `ttl` seconds; raises RunConflict while another owner holds it."""
        now = self._clock.wall()
        held = self._leases.get(slot)
        if held is not None and held.owner != owner and held.expires_at > now:
            raise RunConflict(f"{_named(slot)} is held by {held.owner} until {held.expires_at:%H:%M:%S} UTC.")
        fence = self._fences[slot] = self._fences.get(slot, 0) + 1
        lease = self._leases[slot] = Lease(slot, owner, fence, now + timedelta(seconds=ttl))
        return lease

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Extend a held lease; raises RunConflict when it was lost."""
        held = self._leases.get(lease.slot)
        if held is None or held.fence != lease.fence:
            raise RunConflict(f"The lease on {_named(lease.slot)} was lost to another holder.")
        renewed = Lease(lease.slot, lease.owner, lease.fence, self._clock.wall() + timedelta(seconds=ttl))
        self._leases[lease.slot] = renewed
        return renewed

    async def release(self, lease: Lease) -> None:
        """Give the lease back; releasing a lost one does nothing."""
        held = self._leases.get(lease.slot)
        if held is not None and held.fence == lease.fence:
            del self._leases[lease.slot]

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove every slot of a run."""
        for slot in [slot for slot in self._places if slot.tenant == tenant and slot.run_id == run_id]:
            del self._places[slot]
            self._written = {key for key in self._written if key[0] != slot}

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


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


class MemoryLedgerStore:
    """A ledger in memory, for tests and short processes."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, CostRecord]] = []

    async def append(self, tenant: str, user: str | None, records: Sequence[CostRecord], *, at: datetime) -> None:
        """Add rows."""
        self._rows.extend((tenant, record) for record in records)

    async def read(self, tenant: str, run_id: str | None = None) -> list[CostRecord]:
        """Return the tenant's rows in order, of one run when given."""
        return [row for owner, row in self._rows if owner == tenant and run_id in (None, row.run_id)]


def _summary(slot: Slot, place: _Place) -> RunSummary:
    return RunSummary(slot, place.status, place.revision, place.updated_at)


def _named(slot: Slot) -> str:
    return f"Run {slot.run_id!r}" + (f" at {slot.path!r}" if slot.path else "")
