"""The ceilings of a budget and what crosses them. Crossing is strictly more; landing on a ceiling is not."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from agentkit.core.contracts import ZERO, Money, Quote, add_money, render_money, to_money
from agentkit.core.runtime.checks import at_least, whole
from agentkit.core.runtime.metering.account import Tally
from agentkit.core.runtime.metering.admission import Held
from agentkit.errors import ConfigurationError

__all__ = ["Ceilings", "Refusal", "to_ceiling", "to_dollars"]


class Refusal(Struct, frozen=True):
    """Why a step may not start: the axis and a sentence for the operator."""

    axis: str
    reason: str


class Ceilings(Struct):
    """What a tree of calls may use at most; None is no limit. `tokens` says whether one is set on tokens."""

    cost: Decimal | None = None
    calls: int | None = None
    depth: int = 4
    concurrency: int = 8
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    duration: float | None = None
    width: int | None = None
    tokens: bool = False

    def __post_init__(self) -> None:
        self.tokens = not (self.input_tokens is self.output_tokens is self.total_tokens is None)
        if not (self.calls is self.width is None) or self.tokens:
            for name in ("calls", "input_tokens", "output_tokens", "total_tokens", "width"):
                at_least("Budget", f"max_{name}", getattr(self, name), 1 if name == "width" else 0)
        whole("Budget", "max_depth", self.depth, 0)
        whole("Budget", "max_concurrency", self.concurrency, 1)
        if self.duration is not None and not self.duration > 0:
            raise ConfigurationError(f"Budget(max_duration={self.duration!r}): pass seconds above 0, or leave it out.")

    @property
    def need_bounds(self) -> bool:
        """Return whether a call's bound has to be known beforehand."""
        return self.cost is not None or self.tokens

    @property
    def unlimited(self) -> bool:
        """Return whether no call can be refused."""
        return self.calls is None and self.duration is None and not self.need_bounds

    def crossed(self, used: Tally, committed: Decimal, elapsed: float) -> Refusal | None:
        """Return what is already over, None when nothing is."""
        if self.cost is not None and committed > self.cost:
            return Refusal("cost", f"cost ${render_money(committed)} > ${render_money(self.cost)}")
        if self.calls is not None and used.calls > self.calls:
            return Refusal("calls", f"calls {used.calls} > {self.calls}")
        if self.tokens and (refusal := self._crossed_tokens(used)):
            return refusal
        if self.duration is not None and elapsed > self.duration:
            return Refusal("duration", f"duration {elapsed:.1f} s > {self.duration:g} s")
        return None

    def lacks(self, used: Tally, committed: Decimal, held: Held, quote: Quote) -> Refusal | None:
        """Return what the next bound would cross, None when it fits beside what is held."""
        if self.cost is not None:
            bound = add_money(committed, quote.cost or ZERO)
            if held.cost:
                bound = add_money(bound, held.cost)
            if bound > self.cost:
                return Refusal("cost", f"cost up to ${render_money(bound)} > ${render_money(self.cost)}")
        calls = used.calls + held.calls + 1
        if self.calls is not None and calls > self.calls:
            return Refusal("calls", f"calls {calls} > {self.calls}")
        return self._lacks_tokens(used, held, quote) if self.tokens else None

    def _crossed_tokens(self, used: Tally) -> Refusal | None:
        usage = used.usage
        rows = (
            ("input tokens", usage.input_tokens, self.input_tokens),
            ("output tokens", usage.output_tokens, self.output_tokens),
            ("total tokens", usage.total_tokens, self.total_tokens),
        )
        for axis, value, limit in rows:
            if limit is not None and value is not None and value > limit:
                return Refusal(axis, f"{axis} {value} > {limit}")
        return None

    def _lacks_tokens(self, used: Tally, held: Held, quote: Quote) -> Refusal | None:
        read = (used.usage.input_tokens or 0) + held.input_tokens + quote.input_tokens
        written = (used.usage.output_tokens or 0) + held.output_tokens + quote.output_tokens
        rows = (
            ("input tokens", read, self.input_tokens),
            ("output tokens", written, self.output_tokens),
            ("total tokens", read + written, self.total_tokens),
        )
        for axis, bound, limit in rows:
            if limit is not None and bound > limit:
                return Refusal(axis, f"{axis} up to {bound} > {limit}")
        return None


def to_dollars(value: Money, parameter: str) -> Decimal:
    """Return dollars, rounded; raises MoneyPrecisionError for what is no money, ConfigurationError below zero."""
    dollars = to_money(value)
    if dollars < 0:
        raise ConfigurationError(f"{parameter}={value!r} is below zero; pass dollars from 0 on.")
    return dollars


def to_ceiling(value: Money | None, parameter: str = "max_cost_usd") -> Decimal | None:
    """Return a ceiling in dollars; raises MoneyPrecisionError for one that money cannot hold, or below zero."""
    if value is None:
        return None
    ceiling = to_money(value, strict=True)
    if ceiling < 0:
        raise ConfigurationError(f"{parameter}={value!r} is below zero; pass 0 to admit only what is free.")
    return ceiling
