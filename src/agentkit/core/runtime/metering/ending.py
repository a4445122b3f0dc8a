"""What the error that ended an attempt says about it: how it ended, what it used, whether it was ever accepted."""

from __future__ import annotations

from contextlib import suppress

from msgspec import ValidationError, convert
from msgspec.structs import replace

from agentkit.core.contracts import Outcome, RateLimit, Reported, Usage
from agentkit.errors import (
    AgentkitError,
    Cancelled,
    DeadlineExceeded,
    MeterExceeded,
    ProviderError,
    RateLimited,
    Refused,
)

__all__ = [
    "MOST_TOKENS",
    "limit_of",
    "never_accepted",
    "outcome_of",
    "plausible",
    "reported_of",
    "unsent",
    "usage_of",
]

MOST_TOKENS = 2**53
_UNSENT = "_agentkit_unsent"
_PARTS = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens")


def outcome_of(error: BaseException) -> Outcome:
    """Return how an attempt ended that this error left."""
    if isinstance(error, (GeneratorExit, MeterExceeded)):
        return "closed"
    if isinstance(error, (Cancelled, DeadlineExceeded)) or not isinstance(error, Exception):
        return "cancelled"
    return "refused" if isinstance(error, Refused) else "error"


def usage_of(error: BaseException) -> Usage | None:
    """Return the usage the provider had reported before the error, None when it had not."""
    if not isinstance(error, AgentkitError) or not error.usage:
        return None
    try:
        return plausible(convert(dict(error.usage), Usage))
    except ValidationError:
        return None


def reported_of(error: BaseException) -> Reported | None:
    """Return what the provider had told of the bill before the error, None when it had not."""
    if not isinstance(error, ProviderError) or not (error.raw_usage or error.service_tier or error.billing):
        return None
    told = {"raw": error.raw_usage, "service_tier": error.service_tier, "billing": dict(error.billing)}
    try:
        return convert(told, Reported)
    except ValidationError:
        return None


def limit_of(error: BaseException) -> RateLimit | None:
    """Return what a provider that was asked too often says of its limits, None when it says nothing."""
    if not isinstance(error, RateLimited) or not (error.rate_limit or error.retry_after is not None):
        return None
    try:
        return convert({**error.rate_limit, "retry_after": error.retry_after}, RateLimit)
    except ValidationError:
        return None


def plausible(usage: Usage) -> Usage:
    """Return what can be true of it: no server gives tokens back, so a negative number is as good as none."""
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.reasoning_tokens,
    )
    for tokens in counts:
        if tokens and not 0 < tokens <= MOST_TOKENS:
            return _without_impossible(usage)
    return usage


def _without_impossible(usage: Usage) -> Usage:
    return replace(
        usage,
        input_tokens=usage.input_tokens if _possible(usage.input_tokens) else None,
        output_tokens=usage.output_tokens if _possible(usage.output_tokens) else None,
        **{name: 0 for name in _PARTS if not _possible(getattr(usage, name))},
    )


def _possible(tokens: int | None) -> bool:
    return tokens is None or 0 <= tokens <= MOST_TOKENS


def never_accepted(error: BaseException, *, started: bool) -> bool:
    """Return whether it is certain that no provider worked on the attempt.

    A model's error says so itself, and `unsent` of any other; our own errors mean it when nothing had arrived, except
    those that end a run in the middle. What is not certain counts as accepted.
    """
    if getattr(error, _UNSENT, False):
        return True
    if isinstance(error, ProviderError):
        return error.accepted is False
    stopped = isinstance(error, (Cancelled, DeadlineExceeded))
    return isinstance(error, AgentkitError) and not stopped and not started


def unsent(error: BaseException) -> None:
    """Say of an error, or of a cancellation, that the attempt it ends had not been sent yet."""
    with suppress(Exception):
        setattr(error, _UNSENT, True)
