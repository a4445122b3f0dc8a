"""Fan-out slots: one pool a depth and event loop, so that parents never starve their children."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["SlotPools"]


class SlotPools:
    """Semaphores made on first use, one for each depth on each running loop."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] | None = None

    def at(self, depth: int, size: int) -> asyncio.Semaphore:
        """Return the pool of this depth on the running loop, `size` slots wide when it is new."""
        if self._pools is None:
            self._pools = WeakKeyDictionary()
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        pool = pools.get(depth)
        if pool is None:
            pool = pools[depth] = asyncio.Semaphore(size)
        return pool
