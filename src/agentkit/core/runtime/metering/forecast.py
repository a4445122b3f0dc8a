"""How long what is left of a budget will last at the pace so far."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, Context, Decimal

from msgspec import Struct

from agentkit.core.contracts import ZERO, divide_money, multiply_money, round_money, subtract_money
from agentkit.core.runtime.metering.account import Tally
from agentkit.core.runtime.metering.limits import Ceilings

__all__ = ["Forecast", "forecast_of"]

_EXACT = Context(prec=60, rounding=ROUND_DOWN)
_MINUTE = Decimal(60)


class Forecast(Struct, frozen=True, kw_only=True):
    """What the spending so far says about what is to come; None is what nothing is known about yet.

    `per_call` and `per_minute` are dollars: the average of the accepted calls with all attempts they took, and of the
    minutes since the first call was admitted. `calls` are those that will likely fit before `axis` ends them: cost,
    calls, or the tokens that are limited. Between `calls_at_least` and `calls_at_most` of them fit if each attempt
    costs no more than the dearest, and no less than the cheapest, so far; where tokens are limited or a part of the
    spending has no price, nothing is promised and `calls_at_least` is 0. `seconds` is how long it lasts at this pace,
    `max_duration` included. Attempts in flight count as calls to come.
    """

    per_call: Decimal | None = None
    per_minute: Decimal | None = None
    calls: int | None = None
    calls_at_least: int | None = None
    calls_at_most: int | None = None
    seconds: Decimal | None = None
    axis: str = ""


def forecast_of(limits: Ceilings, used: Tally, left: Decimal | None, elapsed: float) -> Forecast:
    """Return the forecast for a ceiling of which `left` dollars remain, `elapsed` seconds after the first call."""
    seconds = Decimal(str(elapsed))
    per_minute = _shown(multiply_money(used.spent, _MINUTE), seconds)
    lasts = [] if left is None or not seconds else [_ratio(multiply_money(left, seconds), used.spent)]
    if limits.duration is not None:
        lasts.append(max(ZERO, subtract_money(Decimal(str(limits.duration)), seconds)))
    likely = _likely_calls(limits, used, left)
    calls, axis = min(likely) if likely else (None, "")
    least, most = _bounds(limits, used, left)
    return Forecast(
        per_call=_shown(used.spent, Decimal(used.calls)),
        per_minute=per_minute,
        calls=calls,
        calls_at_least=None if calls is None or least is None else min(least, calls),
        calls_at_most=None if calls is None or most is None else max(most, calls),
        seconds=min((each for each in lasts if each is not None), default=None),
        axis=axis,
    )


def _likely_calls(limits: Ceilings, used: Tally, left: Decimal | None) -> list[tuple[int, str]]:
    """Return for each axis how many calls like the average one so far still fit."""
    found: list[tuple[int, str]] = []
    if limits.calls is not None:
        found.append((max(0, limits.calls - used.calls), "calls"))
    if not used.calls:
        return found
    if left is not None and used.spent:
        found.append((divide_money(multiply_money(left, used.calls), used.spent), "cost"))
    usage = used.usage if limits.tokens else None
    if usage is not None:
        axes = (
            ("input tokens", limits.input_tokens, usage.input_tokens),
            ("output tokens", limits.output_tokens, usage.output_tokens),
            ("total tokens", limits.total_tokens, usage.total_tokens),
        )
        found += [
            (max(0, limit - tokens) * used.calls // tokens, axis) for axis, limit, tokens in axes if limit and tokens
        ]
    return found


def _bounds(limits: Ceilings, used: Tally, left: Decimal | None) -> tuple[int | None, int | None]:
    """Return how many calls fit at the dearest and at the cheapest attempt so far."""
    least: list[int] = []
    most: list[int] = []
    if limits.calls is not None:
        least.append(max(0, limits.calls - used.calls))
        most.append(least[0])
    if left is not None and used.dearest is not None:
        least += [divide_money(left, used.dearest)] if used.dearest else []
        most += [divide_money(left, used.cheapest)] if used.cheapest else []
    elif left is not None:
        least.append(0)
    if limits.tokens or used.unpriced:
        least.append(0)
    return _smallest(least), _smallest(most)


def _smallest(numbers: Sequence[int]) -> int | None:
    return min(numbers, default=None)


def _ratio(amount: Decimal, part: Decimal) -> Decimal | None:
    return _EXACT.divide(amount, part) if part else None


def _shown(amount: Decimal, part: Decimal) -> Decimal | None:
    ratio = _ratio(amount, part)
    return None if ratio is None else round_money(ratio)
