"""What a tenant may use a minute: requests, tokens and money in a sliding window."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
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
    add_money,
    render_money,
    subtract_money,
    to_money,
)
from agentkit.core.runtime.checks import at_least, choice
from agentkit.core.runtime.clock import Clock, as_clock
from agentkit.core.runtime.metering.admission import NOTHING_HELD, Held, Ticket
from agentkit.core.runtime.metering.estimate import request_tokens
from agentkit.core.runtime.metering.feedback import Feedback
from agentkit.core.runtime.metering.limits import Refusal, to_ceiling, to_dollars
from agentkit.core.runtime.metering.remote import RemoteWindows, said
from agentkit.core.runtime.metering.windows import SLICES, Window, tokens_used, unknown_rest
from agentkit.errors import ConfigurationError

__all__ = ["Quota"]

_WAIT = Refusal("queue", "other calls are waiting")
_NEVER = 86_400.0 * 365


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
        self._clock = as_clock(clock)
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._lock = threading.Lock()
        self._by = by
        self._priority = priority
        self._feedback = Feedback()
        choice("Quota", "on_error", on_error, ("open", "closed"))
        self._remote = None if store is None else RemoteWindows(store, on_error, self._clock)

    @property
    def max_usd(self) -> Decimal | None:
        """Return the ceiling in dollars a window; assigning another one counts for the calls to come."""
        return self._max_usd

    @max_usd.setter
    def max_usd(self, value: Money | None) -> None:
        with self._lock:
            self._max_usd = None if value is None else to_dollars(value, "max_usd")
            for window in self._windows.values():
                window.room.wake()

    @property
    def needs_quotes(self) -> bool:
        """Return whether a call's bound has to be known beforehand: tokens or money are limited."""
        return self.max_tpm is not None or self._max_usd is not None

    def ceiling(self) -> Decimal | None:
        """Return the ceiling in dollars a window, None without one."""
        return self._max_usd

    def spent_in_window(self, key: str) -> Decimal:
        """Return dollars the key spent in the window, exactly; a lower bound while a part is unpriced."""
        with self._lock:
            index = self._now_index()
            self._sweep(index)
            window = self._windows.get(key)
            if window is None:
                return ZERO
            window.expire(index)
            return window.sums.cost

    def held(self, key: str) -> Decimal:
        """Return dollars that attempts in flight have reserved for the key here, not those in a store."""
        with self._lock:
            window = self._windows.get(key)
            return ZERO if window is None else window.room.held.cost

    def keys(self) -> tuple[str, ...]:
        """Return the keys that hold memory now."""
        with self._lock:
            self._sweep(self._now_index())
            return tuple(self._windows)

    async def guard(self, call: Call[ChatRequest] | None = None, /) -> Charge:
        """Reserve a request and the call's bound for its tenant; without a call there is no tenant and all is well.

        Raises MeterExceeded, or returns a verdict that is not ok, when the call does not fit.
        """
        if call is None:
            return Charge(True)
        refused = await self.reserve(call)
        if refused is not None or self._remote is not None:
            return refused or Charge(True)
        with self._lock:
            return self._charge(self._touch(self._key(call)), None)

    async def reserve(self, call: Call[ChatRequest], /) -> Charge | None:
        """Reserve as `guard` does, and return None when the call is admitted: what the meter layer asks."""
        quote = call.quote
        if quote is None:
            tokens = request_tokens(call.request) if self.max_tpm is not None else 0
            quote = Quote(tokens)
        key = self._key(call)
        if self._remote is not None:
            return await self._reserve_remotely(self._remote, key, call, quote)
        with self._lock:
            window = self._touch(key)
            refusal = self._admit(key, window, call, quote, first=window.room.may_pass(call))
        if refusal is not None and self.on_exceeded == "wait" and not call.hedge:
            refusal = await self._wait(key, window, call, quote)
        return None if refusal is None else self._answer(self._charge(window, refusal))

    def settle(self, call: Call[ChatRequest], record: CostRecord, /) -> None:
        """Replace the attempt's reservation by what it used; never waits, never raises, never refuses."""
        self._book(call, record.usage, record.at_least, known=record.cost is not None, accepted=record.accepted)

    def resize(self, call: Call[ChatRequest], quote: Quote, /) -> None:
        """Reserve another bound for an attempt in flight, here; a store keeps the first one until it is settled."""
        if self._remote is not None:
            return
        with self._lock:
            window = self._windows.get(self._key(call))
            if window is not None:
                window.room.resize(call, quote)

    async def charge(self, call: Call[ChatRequest] | None, usage: Usage, /, *, cost: Money | None = None) -> Charge:
        """Book usage and its price in dollars (None: unpriced); always ok: what was used cannot be refused."""
        if call is None:
            return Charge(True)
        self._book(call, usage, ZERO if cost is None else to_money(cost), known=cost is not None, accepted=True)
        with self._lock:
            return Charge(True) if self._remote is not None else self._charge(self._touch(self._key(call)), None)

    def learn(self, call: Call[ChatRequest], limit: RateLimit, /) -> None:
        """Heed what the provider said of its limits in answer to the call."""
        with self._lock:
            self._feedback.learn(_served(self._key(call), call), limit, self._clock.now())

    async def flush(self) -> None:
        """Wait until a store has heard of everything that was settled."""
        if self._remote is not None:
            await self._remote.flush()

    def release(self, call: Call[ChatRequest], /) -> None:
        """Give tokens and money of an attempt back that provably did not reach the provider; the request stays."""
        if self._remote is not None:
            self._remote.settle(call, 0, ZERO, self.window)
            return
        with self._lock:
            window = self._windows.get(self._key(call))
            if window is not None:
                window.room.drop(call)
                window.room.wake()

    def _book(self, call: Call[ChatRequest], usage: Usage, cost: Decimal, *, known: bool, accepted: bool) -> None:
        """Count what was used; where only a part of the dollars is `known`, the rest of the bound stays taken."""
        if self._remote is not None:
            quote = self._remote.bound(call) if accepted else None
            dollars = cost if known else add_money(cost, unknown_rest(cost, quote))
            self._remote.settle(call, tokens_used(usage, quote), dollars, self.window)
            return
        with self._lock:
            window = self._touch(self._key(call))
            held = window.room.drop(call)
            bound = None if held is None or not accepted else held.quote
            window.add(
                window.touched,
                tokens=tokens_used(usage, bound),
                cost=cost,
                uncertain=ZERO if known else unknown_rest(cost, bound),
                unpriced=0 if known else 1,
            )
            window.room.wake()

    def _now_index(self) -> int:
        return int(self._clock.now() * SLICES // self.window)

    def _touch(self, key: str) -> Window:
        index = self._now_index()
        window = self._windows.get(key)
        if window is not None and window.touched == index:  # swept and expired in this very slice
            self._windows.move_to_end(key)
            return window
        self._sweep(index)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = Window()
        else:
            self._windows.move_to_end(key)
        window.touched = max(index, window.touched)
        window.expire(index)
        return window

    def _sweep(self, index: int) -> None:
        while self._windows:
            key = next(iter(self._windows))
            window = self._windows[key]
            if window.touched >= index - SLICES:
                return
            window.expire(index)
            if window.idle:
                del self._windows[key]
            else:  # a long attempt is still in flight: look again a window later
                window.touched = index
                self._windows.move_to_end(key)

    def _key(self, call: Call[ChatRequest]) -> str:
        return call.ctx.scope.key() if self._by is None else self._by(call)

    async def _reserve_remotely(
        self, remote: RemoteWindows, key: str, call: Call[ChatRequest], quote: Quote
    ) -> Charge | None:
        limits = QuotaLimits(self.max_rpm, self.max_tpm, self._max_usd, self.window)
        waits = self.on_exceeded == "wait" and not call.hedge
        refusal = await self._closed(key, call, quote, waits=waits)
        standing = QuotaStanding()
        if refusal is None:
            standing = await remote.reserve(key, call, quote, limits)
            if standing.axis and waits and self._lacks(Window(), NOTHING_HELD, quote) is None:
                standing = await remote.wait(key, call, quote, limits, self._rank(call), self._until(call))
            if standing.axis:
                refusal = Refusal(standing.axis, said(standing, limits, quote))
        if refusal is None:
            return None
        return self._answer(Charge(False, refusal.reason, standing.dollars, calls=standing.requests, axis=refusal.axis))

    async def _closed(self, key: str, call: Call[ChatRequest], quote: Quote, *, waits: bool) -> Refusal | None:
        """Return why the provider would turn the call away, after waiting for that to pass where one may."""
        until = self._until(call)
        while True:
            now = self._clock.now()
            with self._lock:
                refusal = self._feedback.lacks(_served(key, call), quote, 0, now)
                opens = self._feedback.until(_served(key, call), now)
            if refusal is None or not waits or opens is None or now >= until:
                return refusal
            await self._clock.sleep(max(0.0, min(opens, until) - now))

    def _rank(self, call: Call[ChatRequest]) -> int:
        return 0 if self._priority is None else self._priority(call)

    def _until(self, call: Call[ChatRequest]) -> float:
        left = call.ctx.remaining_time()
        return self._clock.now() + (_NEVER if left is None else left)

    def _admit(self, key: str, window: Window, call: Call[ChatRequest], quote: Quote, *, first: bool) -> Refusal | None:
        held = window.room.held
        refusal = self._lacks(window, held, quote)
        if refusal is None:
            in_flight = held.input_tokens + held.output_tokens
            refusal = self._feedback.lacks(_served(key, call), quote, in_flight, self._clock.now())
        if refusal is None and not first:
            refusal = _WAIT
        if refusal is None:
            window.room.hold(call, quote)
            window.add(window.touched, requests=1)
        return refusal

    def _lacks(self, window: Window, held: Held, quote: Quote) -> Refusal | None:
        """Return what the bound would cross; one that is unknown fits only while something is left."""
        sums = window.sums
        if self.max_rpm is not None and sums.requests + 1 > self.max_rpm:
            return Refusal("requests", f"requests {sums.requests + 1} > {self.max_rpm} in {self.window:g} s")
        if self.max_tpm is not None:
            tokens = sums.tokens + held.input_tokens + held.output_tokens + quote.input_tokens + quote.output_tokens
            if tokens > self.max_tpm:
                return Refusal("tokens", f"tokens up to {tokens} > {self.max_tpm} in {self.window:g} s")
        ceiling = self._max_usd
        if ceiling is None:
            return None
        money = add_money(window.committed, held.cost)
        if quote.cost is not None:
            money = add_money(money, quote.cost)
        if money > ceiling or (quote.cost is None and money >= ceiling):
            sign = ">" if money > ceiling else "reaches"
            return Refusal(
                "cost", f"cost up to ${render_money(money)} {sign} ${render_money(ceiling)} in {self.window:g} s"
            )
        return None

    async def _wait(self, key: str, window: Window, call: Call[ChatRequest], quote: Quote) -> Refusal | None:
        never = self._lacks(Window(), NOTHING_HELD, quote)
        if never is not None:
            return never
        until = self._until(call)
        with self._lock:
            ticket = window.room.enter(call.ctx.scope.tenant, self._rank(call))
        refusal: Refusal | None = _WAIT
        try:
            while True:
                with self._lock:
                    self._touch(key)
                    ticket.reset()
                    refusal = self._admit(key, window, call, quote, first=window.room.is_first(ticket))
                    at = self._look_again(_served(key, call), window, ticket, until)
                    if self._lacks(Window(), window.room.own(call), quote) is not None:
                        return refusal  # in vain: it does not fit beside what itself keeps open
                if refusal is None or self._clock.now() >= until:
                    return refusal
                await window.room.woken(ticket, at, self._clock)
        finally:
            with self._lock:
                window.room.leave(ticket, admitted=refusal is None)
                window.room.wake()

    def _look_again(self, served: str, window: Window, ticket: Ticket, until: float) -> float:
        """Return when a slice leaves the window or the provider opens, which only the first in the queue waits for."""
        if not window.room.is_first(ticket):
            return until
        expiry, opens = window.next_expiry, self._feedback.until(served, self._clock.now())
        moments = [until, *([] if expiry is None else [expiry * self.window / SLICES])]
        return min(moments if opens is None else [*moments, opens])

    def _charge(self, window: Window, refusal: Refusal | None) -> Charge:
        sums = window.sums
        ceiling = self._max_usd
        return Charge(
            refusal is None,
            "" if refusal is None else refusal.reason,
            sums.cost,
            None if ceiling is None else max(ZERO, subtract_money(ceiling, window.committed)),
            sums.requests,
            not sums.unpriced,
            axis="" if refusal is None else refusal.axis,
        )

    def _answer(self, charge: Charge) -> Charge:
        return charge if self.on_exceeded == "stop" else charge.raise_if_exceeded()


def _served(key: str, call: Call[ChatRequest]) -> str:
    """Return what a provider's word on its limits holds for: the key, and the model that it was said of."""
    route = call.route
    return key if route is None else f"{key}\n{route.provider}\n{route.model}"
