"""A ledger that forgets nothing when its store fails for a while."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal

from agentkit.core.contracts import (
    ZERO,
    CostQuery,
    CostSum,
    EntryPage,
    LedgerEntry,
    LedgerStore,
    SharedCeiling,
    SharedRefusal,
    SharedSpend,
)
from agentkit.errors import StoreError

__all__ = ["PatientLedger"]

_LOG = logging.getLogger("agentkit")
_MOST_KEPT = 10_000


class PatientLedger:
    """Keeps ends that its store could not write, and tells them again with the next one, under the same identity.

    At most 10,000 of them; the oldest is given up first, and logged. `flush` writes what is kept; whoever closes the
    store calls it before.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, str, str, int], LedgerEntry] = OrderedDict()

    @property
    def kept(self) -> int:
        """Return how many ends wait for the store."""
        return len(self._kept)

    async def begin(
        self,
        entry: LedgerEntry,
        *,
        hold: Decimal = ZERO,
        ceilings: Sequence[SharedCeiling] = (),
        lease: float = 600.0,
    ) -> SharedRefusal | None:
        """Begin the attempt in the store; raises its error when it cannot write."""
        return await self._store.begin(entry, hold=hold, ceilings=ceilings, lease=lease)

    async def settle(self, entries: Sequence[LedgerEntry]) -> None:
        """Tell the ends, and those that are kept; what cannot be written now is kept."""
        for entry in entries:
            self._kept.setdefault(entry.id, entry)
        while len(self._kept) > _MOST_KEPT:
            _, lost = self._kept.popitem(last=False)
            _LOG.error("The ledger lost call %s of run %s", lost.record.call_id, lost.record.run_id)
        try:
            await self.flush()
        except StoreError as error:
            _LOG.warning("%d ends wait for the ledger: %s", len(self._kept), error.message)

    async def flush(self) -> None:
        """Write what is kept; raises StoreError, and keeps it, when the store cannot."""
        telling = list(self._kept.values())
        if not telling:
            return
        try:
            await self._store.settle(telling)
        except StoreError:
            if len(telling) == 1:
                raise
            await self._tell_apart(telling)
        else:
            self._forget(telling)

    async def _tell_apart(self, telling: Sequence[LedgerEntry]) -> None:
        """Tell each on its own, so that one that no store takes keeps no other back; stops where the store is gone.

        That is when the newest and the oldest fail both: the store's error is raised.
        """
        failed: StoreError | None = None
        for number, entry in enumerate((telling[-1], *telling[:-1])):
            try:
                await self._store.settle([entry])
            except StoreError as error:
                if failed is not None and number == 1:
                    raise
                failed = error
            else:
                self._forget([entry])
        if failed is not None:
            raise failed

    def _forget(self, told: Sequence[LedgerEntry]) -> None:
        for entry in told:
            self._kept.pop(entry.id, None)

    async def entries(self, query: CostQuery, *, after: int = 0, limit: int = 1000) -> EntryPage:
        """Return the store's rows."""
        return await self._store.entries(query, after=after, limit=limit)

    async def totals(self, query: CostQuery) -> list[CostSum]:
        """Return the store's sums."""
        return await self._store.totals(query)

    async def standing(self, key: str) -> SharedSpend:
        """Return what stands under a shared key."""
        return await self._store.standing(key)
