"""Ports to durable state beside the ledger. Every key starts (tenant, run); another tenant's row is never found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.money import ZERO
from agentkit.core.contracts.pricing import Quote

__all__ = [
    "KeyValueStore",
    "Lease",
    "LogRecord",
    "QuotaLimits",
    "QuotaStanding",
    "QuotaStore",
    "RecordKind",
    "RunLog",
    "RunStatus",
    "RunSummary",
    "Slot",
]

RecordKind: TypeAlias = Literal["checkpoint", "journal", "approval"]
RunStatus: TypeAlias = Literal["running", "suspended", "done", "failed"]


class Slot(Struct, frozen=True):
    """One writer's place: a tenant's run and the path inside it (empty for the top level)."""

    tenant: str
    run_id: str
    path: str = ""


class LogRecord(Struct, frozen=True):
    """One durable record of a slot.

    `key` is the record's place within its kind: a journal position is written once, a second write of it is a
    conflict; checkpoints use their revision. `data` is the codec's bytes.
    """

    kind: RecordKind
    key: str
    data: bytes


class RunSummary(Struct, frozen=True):
    """What a list of runs shows of one slot."""

    slot: Slot
    status: RunStatus
    revision: int
    updated_at: datetime


class Lease(Struct, frozen=True):
    """The right to write a run until `expires_at`; `fence` grows with each holder."""

    slot: Slot
    owner: str
    fence: int
    expires_at: datetime


class RunLog(Protocol):
    """Checkpoints, journal and approvals of runs; append is atomic and compare-and-set.

    Raises RunConflict for another revision, a journal key written before, or a lost lease; StoreError when the
    store cannot answer. A store error is never "nothing there".
    """

    async def append(
        self,
        slot: Slot,
        expected_revision: int,
        records: Sequence[LogRecord],
        *,
        status: RunStatus,
        fence: int | None = None,
    ) -> int:
        """Write all records or none, set the slot's status, and return its new revision (the old one plus 1)."""
        ...

    async def read(
        self, slot: Slot, *, kinds: Sequence[RecordKind] = ("checkpoint", "journal", "approval"), after: int = 0
    ) -> tuple[RunSummary | None, list[LogRecord]]:
        """Return the slot's summary (None when there is no such slot) and its records after that revision, in order."""
        ...

    async def slots(
        self, tenant: str, run_id: str | None = None, *, status: RunStatus | None = None
    ) -> list[RunSummary]:
        """Return the tenant's slots, newest first."""
        ...

    async def acquire(self, slot: Slot, owner: str, *, ttl: float) -> Lease:
        """Take the slot's lease for `ttl` seconds; raises RunConflict while another owner holds it."""
        ...

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Extend a held lease; raises RunConflict when it was lost."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; releasing a lost one does nothing."""
        ...

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove every slot of a run."""
        ...

    async def aclose(self) -> None:
        """Release the store's resources."""
        ...


class KeyValueStore(Protocol):
    """A cache with a time to live in seconds."""

    async def get(self, tenant: str, key: str) -> bytes | None:
        """Return the value, None when absent or expired."""
        ...

    async def set(self, tenant: str, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Store the value for `ttl` seconds, for ever when None."""
        ...

    async def delete(self, tenant: str, key: str) -> None:
        """Remove the value; absent is fine."""
        ...


class QuotaLimits(Struct, frozen=True):
    """What a key may use in a window of `window` seconds; None is no limit."""

    requests: int | None
    tokens: int | None
    dollars: Decimal | None
    window: float


class QuotaStanding(Struct, frozen=True):
    """Where a key stands: `axis` names what refused (empty: admitted), `wait` is seconds until a slice is free again.

    `slice` is where an admitted attempt was counted: what it reserved is taken back from there.
    """

    axis: str = ""
    wait: float = 0.0
    slice: int = 0
    requests: int = 0
    tokens: int = 0
    dollars: Decimal = ZERO


class QuotaStore(Protocol):
    """Sliding windows of many workers; one atomic step and one round trip a call. Raises StoreError."""

    async def reserve(self, key: str, quote: Quote, limits: QuotaLimits) -> QuotaStanding:
        """Count a request with its bound in tokens and dollars when it fits, and say where the key stands."""
        ...

    async def standing(self, key: str, window: float) -> QuotaStanding:
        """Say where the key stands without counting anything."""
        ...

    async def settle(self, key: str, slice_: int, bound: Quote, tokens: int, dollars: Decimal, window: float) -> None:
        """Take a bound back from its slice, unless that has left the window, and count what was used now."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...
