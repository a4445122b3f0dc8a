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
    Quote,
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
from agentkit.core.runtime.metering.limits import Refusal, to_ceiling
from agentkit.core.runtime.metering.windows import SLICES, Window
from agentkit.errors import ConfigurationError

__all__ = ["Quota"]

_WAIT = Refusal("queue", "other calls are waiting")
_NEVER = 86_400.0 * 365


class Quota:
    """Ceilings for each `scope.key()` over the last `window` seconds: requests, total tokens, dollars.

    Every attempt reserves a request, its tokens and its money before it starts; `settle` replaces the bound by what
    was used, `release` gives tokens and money back but never the request. `on_exceeded` "raise" raises MeterExceeded,
    "stop" returns a verdict that is not ok, "wait" waits in the tenant's own queue, at most until the deadline.
    Constant memory a key; a key without traffic is deleted. Safe to share between threads and event loops.
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

    @property
    def max_usd(self) -> Decimal | None:
        """Return the ceiling in dollars a window; assigning another one counts for the calls to come."""
        return self._max_usd

    @max_usd.setter
    def max_usd(self, value: Money | None) -> None:
        with self._lock:
            self._max_usd = None if value is None else to_money(value)
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
        quote = call.quote
        if quote is None:
            tokens = request_tokens(call.request) if self.max_tpm is not None else 0
            quote = Quote(tokens)
        key = call.ctx.scope.key()
        with self._lock:
            window = self._touch(key)
            refusal = self._admit(window, call, quote, first=window.room.may_pass(call))
        if refusal is not None and self.on_exceeded == "wait" and not call.hedge:
            refusal = await self._wait(key, window, call, quote)
        return self._answer(window, refusal)

    def settle(self, call: Call[ChatRequest], record: CostRecord, /) -> Charge:
        """Replace the attempt's reservation by what it used; never waits, never raises, never refuses."""
        return self._book(call, record.usage, record.cost, accepted=record.accepted)

    async def charge(self, call: Call[ChatRequest] | None, usage: Usage, /, *, cost: Money | None = None) -> Charge:
        """Book usage and its price in dollars (None: unpriced); always ok: what was used cannot be refused."""
        if call is None:
            return Charge(True)
        return self._book(call, usage, None if cost is None else to_money(cost), accepted=True)

    def release(self, call: Call[ChatRequest], /) -> None:
        """Give tokens and money of an attempt back that provably did not reach the provider; the request stays."""
        with self._lock:
            window = self._windows.get(call.ctx.scope.key())
            if window is not None:
                window.room.drop(call)
                window.room.wake()

    def _book(self, call: Call[ChatRequest], usage: Usage, cost: Decimal | None, *, accepted: bool) -> Charge:
        with self._lock:
            window = self._touch(call.ctx.scope.key())
            held = window.room.drop(call)
            bound = None if held is None or not accepted else held.quote
            tokens = usage.total_tokens
            if tokens is None:
                known = (usage.input_tokens or 0) + (usage.output_tokens or 0)
                tokens = known if bound is None else max(known, bound.input_tokens + bound.output_tokens)
            uncertain = ZERO if cost is not None or bound is None or bound.cost is None else bound.cost
            window.add(
                window.touched,
                tokens=tokens,
                cost=cost or ZERO,
                uncertain=uncertain,
                unpriced=1 if cost is None else 0,
            )
            window.room.wake()
            return self._charge(window, None)

    def _now_index(self) -> int:
        return int(self._clock.now() * SLICES // self.window)

    def _touch(self, key: str) -> Window:
        index = self._now_index()
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

    def _admit(self, window: Window, call: Call[ChatRequest], quote: Quote, *, first: bool) -> Refusal | None:
        refusal = self._lacks(window, window.room.held, quote)
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
        left = call.ctx.remaining_time()
        until = self._clock.now() + (_NEVER if left is None else left)
        with self._lock:
            ticket = window.room.enter()
        try:
            while True:
                with self._lock:
                    self._touch(key)
                    ticket.reset()
                    refusal = self._admit(window, call, quote, first=window.room.is_first(ticket))
                    at = self._look_again(window, ticket, until)
                    if self._lacks(Window(), window.room.own(call), quote) is not None:
                        return refusal  # in vain: it does not fit beside what itself keeps open
                if refusal is None or self._clock.now() >= until:
                    return refusal
                await window.room.woken(ticket, at, self._clock)
        finally:
            with self._lock:
                window.room.leave(ticket)
                window.room.wake()

    def _look_again(self, window: Window, ticket: Ticket, until: float) -> float:
        """Return when a slice leaves the window, which only the first in the queue waits for."""
        expiry = window.next_expiry
        if expiry is None or not window.room.is_first(ticket):
            return until
        return min(until, expiry * self.window / SLICES)

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

    def _answer(self, window: Window, refusal: Refusal | None) -> Charge:
        charge = self._charge(window, refusal)
        return charge if charge.ok or self.on_exceeded == "stop" else charge.raise_if_exceeded()
