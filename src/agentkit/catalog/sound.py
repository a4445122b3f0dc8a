"""Rates that were written in Python, checked once where they come in."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from agentkit.catalog.rules import STANDARD_TIERS, PriceRow
from agentkit.core.contracts import RateBand, Rates
from agentkit.errors import ConfigurationError

__all__ = ["sound", "sound_rule"]

_MOST = Decimal(10) ** 15  # dollars of one million tokens, and of anything else
_KINDS = ("multiply", "add", "minimum", "round_up")


def sound(rates: Rates) -> Rates:
    """Return the rates; raises ConfigurationError naming an amount that is no Decimal, not finite, or below zero."""
    for name, amount in _amounts(rates):
        if type(amount) is int:
            amount = Decimal(amount)
        if not isinstance(amount, Decimal) or not amount.is_finite() or not 0 <= amount <= _MOST:
            raise ConfigurationError(
                f"{name}={amount!r}: pass dollars from 0 on as a Decimal, such as Decimal('1.25')."
            )
    above = [band.above_input_tokens for band in rates.bands]
    if above != sorted(set(above)) or (above and above[0] < 0):
        raise ConfigurationError(f"Rates(bands=...) start above {above}: put them in order, each once, from 0 on.")
    names = [unit.unit for unit in rates.units]
    if len(names) != len(set(names)):
        raise ConfigurationError(f"Rates(units=...) price a unit twice: {', '.join(names)}; name each once.")
    for unit in rates.units:
        if type(unit.per) is not int or unit.per < 1:
            raise ConfigurationError(f"UnitRate({unit.unit!r}, per={unit.per!r}): pass a whole number of at least 1.")
    for step in rates.steps:
        if step.kind not in _KINDS:
            raise ConfigurationError(f"PriceStep(kind={step.kind!r}): pass one of {', '.join(_KINDS)}.")
    return rates


def sound_rule(row: PriceRow) -> None:
    """Raise ConfigurationError for a rule whose rates are none, or that would never hold."""
    where = f"The price rule of {row.provider}:{row.model}"
    try:
        sound(row.rates)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error.message}") from None
    if row.tier in STANDARD_TIERS:
        raise ConfigurationError(f"{where}: tier={row.tier!r} is the standard one: leave tier out.")
    if row.starts is not None and row.ends is not None and row.ends <= row.starts:
        raise ConfigurationError(f"{where} never holds: it ends on {row.ends}, and starts on {row.starts}.")
    if row.hours is not None and (row.hours[0] == row.hours[1] or any(each.tzinfo for each in row.hours)):
        raise ConfigurationError(f"{where}: hours={row.hours!r}: pass two times of day in UTC, without a zone.")


def _amounts(rates: Rates) -> Iterator[tuple[str, object]]:
    yield from _of_tokens("Rates", rates)
    yield "Rates(request)", rates.request
    for band in rates.bands:
        yield from _of_tokens("RateBand", band)
    for unit in rates.units:
        for name in ("price", "minimum", "increment"):
            yield f"UnitRate({unit.unit!r}): {name}", getattr(unit, name)
    for step in rates.steps:
        yield f"PriceStep({step.kind!r}): amount", step.amount


def _of_tokens(owner: str, band: Rates | RateBand) -> Iterator[tuple[str, object]]:
    yield f"{owner}(input)", band.input
    yield f"{owner}(output)", band.output
    for name in ("cache_read", "cache_write", "cache_write_1h"):
        amount = getattr(band, name)
        if amount is not None:
            yield f"{owner}({name})", amount
