"""Exact money: US dollars as `Decimal` with twelve places, whatever decimal context the host has set."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, DecimalException

from agentkit.errors import MoneyPrecisionError

__all__ = [
    "MONEY_SCALE",
    "ZERO",
    "Money",
    "add_money",
    "divide_money",
    "multiply_money",
    "render_money",
    "round_money",
    "subtract_money",
    "to_cents",
    "to_money",
    "trim_money",
]

MONEY_SCALE = 12
ZERO = Decimal(0)
Money = Decimal | float | int | str

_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_QUANTUM = Decimal(1).scaleb(-MONEY_SCALE, context=_CONTEXT)
_CENT = Decimal("0.01")

# Exact sum, difference and product, unaffected by the host's decimal context; bound methods, since calls are counted.
add_money: Callable[[Decimal, Decimal], Decimal] = _CONTEXT.add
subtract_money: Callable[[Decimal, Decimal], Decimal] = _CONTEXT.subtract
multiply_money: Callable[[Decimal, Decimal | int], Decimal] = _CONTEXT.multiply

_NOTHING = ZERO.quantize(_QUANTUM, context=_CONTEXT)
_LARGEST = Decimal(10) ** 26  # NUMERIC(38, 12) leaves 26 places before the point


def round_money(amount: Decimal) -> Decimal:
    """Return a product of rates and tokens quantised to twelve places, half up."""
    return amount.quantize(_QUANTUM, ROUND_HALF_UP, _CONTEXT)


def to_money(value: Money, *, strict: bool = False) -> Decimal:
    """Return dollars quantised to twelve places, half up; a float enters by its decimal spelling.

    Raises MoneyPrecisionError when the value is not finite, no number, too large, or (strict) has more places.
    """
    if type(value) is int and value == 0:
        return _NOTHING
    amount = _parse(value)
    if amount.copy_abs() >= _LARGEST:
        raise MoneyPrecisionError(f"{value!r} is too large for money: at most 26 digits before the point.")
    exact = amount.quantize(_QUANTUM, rounding=ROUND_HALF_UP, context=_CONTEXT)
    if strict and exact != amount:
        raise MoneyPrecisionError(
            f"{value!r} has more than {MONEY_SCALE} decimal places; write {render_money(exact)!r} instead."
        )
    return exact


def _parse(value: Money) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (Decimal, float, int, str)):
        raise MoneyPrecisionError(f"{value!r} is not an amount of money; pass a Decimal, str, int or float.")
    try:
        amount = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except (DecimalException, ValueError) as exc:
        raise MoneyPrecisionError(f"{value!r} is not an amount of money; pass digits such as '0.25'.") from exc
    if not amount.is_finite():
        raise MoneyPrecisionError(f"{value!r} is not a finite amount of money; leave the ceiling out for none.")
    return amount


def divide_money(amount: Decimal, part: Decimal) -> int:
    """Return how often `part` fits into the amount, rounded down, unaffected by the host's decimal context."""
    return int(_CONTEXT.divide_int(amount, part))


def to_cents(amount: Decimal) -> int:
    """Return whole cents, half up; for reading only, never per charge."""
    return int(_CONTEXT.multiply(amount.quantize(_CENT, rounding=ROUND_HALF_UP, context=_CONTEXT), Decimal(100)))


def render_money(amount: Decimal) -> str:
    """Return the amount without padding zeros and without an exponent, with at least no sign lost."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def trim_money(amount: Decimal) -> Decimal:
    """Return the same amount without padding zeros, for showing to people."""
    return Decimal(render_money(amount))


def to_nano(amount: Decimal) -> int:
    """Return whole nano-dollars, rounded up, for stores that count integers."""
    scaled = _CONTEXT.multiply(amount, Decimal(10**9))
    return int(scaled.to_integral_value(rounding=ROUND_CEILING, context=_CONTEXT))
