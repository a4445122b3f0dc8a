"""Synchronous work beside the event loop, in a bounded number of threads."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from anyio import CapacityLimiter

__all__ = ["WORKER_THREADS", "in_thread"]

R = TypeVar("R")
WORKER_THREADS = 40


async def in_thread(work: Callable[[], R]) -> R:
    """Return what the work returns, run in a worker thread with the caller's context variables.

    A cancelled caller does not wait for the thread, but the thread counts until it ends: at most 40 run for an event
    loop, and further work waits for one of them.
    """
    from anyio import to_thread

    slots, uncounted = _limiters()
    job = _Job(work, slots, asyncio.get_running_loop())
    await slots.acquire_on_behalf_of(job)
    try:
        return await to_thread.run_sync(job.run, abandon_on_cancel=True, limiter=uncounted)
    finally:
        if job.claim():
            slots.release_on_behalf_of(job)


class _Job(Generic[R]):
    """Work that holds a slot until it has ended, or until it is certain never to begin."""

    def __init__(self, work: Callable[[], R], slots: CapacityLimiter, loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._slots = slots
        self._loop = loop
        self._lock = Lock()
        self._claimed = False

    def claim(self) -> bool:
        """Return True to the one that asks first: the thread, or the caller that gives up."""
        with self._lock:
            first = not self._claimed
            self._claimed = True
            return first

    def run(self) -> R:
        if not self.claim():
            raise RuntimeError("The caller was cancelled before the work began.")
        try:
            return self._work()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be gone by now, and its slots with it
                self._loop.call_soon_threadsafe(self._slots.release_on_behalf_of, self)


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[CapacityLimiter, CapacityLimiter]] = WeakKeyDictionary()


def _limiters() -> tuple[CapacityLimiter, CapacityLimiter]:
    from anyio import CapacityLimiter

    loop = asyncio.get_running_loop()
    found = _by_loop.get(loop)
    if found is None:
        found = _by_loop[loop] = CapacityLimiter(WORKER_THREADS), CapacityLimiter(math.inf)
    return found
