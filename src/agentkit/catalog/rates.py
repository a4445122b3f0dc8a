"""From rates and usage to dollars, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from msgspec.structs import replace

from agentkit.catalog.assess import MILLION, assess, divided, stepped
from agentkit.catalog.sound import sound
from agentkit.core.contracts import (
    ZERO,
    Money,
    RateBand,
    Rates,
    Usage,
    add_money,
    multiply_money,
    round_money,
    to_money,
)
from agentkit.errors import ConfigurationError, MoneyPrecisionError

__all__ = ["FREE", "Price", "bound", "cost", "parse_price", "scaled", "with_plain_cache"]

Price = Rates | Money | Mapping[str, object]

FREE = Rates(ZERO, ZERO, ZERO, ZERO, ZERO, rule="free")
_PER_TOKEN = Decimal("0.000001")
_CACHE_FIELDS = ("cache_read", "cache_write", "cache_write_1h")


def cost(rates: Rates, usage: Usage) -> Decimal | None:
    """Return dollars for the usage, None when tokens, or the rate of something that was used, are unknown.

    `assess` gives the same with its lines and its lower bound.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if rates is FREE:
        return ZERO
    if usage.cache_read_tokens or usage.cache_write_tokens or usage.units or rates.bands or rates.steps or rates.units:
        return assess(rates, usage).cost
    read, written = multiply_money(rates.input, usage.input_tokens), multiply_money(rates.output, usage.output_tokens)
    return _dollars(add_money(read, written), rates.request)


def bound(rates: Rates, input_tokens: int, output_tokens: int) -> Decimal:
    """Return the most dollars that many tokens can cost, at the dearest rate of any band, bucket and modality.

    Units that nobody can count beforehand, such as searches, are not in it.
    """
    dearest_input, dearest_output = _dearest(rates)
    for band in rates.bands:
        band_input, band_output = _dearest(band)
        dearest_input, dearest_output = max(dearest_input, band_input), max(dearest_output, band_output)
    for rate in rates.units:
        if rate.unit.endswith("_tokens"):
            price = rate.price if rate.per == MILLION else divided(multiply_money(rate.price, MILLION), rate.per)
            if rate.unit.startswith("output_"):
                dearest_output = max(dearest_output, price)
            else:
                dearest_input = max(dearest_input, price)
    total = add_money(multiply_money(dearest_input, input_tokens), multiply_money(dearest_output, output_tokens))
    most = _dollars(total, rates.request)
    for step in rates.steps:
        most = stepped(most, step)
    return round_money(most) if rates.steps else most


def parse_price(price: Price) -> Rates:
    """Return the rates for what a user writes: Rates, 0, "INPUT/OUTPUT", or a mapping; dollars per million tokens.

    Without any cache rate, cached tokens cost what other input costs; where one is given, those that are not are
    unknown. Raises ConfigurationError that shows how to write it.
    """
    if isinstance(price, Rates):
        return sound(price)
    try:
        if isinstance(price, Mapping):
            return _from_mapping(price)
        if isinstance(price, str) and "/" in price:
            input_text, _, output_text = price.partition("/")
            return with_plain_cache(Rates(_rate(input_text), _rate(output_text), rule="given"))
        if _rate(price) == 0:
            return FREE
    except MoneyPrecisionError as error:
        raise ConfigurationError(f"price={price!r}: {error.message}") from error
    raise ConfigurationError(
        f"price={price!r}: write 'INPUT/OUTPUT' in dollars per million tokens, such as '1.25/10', or 0 for free."
    )


def _from_mapping(price: Mapping[str, object]) -> Rates:
    unknown = sorted(set(price) - {"input", "output", "request", *_CACHE_FIELDS})
    if unknown or "input" not in price or "output" not in price:
        problem = f"unknown key {unknown[0]!r}" if unknown else "'input' and 'output' are needed"
        raise ConfigurationError(
            f"price={dict(price)!r}: {problem}; "
            "keys are input, output, cache_read, cache_write, cache_write_1h, request."
        )
    values = {key: _rate(cast("Money", value)) for key, value in price.items()}
    rates = Rates(
        values["input"],
        values["output"],
        values.get("cache_read"),
        values.get("cache_write"),
        values.get("cache_write_1h"),
        values.get("request", ZERO),
        rule="given",
    )
    return rates if values.keys() & set(_CACHE_FIELDS) else with_plain_cache(rates)


def with_plain_cache(rates: Rates) -> Rates:
    """Return the rates with cached tokens priced where nothing else is said: reads and writes as other input.

    An hour's cache costs what a shorter one does.
    """
    return replace(rates, bands=tuple(map(_plain, rates.bands)), **_cache_rates(rates))


def scaled(rates: Rates, factor: Decimal, rule: str) -> Rates:
    """Return the rates with every token so many times as dear; requests and other units cost what they cost."""
    units = tuple(
        replace(unit, price=multiply_money(unit.price, factor)) if unit.unit.endswith("_tokens") else unit
        for unit in rates.units
    )
    bands = tuple(replace(band, **_times(band, factor)) for band in rates.bands)
    return replace(rates, rule=rule, units=units, bands=bands, **_times(rates, factor))


def _times(band: Rates | RateBand, factor: Decimal) -> dict[str, Decimal]:
    named = {name: getattr(band, name) for name in ("input", "output", *_CACHE_FIELDS)}
    return {name: multiply_money(rate, factor) for name, rate in named.items() if rate is not None}


def _plain(band: RateBand) -> RateBand:
    return replace(band, **_cache_rates(band))


def _cache_rates(band: Rates | RateBand) -> dict[str, Decimal]:
    write = band.input if band.cache_write is None else band.cache_write
    return {
        "cache_read": band.input if band.cache_read is None else band.cache_read,
        "cache_write": write,
        "cache_write_1h": write if band.cache_write_1h is None else band.cache_write_1h,
    }


def _rate(value: Money) -> Decimal:
    rate = to_money(value)
    if rate < 0:
        raise MoneyPrecisionError(f"{value!r} is below zero.")
    return rate


def _dearest(band: Rates | RateBand) -> tuple[Decimal, Decimal]:
    dearest = band.input
    for rate in (band.cache_read, band.cache_write, band.cache_write_1h):
        if rate is not None and rate > dearest:
            dearest = rate
    return dearest, band.output


def _dollars(per_million: Decimal, request: Decimal) -> Decimal:
    total = multiply_money(per_million, _PER_TOKEN)
    return round_money(add_money(total, request) if request else total)
