"""What a provider says of its own limits."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["RateLimit"]


class RateLimit(Struct, frozen=True, kw_only=True):
    """What is left of a provider's limits, and in how many seconds they are full again; None was not said.

    `retry_after` is how long it asked to be left alone.
    """

    requests_left: int | None = None
    tokens_left: int | None = None
    requests_reset: float | None = None
    tokens_reset: float | None = None
    retry_after: float | None = None
