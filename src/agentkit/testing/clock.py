"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

__all__ = ["ManualClock"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = 20


class _Planned:
    """A timer; cancelling it forgets the callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback."""
        self.callback = None


class ManualClock:
    """Time for tests, in seconds: `advance` moves it and fires what is due, in order of its time.

    A woken sleeper runs when the loop next turns; `run_for` moves time step by step and lets the tasks run between, so
    that sleeps they start on the way fire too. `wall()` starts at 2026-01-01 UTC.
    """

    __slots__ = ("_now", "_number", "_planned", "slept")

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._planned: list[tuple[float, int, _Planned]] = []
        self._number = count()
        self.slept: list[float] = []

    def now(self) -> float:
        """Return the seconds it shows."""
        return self._now

    def wall(self) -> datetime:
        """Return the aware time of day that belongs to `now()`."""
        return _START + timedelta(seconds=self._now - 1000.0)

    async def sleep(self, seconds: float, /) -> None:
        """Wait until the clock has gone that far; kept in `slept`."""
        self.slept.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(self._now + seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_at(self, when: float, callback: Callable[[], None], /) -> _Planned:
        """Plan a callback for when the clock shows `when`."""
        planned = _Planned(callback)
        heapq.heappush(self._planned, (when, next(self._number), planned))
        return planned

    @property
    def pending(self) -> int:
        """Return how many timers and sleeps wait."""
        return sum(1 for _, _, planned in self._planned if planned.callback is not None)

    def advance(self, seconds: float) -> None:
        """Go on that far and fire everything due on the way, earliest first, each at its own time."""
        until = self._now + seconds
        while self._fire_next(until):
            pass
        self._now = until

    async def run_for(self, seconds: float) -> None:
        """Go on that far, letting tasks run after each timer and at the end."""
        until = self._now + seconds
        await _turns()
        while self._fire_next(until):
            await _turns()
        self._now = until
        await _turns()

    def _fire_next(self, until: float) -> bool:
        while self._planned and self._planned[0][0] <= until:
            when, _, planned = heapq.heappop(self._planned)
            callback = planned.callback
            if callback is None:
                continue
            self._now = max(self._now, when)
            planned.cancel()
            callback()
            return True
        return False


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
