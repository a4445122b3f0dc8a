"""A sliding window of sixty slices: constant size, exact to a sixtieth, erring high."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from agentkit.core.contracts import ZERO, Quote, Usage, add_money, subtract_money
from agentkit.core.runtime.metering.admission import WaitingRoom

__all__ = ["SLICES", "Slice", "Window", "tokens_used", "unknown_rest"]

SLICES = 60


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

    def add(
        self,
        index: int,
        *,
        requests: int = 0,
        tokens: int = 0,
        cost: Decimal = ZERO,
        uncertain: Decimal = ZERO,
        unpriced: int = 0,
    ) -> None:
        """Count something in the slice `index`, the newest one."""
        if not self._slices or self._slices[-1].index < index:
            self._slices.append(Slice(index))
        for part in (self._slices[-1], self.sums):
            part.requests += requests
            part.tokens += tokens
            part.unpriced += unpriced
            if cost is not ZERO:
                part.cost = add_money(part.cost, cost)
            if uncertain is not ZERO:
                part.uncertain = add_money(part.uncertain, uncertain)

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
