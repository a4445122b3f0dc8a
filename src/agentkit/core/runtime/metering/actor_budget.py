"""What one actor of a run may use: a soft limit of its own, beside the budget of the tree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from typing import Final, TypeVar

from agentkit.core.contracts import (
    ZERO,
    Money,
    Usage,
    add_money,
    render_money,
    subtract_money,
    to_money,
)
from agentkit.core.runtime.checks import at_least, whole
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock, as_clock
from agentkit.core.runtime.metering.limits import to_ceiling
from agentkit.errors import ConfigurationError, MeterExceeded

__all__ = ["ActorBudget"]

AXES: Final = ("tokens", "cost", "steps", "wall")
_SHARES = Context(prec=60, rounding=ROUND_DOWN)
_QUANTUM = Decimal("1e-12")
Shares = tuple[int | None, Decimal | None, int | None, float | None]
N = TypeVar("N", int, float, Decimal)


class ActorBudget:
    """Tokens, dollars, steps and seconds one actor may use; None is no limit, seconds count from construction.

    `charge` never raises: the actor ends at its next look at `exhausted()`, which holds as soon as nothing is left
    of an axis. Shares for children are reserved out of what is left and settled when the child is done.
    Raises MoneyPrecisionError or ConfigurationError for a limit that cannot mean anything.
    """

    __slots__ = (
        "_children",
        "_clock",
        "_cost",
        "_held",
        "_limits",
        "_lock",
        "_started",
        "_steps",
        "_tokens",
        "unpriced",
    )

    def __init__(
        self,
        max_tokens: int | None = None,
        max_cost_usd: Money | None = None,
        max_steps: int | None = None,
        max_wall_seconds: float | None = None,
        clock: Clock | Callable[[], float] = SYSTEM_CLOCK,
    ) -> None:
        at_least("ActorBudget", "max_tokens", max_tokens, 0)
        at_least("ActorBudget", "max_steps", max_steps, 0)
        if max_wall_seconds is not None and not max_wall_seconds >= 0:
            raise ConfigurationError(f"ActorBudget(max_wall_seconds={max_wall_seconds!r}): pass seconds from 0 on.")
        self._limits: Shares = (
            max_tokens,
            to_ceiling(max_cost_usd),
            max_steps,
            max_wall_seconds,
        )
        self._clock = as_clock(clock)
        self._started = self._clock.now()
        self._tokens = 0
        self._cost = ZERO
        self._steps = 0
        self._held: tuple[int, Decimal, int] = (0, ZERO, 0)
        self._children: dict[ActorBudget, Shares] = {}
        self._lock = threading.Lock()
        self.unpriced = 0

    @property
    def max_tokens(self) -> int | None:
        """Return the limit in tokens."""
        return self._limits[0]

    @property
    def max_steps(self) -> int | None:
        """Return the limit in steps; one model call is one step."""
        return self._limits[2]

    @property
    def max_wall_seconds(self) -> float | None:
        """Return the limit in seconds since construction."""
        return self._limits[3]

    @property
    def used_tokens(self) -> int:
        """Return the tokens used."""
        return self._tokens

    @property
    def used_steps(self) -> int:
        """Return the steps taken."""
        return self._steps

    @property
    def cost_complete(self) -> bool:
        """Return whether every charge had a price; otherwise `used_cost()` is a lower bound."""
        return not self.unpriced

    def max_cost(self) -> Decimal | None:
        """Return the limit in dollars."""
        return self._limits[1]

    def used_cost(self) -> Decimal:
        """Return the dollars used."""
        return self._cost

    def reserved_cost(self) -> Decimal:
        """Return the dollars that children hold."""
        return self._held[1]

    def remaining_cost(self) -> Decimal | None:
        """Return the dollars neither used nor held by children, never below zero."""
        limit = self._limits[1]
        return None if limit is None else max(ZERO, subtract_money(limit, add_money(self._cost, self._held[1])))

    def remaining_cost_usd(self) -> float | None:
        """Return `remaining_cost()` as a float."""
        left = self.remaining_cost()
        return None if left is None else float(left)

    def remaining_tokens(self) -> int | None:
        """Return the tokens neither used nor held by children, never below zero."""
        limit = self._limits[0]
        return None if limit is None else max(0, limit - self._tokens - self._held[0])

    def remaining_steps(self) -> int | None:
        """Return the steps neither taken nor held by children, never below zero."""
        limit = self._limits[2]
        return None if limit is None else max(0, limit - self._steps - self._held[2])

    def remaining_wall_seconds(self) -> float | None:
        """Return the seconds left, never below zero."""
        limit = self._limits[3]
        return None if limit is None else max(0.0, limit - (self._clock.now() - self._started))

    def exhausted_axis(self) -> str | None:
        """Return the first axis of which nothing is left (tokens, cost, steps, wall), None while all have some."""
        for axis, left in zip(AXES, self._left(), strict=True):
            if left is not None and left <= 0:
                return axis
        return None

    def exhausted(self) -> bool:
        """Return whether nothing is left of some axis."""
        return self.exhausted_axis() is not None

    def charge(self, usage: Usage, cost: Money | None = None, *, steps: int = 1, known_cost: Money = 0) -> None:
        """Book tokens, dollars (None: unpriced, but for `known_cost`) and steps; never raises and never refuses."""
        known = to_money(known_cost if cost is None else cost)
        with self._lock:
            self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
            self._steps += steps
            self.unpriced += cost is None
            self._cost = add_money(self._cost, known)

    def can_spawn_child(self, children: int = 1) -> bool:
        """Return whether each of that many children would get something of every axis."""
        return _empty_axis(self._share_of(self._left(), children)) is None

    def reserve_for_child(
        self,
        max_tokens: int | None = None,
        max_cost_usd: Money | None = None,
        max_steps: int | None = None,
        max_wall_seconds: float | None = None,
    ) -> ActorBudget:
        """Return a child's budget, reserved out of what is left; None takes all that is left of that axis.

        Raises MeterExceeded naming the axis of which nothing, or not that much, is left. `settle_child` ends it.
        """
        cost = None if max_cost_usd is None else to_money(max_cost_usd)
        with self._lock:
            left = self._left()
            wanted = (max_tokens, cost, max_steps, max_wall_seconds)
            share: Shares = tuple(has if want is None else want for want, has in zip(wanted, left, strict=True))  # type: ignore[assignment]
            _check(share, left)
            return self._reserve(share)

    def reserve_equally(self, children: int) -> list[ActorBudget]:
        """Return that many children's budgets with equal shares, in money to the last place; all or none.

        Seconds are not divided: children run side by side. Raises MeterExceeded naming the axis that does not suffice.
        """
        whole("reserve_equally", "children", children, 1)
        with self._lock:
            left = self._left()
            share = self._share_of(left, children)
            _check(share, left)
            return [self._reserve(share) for _ in range(children)]

    def settle_child(self, child: ActorBudget) -> None:
        """Give a child's reservation back and book what it used, at most the reservation, once."""
        with self._lock:
            share = self._children.pop(child, None)
            if share is None:
                return
            tokens, cost, steps, _ = share
            self._held = (
                self._held[0] - (tokens or 0),
                subtract_money(self._held[1], cost or ZERO),
                self._held[2] - (steps or 0),
            )
            self._tokens += child.used_tokens if tokens is None else min(child.used_tokens, tokens)
            self._steps += child.used_steps if steps is None else min(child.used_steps, steps)
            self._cost = add_money(
                self._cost,
                child.used_cost() if cost is None else min(child.used_cost(), cost),
            )
            self.unpriced += child.unpriced

    def tighten(
        self,
        max_tokens: int | None = None,
        max_cost_usd: Money | None = None,
        max_steps: int | None = None,
        max_wall_seconds: float | None = None,
    ) -> None:
        """Lower limits: never raises one, never goes below what is used or held by children."""
        with self._lock:
            tokens, cost, steps, wall = self._limits
            if max_tokens is not None:
                tokens = max(self._tokens + self._held[0], _lower(tokens, max_tokens))
            if max_cost_usd is not None:
                cost = max(
                    add_money(self._cost, self._held[1]),
                    _lower(cost, to_money(max_cost_usd)),
                )
            if max_steps is not None:
                steps = max(self._steps + self._held[2], _lower(steps, max_steps))
            if max_wall_seconds is not None:
                wall = max(self._clock.now() - self._started, _lower(wall, max_wall_seconds))
            self._limits = (tokens, cost, steps, wall)

    def _left(self) -> Shares:
        return (
            self.remaining_tokens(),
            self.remaining_cost(),
            self.remaining_steps(),
            self.remaining_wall_seconds(),
        )

    @staticmethod
    def _share_of(left: Shares, children: int) -> Shares:
        tokens, cost, steps, wall = left
        return (
            None if tokens is None else tokens // children,
            None if cost is None else _SHARES.quantize(_SHARES.divide(cost, Decimal(children)), _QUANTUM),
            None if steps is None else steps // children,
            wall,
        )

    def _reserve(self, share: Shares) -> ActorBudget:
        tokens, cost, steps, wall = share
        child = ActorBudget(tokens, cost, steps, wall, self._clock)
        limits = self._limits
        held_tokens = None if limits[0] is None else tokens
        held_cost = None if limits[1] is None else cost
        held_steps = None if limits[2] is None else steps
        self._children[child] = (held_tokens, held_cost, held_steps, None)
        self._held = (
            self._held[0] + (held_tokens or 0),
            add_money(self._held[1], held_cost or ZERO),
            self._held[2] + (held_steps or 0),
        )
        return child


def _empty_axis(share: Shares) -> str | None:
    return next(
        (axis for axis, part in zip(AXES, share, strict=True) if part is not None and part <= 0),
        None,
    )


def _check(share: Shares, left: Shares) -> None:
    empty = _empty_axis(share)
    if empty is not None:
        raise MeterExceeded(f"nothing of the actor's {empty} is left to share with a child", axis=empty)
    for axis, part, has in zip(AXES, share, left, strict=True):
        if has is not None and part is not None and part > has:
            shown = [render_money(value) if isinstance(value, Decimal) else value for value in (part, has)]
            raise MeterExceeded(
                f"a child wants {shown[0]} of the actor's {axis}, {shown[1]} is left",
                axis=axis,
            )


def _lower(limit: N | None, wanted: N) -> N:
    return wanted if limit is None else min(limit, wanted)
