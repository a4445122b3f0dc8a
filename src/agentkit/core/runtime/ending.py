"""What the error that ended an attempt says about it: how it ended, what it used, whether it was ever accepted."""

from __future__ import annotations

from msgspec import ValidationError, convert

from agentkit.core.contracts import Outcome, Usage
from agentkit.errors import AgentkitError, Cancelled, DeadlineExceeded, ProviderError, Refused

__all__ = ["never_accepted", "outcome_of", "usage_of"]


def outcome_of(error: BaseException) -> Outcome:
    """Return how an attempt ended that this error left."""
    if isinstance(error, GeneratorExit):
        return "closed"
    if isinstance(error, (Cancelled, DeadlineExceeded)) or not isinstance(error, Exception):
        return "cancelled"
    return "refused" if isinstance(error, Refused) else "error"


def usage_of(error: BaseException) -> Usage | None:
    """Return the usage the provider had reported before the error, None when it had not."""
    if not isinstance(error, AgentkitError) or not error.usage:
        return None
    try:
        return convert(dict(error.usage), Usage)
    except ValidationError:
        return None


def never_accepted(error: BaseException, *, started: bool) -> bool:
    """Return whether it is certain that no provider worked on the attempt.

    A model's error says so itself; our other errors mean it when nothing had arrived, except those that end a run in
    the middle. What is not certain counts as accepted.
    """
    if isinstance(error, ProviderError):
        return error.accepted is False
    stopped = isinstance(error, (Cancelled, DeadlineExceeded))
    return isinstance(error, AgentkitError) and not stopped and not started
