"""From rates and usage to dollars, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

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

__all__ = ["FREE", "Price", "bound", "cost", "parse_price"]

Price = Rates | Money | Mapping[str, object]

FREE = Rates(ZERO, ZERO, rule="free")
_PER_TOKEN = Decimal("0.000001")
_CACHE_FIELDS = ("cache_read", "cache_write", "cache_write_1h")


def cost(rates: Rates, usage: Usage) -> Decimal | None:
    """Return dollars for the usage, None when input or output tokens are unknown.

    Input is inclusive, so cached parts are taken out of it and priced apart; an unknown part counts as ordinary. A
    band applies to the whole request.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if rates is FREE:
        return ZERO
    band = _band(rates, usage.input_tokens) if rates.bands else rates
    read = usage.cache_read_tokens or 0
    written = usage.cache_write_tokens or 0
    if not (read or written):
        plain = multiply_money(band.input, usage.input_tokens)
        return _dollars(add_money(plain, multiply_money(band.output, usage.output_tokens)), rates.request)
    written_1h = min(usage.cache_write_1h_tokens or 0, written)
    ordinary = max(0, usage.input_tokens - read - written)
    rows = (
        (ordinary, band.input),
        (read, band.input if band.cache_read is None else band.cache_read),
        (written - written_1h, band.input if band.cache_write is None else band.cache_write),
        (written_1h, _write_1h(band)),
        (usage.output_tokens, band.output),
    )
    total = ZERO
    for tokens, rate in rows:
        if tokens and rate:
            total = add_money(total, multiply_money(rate, tokens))
    return _dollars(total, rates.request)


def bound(rates: Rates, input_tokens: int, output_tokens: int) -> Decimal:
    """Return the most dollars that many tokens can cost, at the dearest rate of any band and cache bucket."""
    dearest_input, dearest_output = _dearest(rates)
    for band in rates.bands:
        band_input, band_output = _dearest(band)
        dearest_input, dearest_output = max(dearest_input, band_input), max(dearest_output, band_output)
    total = add_money(multiply_money(dearest_input, input_tokens), multiply_money(dearest_output, output_tokens))
    return _dollars(total, rates.request)


def parse_price(price: Price) -> Rates:
    """Return the rates for what a user writes: Rates, 0, "INPUT/OUTPUT", or a mapping; dollars per million tokens.

    Raises ConfigurationError that shows how to write it.
    """
    if isinstance(price, Rates):
        return price
    try:
        if isinstance(price, Mapping):
            return _from_mapping(price)
        if isinstance(price, str) and "/" in price:
            input_text, _, output_text = price.partition("/")
            return Rates(_rate(input_text), _rate(output_text), rule="given")
        if _rate(price) == 0:
            return Rates(ZERO, ZERO, rule="given")
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
    return Rates(
        values["input"],
        values["output"],
        values.get("cache_read"),
        values.get("cache_write"),
        values.get("cache_write_1h"),
        values.get("request", ZERO),
        rule="given",
    )


def _rate(value: Money) -> Decimal:
    rate = to_money(value)
    if rate < 0:
        raise MoneyPrecisionError(f"{value!r} is below zero.")
    return rate


def _band(rates: Rates, input_tokens: int) -> Rates | RateBand:
    best: Rates | RateBand = rates
    for band in rates.bands:
        if input_tokens > band.above_input_tokens:
            best = band
    return best


def _write_1h(band: Rates | RateBand) -> Decimal:
    for rate in (band.cache_write_1h, band.cache_write):
        if rate is not None:
            return rate
    return band.input


def _dearest(band: Rates | RateBand) -> tuple[Decimal, Decimal]:
    dearest = band.input
    for rate in (band.cache_read, band.cache_write, band.cache_write_1h):
        if rate is not None and rate > dearest:
            dearest = rate
    return dearest, band.output


def _dollars(per_million: Decimal, request: Decimal) -> Decimal:
    total = multiply_money(per_million, _PER_TOKEN)
    return round_money(add_money(total, request) if request else total)
