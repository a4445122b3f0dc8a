"""Days and moments on the command line."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from agentkit.errors import ConfigurationError

__all__ = ["read_moment"]

_LAST = datetime.max.replace(tzinfo=UTC)


def read_moment(text: str, option: str, *, ends: bool = False) -> datetime:
    """Return the moment a text names, in UTC; a bare day is all of it, so as an end it is the next day's beginning."""
    try:
        day = _day(text)
        if day is None:
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        begins = datetime.combine(day, time(tzinfo=UTC))
        if not ends:
            return begins
        return _LAST if day == date.max else begins + timedelta(days=1)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{option} {text}: write a day such as 2026-12-01, or a moment in ISO form.") from None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
