"""The words of the ledger: one row an attempt, ceilings shared by workers, and questions about costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.money import ZERO
from agentkit.core.contracts.pricing import CostRecord
from agentkit.errors import ConfigurationError

__all__ = [
    "CostDimension",
    "CostQuery",
    "CostSum",
    "EntryPage",
    "EntryState",
    "LedgerEntry",
    "LedgerStore",
    "SharedCeiling",
    "SharedRefusal",
    "SharedSpend",
]

CostDimension: TypeAlias = Literal["tenant", "user", "session", "agent", "run", "provider", "model", "purpose", "day"]
EntryState: TypeAlias = Literal["open", "settled", "lost"]


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """One attempt in the ledger: its record, whose it is, and where it stands at `at`.

    "open" was begun and may have reached the provider; "settled" is over; "lost" was begun by a worker that never told
    its end. Only a settled one has a cost that can be known. Its identity is the tenant's run, call and attempt.
    """

    tenant: str
    record: CostRecord
    at: datetime
    user: str | None = None
    session: str | None = None
    state: EntryState = "settled"

    @property
    def id(self) -> tuple[str, str, str, int]:
        """Return what makes the attempt one row, however often it is told."""
        return self.tenant, self.record.run_id, self.record.call_id, self.record.attempt

    @property
    def complete(self) -> bool:
        """Return whether all of the attempt's cost is known."""
        return self.state == "settled" and self.record.cost is not None


class SharedCeiling(Struct, frozen=True):
    """Dollars that all workers over one ledger may spend together under a key, such as "acme/2026-12".

    Raises ConfigurationError for a key with line breaks or other signs that nobody can see.
    """

    key: str
    dollars: Decimal

    def __post_init__(self) -> None:
        if not self.key or not self.key.isprintable():
            raise ConfigurationError(f"shared={self.key!r}: pass a key of printable signs, such as 'acme/2026-12'.")


class SharedSpend(Struct, frozen=True):
    """What stands under a key: dollars spent, held by attempts in flight, and uncertain for good."""

    spent: Decimal = ZERO
    held: Decimal = ZERO
    uncertain: Decimal = ZERO


class SharedRefusal(Struct, frozen=True):
    """Why an attempt was not begun; `in_flight` says that it would fit once those in flight are over."""

    ceiling: SharedCeiling
    standing: SharedSpend
    in_flight: bool


class CostQuery(Struct, frozen=True, kw_only=True):
    """Which rows are asked for: of one tenant (None: all, for a host's own reports), from `since` until before `until`.

    `by` are the dimensions of the sums, in the order of their key. Raises ConfigurationError for a moment without a
    time zone.
    """

    tenant: str | None
    by: tuple[CostDimension, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    session: str | None = None
    agent: str | None = None
    run_id: str | None = None
    provider: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigurationError(f"CostQuery({name}={moment!r}): give it a time zone, such as tzinfo=UTC.")


class CostSum(Struct, frozen=True, kw_only=True):
    """The sum of a group of rows; `known_cost` is exact, and a lower bound while `incomplete` attempts are in it.

    `calls` are logical calls that were accepted, `attempts` all rows. Tokens are those that were reported or
    estimated; `unknown` attempts reported none, `estimated` ones were estimated here.
    """

    key: tuple[str, ...]
    calls: int = 0
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    known_cost: Decimal = ZERO
    incomplete: int = 0
    unknown: int = 0
    estimated: int = 0

    @property
    def cost(self) -> Decimal | None:
        """Return the dollars, None while a part of them is unknown."""
        return None if self.incomplete else self.known_cost


class EntryPage(Struct, frozen=True):
    """Rows in the order they were begun; `next` asks for those after them, None at the end."""

    entries: tuple[LedgerEntry, ...]
    next: int | None = None


class LedgerStore(Protocol):
    """The append-only record of what was spent. A row that is settled never changes; another tenant's is not found."""

    async def begin(
        self,
        entry: LedgerEntry,
        *,
        hold: Decimal = ZERO,
        ceilings: Sequence[SharedCeiling] = (),
        lease: float = 600.0,
    ) -> SharedRefusal | None:
        """Add an open row and hold its bound in dollars under every ceiling, or do nothing and say which is in the way.

        One atomic step over all workers. After `lease` seconds without an end the row is lost and what it held is
        free again. Beginning the same attempt again changes nothing.
        """
        ...

    async def settle(self, entries: Sequence[LedgerEntry]) -> None:
        """Tell how attempts ended, begun or not; what they held is replaced by what they cost.

        A row that is settled already stays as it is, so telling it again does no harm. An accepted attempt without a
        price stays held at its bound, as uncertain.
        """
        ...

    async def entries(self, query: CostQuery, *, after: int = 0, limit: int = 1000) -> EntryPage:
        """Return the rows the query asks for, at most `limit` of them."""
        ...

    async def totals(self, query: CostQuery) -> list[CostSum]:
        """Return a sum for each value of the query's dimensions, ordered by key."""
        ...

    async def standing(self, key: str) -> SharedSpend:
        """Return what stands under a shared key."""
        ...
