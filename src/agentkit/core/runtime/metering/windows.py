"""A sliding window of sixty slices: constant size, exact to a sixtieth, erring high."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from msgspec import Struct

from agentkit.core.contracts import (
    ZERO,
    Call,
    ChatRequest,
    QuotaLimits,
    Quote,
    Usage,
    add_money,
    render_money,
    subtract_money,
)
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.metering.admission import WaitingRoom
from agentkit.core.runtime.metering.limits import Refusal

__all__ = [
    "SLICES",
    "Priority",
    "Slice",
    "Window",
    "latest",
    "over_dollars",
    "over_requests",
    "over_tokens",
    "rank",
    "tokens_used",
    "unknown_rest",
]

SLICES = 60
Priority: TypeAlias = Callable[[Call[ChatRequest]], int]
_NEVER = 86_400.0 * 365


class Slice(Struct):
    """What happened in one slice of time; `uncertain` dollars stand for accepted calls that proved unpriceable."""

    index: int
    requests: int = 0
    tokens: int = 0
    cost: Decimal = ZERO
    uncertain: Decimal = ZERO
    unpriced: int = 0


class Window:
    """One key's latest slices with their sums, its attempts in flight and who waits for them.

    A slice counts until all of it is older than the window, so an entry counts up to a sixtieth too long. The
    owner's lock guards every method.
    """

    __slots__ = ("_slices", "room", "sums", "touched")

    def __init__(self) -> None:
        self._slices: list[Slice] = []  # at most 62, oldest first
        self.sums = Slice(0)
        self.room = WaitingRoom()
        self.touched = 0

    def expire(self, index: int) -> None:
        """Forget slices that have left the window by the slice `index`."""
        sums = self.sums
        while self._slices and self._slices[0].index < index - SLICES:
            old = self._slices.pop(0)
            sums.requests -= old.requests
            sums.tokens -= old.tokens
            sums.cost = subtract_money(sums.cost, old.cost)
            sums.uncertain = subtract_money(sums.uncertain, old.uncertain)
            sums.unpriced -= old.unpriced

    def newest(self) -> Slice:
        """Return the slice of now."""
        slices = self._slices
        if not slices or slices[-1].index < self.touched:
            slices.append(Slice(self.touched))
        return slices[-1]

    def use(self, tokens: int, cost: Decimal, rest: Decimal | None) -> None:
        """Count what an attempt used, now; `rest` is what may come on top of its cost, None when that is known."""
        for part in (self.newest(), self.sums):
            part.tokens += tokens
            part.cost = add_money(part.cost, cost)
            if rest is not None:
                part.unpriced += 1
                part.uncertain = add_money(part.uncertain, rest)

    @property
    def next_expiry(self) -> int | None:
        """Return the slice at which the oldest one leaves, None when there is none."""
        return self._slices[0].index + SLICES + 1 if self._slices else None

    @property
    def committed(self) -> Decimal:
        """Return dollars spent in the window, those of unpriceable calls at their bound."""
        sums = self.sums
        return sums.cost if sums.uncertain is ZERO else add_money(sums.cost, sums.uncertain)

    @property
    def idle(self) -> bool:
        """Return whether nothing is counted, held or waited for."""
        return not self._slices and not self.room.busy


def rank(call: Call[ChatRequest], priority: Priority | None) -> int:
    """Return a call's place among those of its key, 0 by default; lower comes first."""
    return 0 if priority is None else priority(call)


def latest(call: Call[ChatRequest], clock: Clock) -> float:
    """Return the moment of the clock until which the call may wait: its deadline."""
    left = call.ctx.remaining_time()
    return clock.now() + (_NEVER if left is None else left)


def over_requests(requests: int, limits: QuotaLimits) -> Refusal:
    """Return the refusal of a request too many."""
    return Refusal("requests", f"requests {requests} > {limits.requests} in {limits.window:g} s")


def over_tokens(tokens: int, limits: QuotaLimits) -> Refusal:
    """Return the refusal of tokens too many."""
    return Refusal("tokens", f"tokens up to {tokens} > {limits.tokens} in {limits.window:g} s")


def over_dollars(money: Decimal, limits: QuotaLimits) -> Refusal:
    """Return the refusal of a bound that crosses the ceiling, or of an unknown one when nothing is left."""
    ceiling = limits.dollars or ZERO
    sign = ">" if money > ceiling else "reaches"
    return Refusal("cost", f"cost up to ${render_money(money)} {sign} ${render_money(ceiling)} in {limits.window:g} s")


def tokens_used(usage: Usage, bound: Quote | None) -> int:
    """Return the tokens to count: those that are known, or the bound where some are not."""
    tokens = usage.total_tokens
    if tokens is not None:
        return tokens
    known = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return known if bound is None else max(known, bound.input_tokens + bound.output_tokens)


def unknown_rest(known: Decimal, bound: Quote | None) -> Decimal:
    """Return what a bound in dollars leaves above what is known of the cost."""
    return ZERO if bound is None or bound.cost is None else max(ZERO, subtract_money(bound.cost, known))
