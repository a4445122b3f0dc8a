"""Time as a port, so that deadlines, back-off and windows can be tested without waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Timer", "as_clock"]


class Timer(Protocol):
    """A planned callback."""

    def cancel(self) -> None:
        """Forget the callback; after it ran this does nothing."""
        ...


class Clock(Protocol):
    """Where the time comes from; seconds everywhere."""

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def wall(self) -> datetime:
        """Return the aware time of day, UTC."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait that long."""
        ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call back on the running loop when `now()` reaches `when`."""
        ...


class SystemClock:
    """The machine's own time."""

    now = staticmethod(time.monotonic)  # comparable to the running loop's time

    def wall(self) -> datetime:
        """Return the aware time of day, UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float, /) -> None:
        """Wait that long."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call back on the running loop when `now()` reaches `when`."""
        return asyncio.get_running_loop().call_later(max(0.0, when - self.now()), callback)


class _FunctionClock(SystemClock):
    """The machine's clock with monotonic seconds out of a function."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> float:
        """Return the function's seconds."""
        return self._now()


SYSTEM_CLOCK = SystemClock()


def as_clock(clock: Clock | Callable[[], float]) -> Clock:
    """Return the clock itself, or one whose `now()` is this function, such as `time.monotonic`."""
    if not callable(clock):
        return clock
    return SYSTEM_CLOCK if clock is time.monotonic else _FunctionClock(clock)
