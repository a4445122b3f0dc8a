"""What the headers of an answer say of the provider's limits."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from agentkit.core.contracts import RateLimit
from agentkit.providers.wire.failure import retry_after_of

__all__ = ["rate_limit_of"]

_SIGNS: Final = (
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-tokens-remaining",
    "x-ratelimit-remaining",
    "retry-after",
    "retry-after-ms",
)
_REQUESTS: Final = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
_TOKENS: Final = (
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 0.000001, "µs": 0.000001}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|[dhms])")
_EPOCH: Final = 1_000_000_000.0  # more seconds than that are a moment, not a span
_LONGEST: Final = 86_400.0 * 31


def rate_limit_of(headers: Mapping[str, str]) -> RateLimit | None:
    """Return what is left and when it is full again, None where the headers say nothing of it.

    Resets may be spans ("6m0s", "20ms", seconds), RFC 3339 moments, or moments in seconds or milliseconds. A number
    below zero means that the server does not know.
    """
    get = headers.get
    for name in _SIGNS:
        if get(name) is not None:
            break
    else:
        return None
    now = time.time()
    requests_left, requests_reset = _found(headers, _REQUESTS, now)
    tokens_left, tokens_reset = _found(headers, _TOKENS, now)
    limit = RateLimit(
        requests_left=requests_left,
        tokens_left=tokens_left,
        requests_reset=requests_reset,
        tokens_reset=tokens_reset,
        retry_after=retry_after_of(headers),
    )
    return None if limit == _NOTHING else limit


def _found(
    headers: Mapping[str, str], names: tuple[tuple[str, str], ...], now: float
) -> tuple[int | None, float | None]:
    for left_name, reset_name in names:
        left = _whole(headers.get(left_name))
        if left is not None:
            return left, _span(headers.get(reset_name), now)
    return None, None


def _whole(text: str | None) -> int | None:
    if text is None or not text.strip().isascii():
        return None
    digits = text.strip().partition(".")[0]
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None


def _span(text: str | None, now: float) -> float | None:
    """Return the seconds until a reset, None for nonsense."""
    if text is None or len(text) > 64:
        return None
    text = text.strip()
    seconds = _number(text, now)
    if seconds is None:
        parts = _PART.findall(text)
        if parts and "".join(number + unit for number, unit in parts) == text:
            seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        else:
            seconds = _moment(text, now)
    return seconds if seconds is not None and 0 <= seconds <= _LONGEST else None


def _number(text: str, now: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if number < _EPOCH:
        return number
    return max(0.0, (number / 1_000 if number > _EPOCH * 1_000 else number) - now)


def _moment(text: str, now: float) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)


_NOTHING: Final = RateLimit()
