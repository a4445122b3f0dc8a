"""What a tenant may use a minute: requests, tokens and money in a sliding window."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

from agentkit.core.contracts import (
    ZERO,
    Call,
    Charge,
    ChatRequest,
    CostRecord,
    Money,
    QuotaLimits,
    QuotaStanding,
    QuotaStore,
    Quote,
    RateLimit,
    Usage,
    to_money,
)
from agentkit.core.runtime.checks import at_least, choice
from agentkit.core.runtime.clock import Clock, as_clock
from agentkit.core.runtime.metering.estimate import request_tokens
from agentkit.core.runtime.metering.feedback import Feedback
from agentkit.core.runtime.metering.limits import to_ceiling, to_dollars
from agentkit.core.runtime.metering.local import LocalWindows
from agentkit.core.runtime.metering.remote import RemoteWindows
from agentkit.errors import ConfigurationError

__all__ = ["Quota"]


class Quota:
    """Ceilings for each key over the last `window` seconds: requests, total tokens, dollars.

    Every attempt reserves a request, its tokens and its money before it starts; `settle` replaces the bound by what
    was used, `release` gives tokens and money back but never the request. `on_exceeded` "raise" raises MeterExceeded,
    "stop" returns a verdict that is not ok, "wait" waits in the key's own queue, at most until the deadline. What can
    never fit is refused at once. The key is `scope.key()`, or what `by(call)` returns: a key that tenants share, such
    as a provider, lets them in by turns, lower `priority(call)` first. A provider that says it is full, by a 429 or in
    its headers, is left alone for so long by calls of that key to that model. Constant memory a key; a key
    without traffic is deleted. Safe to share between threads and event loops.

    `store` keeps the windows for many workers; then `on_error` "closed" refuses calls while it cannot answer, "open"
    lets them through uncounted, and corrections reach it a moment later (`flush` waits for them).
    Raises MoneyPrecisionError or ConfigurationError for a limit that cannot mean anything.
    """

    def __init__(
        self,
        max_rpm: int | None = None,
        max_tpm: int | None = None,
        max_usd: Money | None = None,
        window: float = 60.0,
        clock: Clock | Callable[[], float] = time.monotonic,
        on_exceeded: Literal["raise", "stop", "wait"] = "raise",
        *,
        by: Callable[[Call[ChatRequest]], str] | None = None,
        priority: Callable[[Call[ChatRequest]], int] | None = None,
        store: QuotaStore | None = None,
        on_error: Literal["open", "closed"] = "closed",
    ) -> None:
        self.max_rpm = at_least("Quota", "max_rpm", max_rpm, 0)
        self.max_tpm = at_least("Quota", "max_tpm", max_tpm, 0)
        self._max_usd = to_ceiling(max_usd, "max_usd")
        if not 0 < window < float("inf"):
            raise ConfigurationError(f"Quota(window={window!r}): pass seconds above 0.")
        self.window = window
        self.on_exceeded = choice("Quota", "on_exceeded", on_exceeded, ("raise", "stop", "wait"))
        self._by = by
        choice("Quota", "on_error", on_error, ("open", "closed"))
        self._clock = as_clock(clock)
        self._feedback = Feedback()
        self._local = LocalWindows(self._limits, self._clock, self._feedback, priority)
        self._remote = (
            None
            if store is None
            else RemoteWindows(store, on_error, self._limits, self._clock, self._feedback, priority)
        )
        self._windows = self._remote or self._local

    @property
    def max_usd(self) -> Decimal | None:
        """Return the ceiling in dollars a window; assigning another one counts for the calls to come."""
        return self._max_usd

    @max_usd.setter
    def max_usd(self, value: Money | None) -> None:
        self._max_usd = None if value is None else to_dollars(value, "max_usd")
        self._local.wake()

    @property
    def needs_quotes(self) -> bool:
        """Return whether a call's bound has to be known beforehand: tokens or money are limited."""
        return self.max_tpm is not None or self._max_usd is not None

    def ceiling(self) -> Decimal | None:
        """Return the ceiling in dollars a window, None without one."""
        return self._max_usd

    def spent_in_window(self, key: str) -> Decimal:
        """Return dollars the key spent in the window, exactly; a lower bound while a part is unpriced.

        Raises ConfigurationError when a store keeps the windows: only `standing` can ask it.
        """
        if self._remote is not None:
            raise ConfigurationError("This quota's windows are in its store: use `await quota.standing(key)`.")
        return self._local.spent(key)

    def held(self, key: str) -> Decimal:
        """Return dollars that attempts in flight have reserved for the key here, not those in a store."""
        return self._local.held(key)

    async def standing(self, key: str) -> QuotaStanding:
        """Return what counts for the key now: requests, tokens and dollars, attempts in flight at their bound.

        Raises StoreError when a store keeps the windows and cannot answer.
        """
        return await self._windows.standing(key)

    def keys(self) -> tuple[str, ...]:
        """Return the keys that hold memory in this process now."""
        return self._local.keys()

    async def guard(self, call: Call[ChatRequest] | None = None, /) -> Charge:
        """Reserve a request and the call's bound for its tenant; without a call there is no tenant and all is well.

        Raises MeterExceeded, or returns a verdict that is not ok, when the call does not fit.
        """
        if call is None:
            return Charge(True)
        refused = await self.reserve(call)
        return self._windows.verdict(self._key(call)) if refused is None else refused

    async def reserve(self, call: Call[ChatRequest], /) -> Charge | None:
        """Reserve as `guard` does, and return None when the call is admitted: what the meter layer asks."""
        quote = call.quote
        if quote is None:
            quote = Quote(request_tokens(call.request) if self.max_tpm is not None else 0)
        waits = self.on_exceeded == "wait" and not call.hedge
        refused = await self._windows.reserve(self._key(call), call, quote, waits=waits)
        if refused is None or self.on_exceeded == "stop":
            return refused
        return refused.raise_if_exceeded()

    def settle(self, call: Call[ChatRequest], record: CostRecord, /) -> None:
        """Replace the attempt's reservation by what it used; never waits, never raises, never refuses."""
        self._windows.settle(
            self._key(call),
            call,
            record.usage,
            record.at_least,
            known=record.cost is not None,
            accepted=record.accepted,
        )

    def resize(self, call: Call[ChatRequest], quote: Quote, /) -> None:
        """Reserve another bound for an attempt in flight, here; a store keeps the first one until it is settled."""
        self._windows.resize(self._key(call), call, quote)

    async def charge(self, call: Call[ChatRequest] | None, usage: Usage, /, *, cost: Money | None = None) -> Charge:
        """Book usage and its price in dollars (None: unpriced); always ok: what was used cannot be refused."""
        if call is None:
            return Charge(True)
        key = self._key(call)
        dollars = ZERO if cost is None else to_money(cost)
        self._windows.settle(key, call, usage, dollars, known=cost is not None, accepted=True)
        return self._windows.verdict(key)

    def learn(self, call: Call[ChatRequest], limit: RateLimit, /) -> None:
        """Heed what the provider said of its limits in answer to the call."""
        self._feedback.learn(self._key(call), call.route, limit, self._clock.now())

    async def flush(self) -> None:
        """Wait until a store has heard of everything that was settled."""
        await self._windows.flush()

    def release(self, call: Call[ChatRequest], /) -> None:
        """Give tokens and money of an attempt back that provably did not reach the provider; the request stays."""
        self._windows.release(self._key(call), call)

    def _limits(self) -> QuotaLimits:
        return QuotaLimits(self.max_rpm, self.max_tpm, self._max_usd, self.window)

    def _key(self, call: Call[ChatRequest]) -> str:
        return call.ctx.scope.key() if self._by is None else self._by(call)
