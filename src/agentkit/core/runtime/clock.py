"""Time as a port, so that deadlines, back-off and windows can be tested without waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Timer"]


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

    def now(self) -> float:
        """Return monotonic seconds, comparable to the running loop's time."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Return the aware time of day, UTC."""
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float, /) -> None:
        """Wait that long."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call back on the running loop when `now()` reaches `when`."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), callback)


SYSTEM_CLOCK = SystemClock()
