"""A quota whose windows are kept in this process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal

from agentkit.core.contracts import (
    ZERO,
    Call,
    Charge,
    ChatRequest,
    QuotaLimits,
    QuotaStanding,
    Quote,
    Usage,
    add_money,
    subtract_money,
)
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.metering.admission import NOTHING_HELD, Held, Ticket
from agentkit.core.runtime.metering.feedback import Feedback
from agentkit.core.runtime.metering.limits import Refusal
from agentkit.core.runtime.metering.windows import (
    SLICES,
    Priority,
    Window,
    latest,
    over_dollars,
    over_requests,
    over_tokens,
    rank,
    tokens_used,
    unknown_rest,
)

__all__ = ["LocalWindows"]

_WAIT = Refusal("queue", "other calls are waiting")


class LocalWindows:
    """Reserves, waits and counts in memory; a key without traffic is deleted. Safe between threads and event loops."""

    def __init__(
        self, limits: Callable[[], QuotaLimits], clock: Clock, feedback: Feedback, priority: Priority | None
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._feedback = feedback
        self._priority = priority
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._lock = threading.Lock()

    async def reserve(self, key: str, call: Call[ChatRequest], quote: Quote, *, waits: bool) -> Charge | None:
        """Reserve a bound, in turn when the call waits; None when it is admitted, else the verdict."""
        limits = self._limits()
        with self._lock:
            window = self._touch(key, limits)
            refusal = self._admit(key, window, call, quote, limits, first=window.room.may_pass(call))
        if refusal is not None and waits:
            refusal = await self._wait(key, window, call, quote)
        return None if refusal is None else _charge(window, limits, refusal)

    def settle(
        self, key: str, call: Call[ChatRequest], usage: Usage, cost: Decimal, *, known: bool, accepted: bool
    ) -> None:
        """Replace an attempt's bound, when it has one, by what it used.

        Where only a part of the dollars is `known`, the rest of the bound stays taken.
        """
        with self._lock:
            window = self._touch(key, self._limits())
            held = window.room.drop(call)
            bound = None if held is None or not accepted else held.quote
            window.use(tokens_used(usage, bound), cost, None if known else unknown_rest(cost, bound))
            window.room.wake()

    def release(self, key: str, call: Call[ChatRequest]) -> None:
        """Give an attempt's tokens and money back."""
        with self._lock:
            window = self._windows.get(key)
            if window is not None:
                window.room.drop(call)
                window.room.wake()

    def resize(self, key: str, call: Call[ChatRequest], quote: Quote) -> None:
        """Reserve another bound for an attempt in flight."""
        with self._lock:
            window = self._windows.get(key)
            if window is not None:
                window.room.resize(call, quote)

    def verdict(self, key: str) -> Charge:
        """Return where a key stands, as the answer to a call that was admitted or booked."""
        limits = self._limits()
        with self._lock:
            return _charge(self._touch(key, limits), limits, None)

    async def standing(self, key: str) -> QuotaStanding:
        """Return what counts for the key now, attempts in flight at their bound."""
        with self._lock:
            window = self._look(key)
            if window is None:
                return QuotaStanding()
            sums, held = window.sums, window.room.held
            tokens = sums.tokens + held.input_tokens + held.output_tokens
            return QuotaStanding(requests=sums.requests, tokens=tokens, dollars=add_money(window.committed, held.cost))

    def held(self, key: str) -> Decimal:
        """Return dollars that attempts in flight have reserved for the key."""
        with self._lock:
            window = self._windows.get(key)
            return ZERO if window is None else window.room.held.cost

    def spent(self, key: str) -> Decimal:
        """Return dollars the key spent in the window, without what is unpriced."""
        with self._lock:
            window = self._look(key)
            return ZERO if window is None else window.sums.cost

    def keys(self) -> tuple[str, ...]:
        """Return the keys that hold memory now."""
        with self._lock:
            self._sweep(self._now_index(self._limits().window))
            return tuple(self._windows)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self._lock:
            for window in self._windows.values():
                window.room.wake()

    async def flush(self) -> None:
        """Return at once: nothing is told later."""

    def _now_index(self, seconds: float) -> int:
        return int(self._clock.now() * SLICES // seconds)

    def _look(self, key: str) -> Window | None:
        index = self._now_index(self._limits().window)
        self._sweep(index)
        window = self._windows.get(key)
        if window is not None:
            window.expire(index)
        return window

    def _touch(self, key: str, limits: QuotaLimits) -> Window:
        index = self._now_index(limits.window)
        window = self._windows.get(key)
        if window is not None and window.touched == index:  # swept, expired and moved in this very slice
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

    def _admit(
        self, key: str, window: Window, call: Call[ChatRequest], quote: Quote, limits: QuotaLimits, *, first: bool
    ) -> Refusal | None:
        held = window.room.held
        refusal = _lacks(window, held, quote, limits)
        if refusal is None:
            in_flight = held.input_tokens + held.output_tokens
            refusal = self._feedback.lacks(key, call.route, quote, in_flight, self._clock.now())
        if refusal is None and not first:
            refusal = _WAIT
        if refusal is None:
            window.room.hold(call, quote)
            window.newest().requests += 1
            window.sums.requests += 1
        return refusal

    async def _wait(self, key: str, window: Window, call: Call[ChatRequest], quote: Quote) -> Refusal | None:
        never = _lacks(Window(), NOTHING_HELD, quote, self._limits())
        if never is not None:
            return never
        until = latest(call, self._clock)
        with self._lock:
            ticket = window.room.enter(call.ctx.scope.tenant, rank(call, self._priority))
        refusal: Refusal | None = _WAIT
        try:
            while True:
                limits = self._limits()
                with self._lock:
                    self._touch(key, limits)
                    ticket.reset()
                    refusal = self._admit(key, window, call, quote, limits, first=window.room.is_first(ticket))
                    at = self._look_again(key, call, window, ticket, limits, until)
                    if _lacks(Window(), window.room.own(call), quote, limits) is not None:
                        return refusal  # in vain: it does not fit beside what itself keeps open
                if refusal is None or self._clock.now() >= until:
                    return refusal
                await window.room.woken(ticket, at, self._clock)
        finally:
            with self._lock:
                window.room.leave(ticket, admitted=refusal is None)
                window.room.wake()

    def _look_again(
        self, key: str, call: Call[ChatRequest], window: Window, ticket: Ticket, limits: QuotaLimits, until: float
    ) -> float:
        """Return when a slice leaves the window or the provider opens, which only the first in the queue waits for."""
        if not window.room.is_first(ticket):
            return until
        expiry, opens = window.next_expiry, self._feedback.until(key, call.route, self._clock.now())
        moments = [until, *([] if expiry is None else [expiry * limits.window / SLICES])]
        return min(moments if opens is None else [*moments, opens])


def _lacks(window: Window, held: Held, quote: Quote, limits: QuotaLimits) -> Refusal | None:
    """Return what the bound would cross; one that is unknown fits only while something is left."""
    sums = window.sums
    if limits.requests is not None and sums.requests + 1 > limits.requests:
        return over_requests(sums.requests + 1, limits)
    if limits.tokens is not None:
        tokens = sums.tokens + held.input_tokens + held.output_tokens + quote.input_tokens + quote.output_tokens
        if tokens > limits.tokens:
            return over_tokens(tokens, limits)
    ceiling = limits.dollars
    if ceiling is None:
        return None
    money = add_money(window.committed, held.cost)
    if quote.cost is not None:
        money = add_money(money, quote.cost)
    if money > ceiling or (quote.cost is None and money >= ceiling):
        return over_dollars(money, limits)
    return None


def _charge(window: Window, limits: QuotaLimits, refusal: Refusal | None) -> Charge:
    sums, ceiling = window.sums, limits.dollars
    return Charge(
        refusal is None,
        "" if refusal is None else refusal.reason,
        sums.cost,
        None if ceiling is None else max(ZERO, subtract_money(ceiling, window.committed)),
        sums.requests,
        not sums.unpriced,
        axis="" if refusal is None else refusal.axis,
    )
