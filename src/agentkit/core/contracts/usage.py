"""What a model call consumed, in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from agentkit.core.contracts.money import add_money

__all__ = ["Units", "Usage", "total_usage"]

Units: TypeAlias = tuple[tuple[str, int | Decimal], ...]


class Usage(Struct, frozen=True):
    """Tokens of one response, or of several added up.

    `input_tokens` is everything the model read: ordinary, cache reads and cache writes. `output_tokens` includes
    reasoning. The parts stand beside them. None means unknown, never zero; a sum with an unknown part is None.
    `estimated` says that at least one number was estimated here rather than reported. `units` are what is billed
    beside or inside the tokens, each name once and in order: web searches, images, seconds, tokens of a modality.
    """

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_tokens: int | None = 0
    cache_write_tokens: int | None = 0
    cache_write_1h_tokens: int | None = 0
    reasoning_tokens: int | None = 0
    estimated: bool = False
    units: Units = ()

    @property
    def total_tokens(self) -> int | None:
        """Return input plus output, None when either is unknown."""
        return _add(self.input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Return the sum; an unknown part makes that part of the sum unknown."""
        return Usage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            _add(self.cache_read_tokens, other.cache_read_tokens),
            _add(self.cache_write_tokens, other.cache_write_tokens),
            _add(self.cache_write_1h_tokens, other.cache_write_1h_tokens),
            _add(self.reasoning_tokens, other.reasoning_tokens),
            self.estimated or other.estimated,
            _merged((self.units, other.units)) if other.units else self.units,
        )

    def minus(self, other: Usage) -> Usage:
        """Return the difference; an unknown part makes that part of it unknown."""
        return self + Usage(
            _negative(other.input_tokens),
            _negative(other.output_tokens),
            _negative(other.cache_read_tokens),
            _negative(other.cache_write_tokens),
            _negative(other.cache_write_1h_tokens),
            _negative(other.reasoning_tokens),
            units=tuple((name, _minus(amount)) for name, amount in other.units),
        )


def total_usage(first: Usage, rest: Sequence[Usage]) -> Usage:
    """Return the sum of all of them; an unknown part makes that part of the sum unknown."""
    *counts, estimated, units = zip(*map(astuple, (first, *rest)), strict=True)
    return Usage(*map(_sum, counts), any(estimated), _merged(units))  # type: ignore[call-arg, arg-type]


def _sum(parts: tuple[int | None, ...]) -> int | None:
    try:
        return sum(parts)  # type: ignore[arg-type]
    except TypeError:  # one of them is None
        return None


def _merged(parts: Iterable[Units]) -> Units:
    total: dict[str, int | Decimal] = {}
    for units in parts:
        for name, amount in units:
            total[name] = _plus(total[name], amount) if name in total else amount
    return tuple(sorted((name, amount) for name, amount in total.items() if amount))


def _plus(left: int | Decimal, right: int | Decimal) -> int | Decimal:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return add_money(Decimal(left), Decimal(right))


def _minus(amount: int | Decimal) -> int | Decimal:
    return -amount if isinstance(amount, int) else amount.copy_negate()


def _negative(value: int | None) -> int | None:
    return None if value is None else -value


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
