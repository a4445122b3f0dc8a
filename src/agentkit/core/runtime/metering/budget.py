"""The exact budget of a tree of calls: reserve before an attempt, settle at its end."""

from __future__ import annotations

from asyncio import Semaphore
from decimal import Decimal
from typing import Literal

from agentkit.core.contracts import (
    ZERO,
    Call,
    Charge,
    ChatRequest,
    CostRecord,
    Money,
    OnExceeded,
    Quote,
    SharedCeiling,
    Usage,
    add_money,
    divide_money,
    subtract_money,
)
from agentkit.core.runtime.checks import choice, whole
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.core.runtime.metering.account import AccountState
from agentkit.core.runtime.metering.admission import NOTHING_HELD, Held
from agentkit.core.runtime.metering.limits import Ceilings, Refusal, to_ceiling, to_dollars
from agentkit.core.runtime.metering.standing import BudgetStanding
from agentkit.core.runtime.slots import SlotPools
from agentkit.errors import ConfigurationError

__all__ = ["Budget"]

_QUEUE = Refusal("queue", "other calls are waiting")
_NO_QUOTE = Quote()


class Budget(BudgetStanding):
    """What a tree of calls may spend; one object for the whole tree, exact and safe under concurrency.

    Each attempt reserves its bound before it starts and settles what it really used when it ends, on every exit.
    A call that would fit but for attempts in flight waits for them, in order, at most `max_wait` seconds.
    Landing exactly on a ceiling passes. Without `strict` the overshoot is at most the calls in flight; with it the
    output cap of each request is lowered to what fits. With `stop_midstream` an answer that outgrows its bound is cut
    where what it has likely cost so far would cross a ceiling. `on_exceeded` "raise" raises MeterExceeded, "stop"
    returns a verdict that is not ok. `mode="observe"` only records. `spent_usd=None` means that earlier spend is
    unknown. `shared` names a ceiling that all workers over the same store keep together, such as "acme/2026-12".

    Raises MoneyPrecisionError for a ceiling that money cannot hold, ConfigurationError for other bad limits.
    """

    def __init__(
        self,
        max_cost_usd: Money | None = None,
        max_calls: int | None = None,
        max_depth: int = 4,
        max_concurrency: int = 8,
        spent_usd: Money | None = 0,
        calls: int = 0,
        on_exceeded: OnExceeded = "raise",
        usage: Usage = Usage(),  # noqa: B008
        *,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        max_total_tokens: int | None = None,
        max_duration: float | None = None,
        max_width: int | None = None,
        strict: bool = False,
        stop_midstream: bool = False,
        max_wait: float = 30.0,
        mode: Literal["enforce", "observe"] = "enforce",
        shared: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        limits = Ceilings(
            to_ceiling(max_cost_usd),
            max_calls,
            max_depth,
            max_concurrency,
            max_input_tokens,
            max_output_tokens,
            max_total_tokens,
            max_duration,
            max_width,
        )
        if not max_wait >= 0:
            raise ConfigurationError(f"Budget(max_wait={max_wait!r}): pass seconds from 0 on.")
        self.on_exceeded: OnExceeded = choice("Budget", "on_exceeded", on_exceeded, ("raise", "stop"))
        self.strict = strict
        self.stop_midstream = stop_midstream
        self.max_wait = max_wait
        if shared is not None:
            if limits.cost is None:
                raise ConfigurationError(f"Budget(shared={shared!r}): pass a key together with max_cost_usd.")
            SharedCeiling(shared, limits.cost)  # refuses a key that is none
        self.shared = shared
        spent = ZERO if spent_usd is None else to_dollars(spent_usd, "spent_usd")
        whole("Budget", "calls", calls, 0)
        state = AccountState(spent, 1 if spent_usd is None else 0, calls, usage)
        super().__init__(limits, choice("Budget", "mode", mode, ("enforce", "observe")), state, clock)
        self._slots = SlotPools()

    @property
    def needs_quotes(self) -> bool:
        """Return whether a call's bound has to be known beforehand: a ceiling on money or tokens is enforced."""
        return self.limits.need_bounds and self.mode != "observe"

    async def guard(self, call: Call[ChatRequest] | None = None, /) -> Charge:
        """Reserve the call's bound, waiting for attempts in flight where that helps.

        Without a call it answers at once where the budget stands. Raises MeterExceeded, or returns a verdict that
        is not ok, when the call cannot fit.
        """
        if call is None:
            return self._answer(self.verdict())
        return await self.reserve(call) or self._charge(None)

    async def reserve(self, call: Call[ChatRequest], /) -> Charge | None:
        """Reserve as `guard` does, and return None when the call is admitted: what the meter layer asks."""
        quote = call.quote or _NO_QUOTE
        with self._lock:
            refusal = self._admit(call, quote)
        if refusal is _QUEUE and not call.hedge:
            refusal = await self._wait(call, quote)
        return None if refusal is None else self._answer(self._charge(refusal))

    async def charge(self, call: Call[ChatRequest] | None, usage: Usage, /, *, cost: Money | None = None) -> Charge:
        """Book usage and its price in dollars (None: unpriced) as one accepted call, then answer where it stands."""
        priced = None if cost is None else to_dollars(cost, "cost")
        with self._lock:
            if call is not None:
                self._room.drop(call)
            self._accounts.add(None if call is None else _run(call), usage, priced)
            self._room.wake()
        return self._answer(self.verdict())

    def settle(self, call: Call[ChatRequest], record: CostRecord, /) -> None:
        """Replace the attempt's reservation by what it used; never waits and never raises."""
        with self._lock:
            if self._room.busy:
                self._give_back(call, record)
            ctx = call.ctx
            self._accounts.settle((ctx.scope.tenant, ctx.correlation_id), record)

    def resize(self, call: Call[ChatRequest], quote: Quote, /) -> None:
        """Reserve another bound for an attempt in flight; the call is to carry that quote from then on."""
        with self._lock:
            self._room.resize(call, quote)
            self._room.wake()

    def outgrown(self, call: Call[ChatRequest], quote: Quote, /) -> Charge | None:
        """Return what ends an attempt in flight that needs this larger bound, None when it fits.

        Always None without `stop_midstream`.
        """
        if not self.stop_midstream or self.mode == "observe":
            return None
        with self._lock:
            held = self._room.held.minus(call.quote or _NO_QUOTE)
            refusal = self.limits.lacks(self._accounts.total, self._committed(), held, quote)
            return None if refusal is None else self._charge(refusal)

    def release(self, call: Call[ChatRequest], /) -> None:
        """Give the attempt's reservation back untouched: it never reached the provider."""
        with self._lock:
            self._room.drop(call)
            self._room.wake()

    def semaphore(self, depth: int = 0) -> Semaphore:
        """Return the fan-out pool of this depth on the running loop, made on first use."""
        return self._slots.at(depth, self.limits.concurrency)

    def affordable_output(self, input_cost: Decimal, per_token: Decimal) -> int | None:
        """Return the output tokens that surely fit at `per_token` dollars each, None when nothing limits them."""
        with self._lock:
            fits: list[int] = []
            if self.limits.cost is not None and per_token > 0:
                taken = add_money(add_money(self._committed(), self._room.held.cost), input_cost)
                fits.append(divide_money(max(ZERO, subtract_money(self.limits.cost, taken)), per_token))
            if self.limits.output_tokens is not None:
                used = (self._accounts.total.usage.output_tokens or 0) + self._room.held.output_tokens
                fits.append(max(0, self.limits.output_tokens - used))
            return min(fits) if fits else None

    def _give_back(self, call: Call[ChatRequest], record: CostRecord) -> None:
        """Drop the attempt's reservation; what it may have cost stays committed when nobody can say."""
        held = self._room.drop(call)
        if held is not None and record.cost is None and record.accepted and held.quote.cost is not None:
            rest = max(ZERO, subtract_money(held.quote.cost, record.known_cost))
            self._uncertain = add_money(self._uncertain, rest)
        self._room.wake()

    def _admit(self, call: Call[ChatRequest], quote: Quote) -> Refusal | None:
        if self._started is None:
            self._started = self._clock.now()
        if self.unlimited:
            return None
        room = self._room
        if self.mode != "observe":
            refusal = self._refusal(call, quote, room.held)
            if refusal is not None:
                return refusal
        room.hold(call, quote)
        return None

    def _refusal(self, call: Call[ChatRequest], quote: Quote, held: Held) -> Refusal | None:
        """Return why the call may not start now, `_QUEUE` when it is only for attempts in flight."""
        limits, total, committed = self.limits, self._accounts.total, self._committed()
        if limits.duration is None or self._crossed() is None:
            fits = limits.lacks(total, committed, held, quote) is None
            if fits and (not held.calls or self._room.may_pass(call)):
                return None
        return self._crossed() or limits.lacks(total, committed, NOTHING_HELD, quote) or _QUEUE

    async def _wait(self, call: Call[ChatRequest], quote: Quote) -> Refusal | None:
        left = call.ctx.remaining_time()
        until = self._clock.now() + (self.max_wait if left is None else min(self.max_wait, left))
        with self._lock:
            if self._stuck(call, quote):
                return self._busy(quote)
            ticket = self._room.enter()
            self._room.wake()
        try:
            while await self._room.woken(ticket, until, self._clock):
                with self._lock:
                    ticket.reset()
                    refusal = self._admit_first(call, quote, first=self._room.is_first(ticket))
                    if refusal is not _QUEUE:
                        return refusal
            with self._lock:
                return self._busy(quote)
        finally:
            with self._lock:
                self._room.leave(ticket)
                self._room.wake()

    def _admit_first(self, call: Call[ChatRequest], quote: Quote, *, first: bool) -> Refusal | None:
        committed = self._committed()
        refusal = self._crossed() or self.limits.lacks(self._accounts.total, committed, NOTHING_HELD, quote)
        if refusal is not None:
            return refusal
        if first and self.limits.lacks(self._accounts.total, committed, self._room.held, quote) is None:
            self._room.hold(call, quote)
            return None
        return self._busy(quote) if self._stuck(call, quote) else _QUEUE

    def _stuck(self, call: Call[ChatRequest], quote: Quote) -> bool:
        """Return whether waiting is in vain: it does not fit beside what itself keeps open."""
        return self.limits.lacks(self._accounts.total, self._committed(), self._room.own(call), quote) is not None

    def _busy(self, quote: Quote) -> Refusal:
        missing = self.limits.lacks(self._accounts.total, self._committed(), self._room.held, quote) or _QUEUE
        return Refusal(missing.axis, f"{missing.reason}, with reservations held by {self._room.names()}")

    def _answer(self, charge: Charge) -> Charge:
        return charge if charge.ok or self.on_exceeded == "stop" else charge.raise_if_exceeded()


def _run(call: Call[ChatRequest]) -> tuple[str, str]:
    return call.ctx.scope.tenant, call.ctx.correlation_id
