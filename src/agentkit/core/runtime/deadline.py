"""Until when a run may take."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isnan
from typing import TypeAlias

from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import ConfigurationError

__all__ = ["Deadline", "DeadlineLike", "to_deadline"]


class Deadline:
    """A point in monotonic time, shared by a run's whole tree."""

    __slots__ = ("at", "clock")

    def __init__(self, at: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.at = at
        self.clock = clock

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(clock.now() + seconds, clock)

    def remaining(self) -> float:
        """Return the seconds left, negative when it has passed."""
        return self.at - self.clock.now()

    @property
    def passed(self) -> bool:
        """Return whether no time is left."""
        return self.remaining() <= 0

    def __repr__(self) -> str:
        return f"Deadline({self.remaining():.3f} s left)"


DeadlineLike: TypeAlias = "Deadline | float | timedelta | datetime | None"


def to_deadline(value: DeadlineLike, clock: Clock = SYSTEM_CLOCK) -> Deadline | None:
    """Return the deadline for seconds from now, a timedelta, or an aware datetime; None stays None.

    Raises ConfigurationError for a naive datetime or a number that is no duration.
    """
    if value is None or isinstance(value, Deadline):
        return value
    if isinstance(value, timedelta):
        return Deadline.after(value.total_seconds(), clock)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigurationError(f"deadline={value!r} has no time zone; pass an aware datetime or seconds.")
        return Deadline.after((value - clock.wall()).total_seconds(), clock)
    given: object = value
    if isinstance(given, bool) or not isinstance(given, (int, float)) or isnan(given):
        raise ConfigurationError(f"deadline={value!r}: pass seconds from now, a timedelta or an aware datetime.")
    return Deadline.after(given, clock)
