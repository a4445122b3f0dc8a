"""Price tables of one's own, written in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import cast

from agentkit.catalog.prices import DEFAULT_PRICES, PriceTable
from agentkit.catalog.rates import with_plain_cache
from agentkit.catalog.rules import PriceRow
from agentkit.core.contracts import ZERO, Money, PriceStep, RateBand, Rates, UnitRate, to_money
from agentkit.errors import ConfigurationError, MoneyPrecisionError

__all__ = ["load_prices", "read_prices"]

_CACHE = ("cache_read", "cache_write", "cache_write_1h")
_BAND = ("above", "input", "output", *_CACHE)
_RULE = ("input", "output", *_CACHE, "request", "bands", "marginal", "units", "adjust", "group")
_WHEN = ("provider", "model", "tier", "from", "until", "hours", "facts")
_UNIT = ("unit", "price", "per", "minimum", "increment")
_STEPS = ("multiply", "add", "minimum", "round_up")


def load_prices(path: str | Path, *, over: PriceTable | None = DEFAULT_PRICES) -> PriceTable:
    """Return the table of a TOML file; its rules win over those of `over`, None stands for no others.

    Rates are dollars per million tokens; text keeps them exact, and numbers are read as they are written. Raises
    ConfigurationError naming the file, the rule and the field for what cannot be a price, and for ambiguous rules.
    """
    file = Path(path)
    try:
        data = tomllib.loads(file.read_text("utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The price table {file} cannot be read: {error}") from None
    try:
        rows = read_prices(data, file.name)
        return PriceTable(rows) if over is None else over.with_rules(PriceTable(rows).all_rules())
    except ConfigurationError as error:
        raise ConfigurationError(f"The price table {file}: {error.message}") from None


def read_prices(data: Mapping[str, object], source: str) -> list[PriceRow]:
    """Return the rules of a table's data: a list `rule` of tables with provider, model, input and output."""
    unknown = sorted(set(data) - {"rule"})
    if unknown:
        raise ConfigurationError(f"unknown key {unknown[0]!r}; a table holds [[rule]] entries.")
    rules = data.get("rule", [])
    if not isinstance(rules, list) or not rules:
        raise ConfigurationError("it holds no rule; write [[rule]] with provider, model, input and output.")
    return [_row(_table(rule, f"rule {number}"), number, source) for number, rule in enumerate(rules, 1)]


def _row(rule: Mapping[str, object], number: int, source: str) -> PriceRow:
    where = f"rule {number}"
    _only(rule, (*_WHEN, *_RULE), where)
    provider, model = _text(rule, "provider", where), _text(rule, "model", where)
    where = f"{where} ({provider}:{model})"
    facts = {
        name: _string(value, f"{where}: facts.{name}")
        for name, value in _table(rule.get("facts", {}), f"{where}: facts").items()
    }
    return PriceRow(
        provider=provider,
        model=model,
        rates=_rates(rule, where, f"{source}: {where}"),
        starts=_day(rule, "from", where),
        ends=_day(rule, "until", where),
        tier=None if rule.get("tier") is None else _text(rule, "tier", where),
        hours=_hours(rule, where),
        facts=facts,
    )


def _rates(rule: Mapping[str, object], where: str, label: str) -> Rates:
    bands = [_band(_table(band, f"{where}: bands"), f"{where}: bands") for band in _list(rule, "bands", where)]
    starts = [band.above_input_tokens for band in bands]
    if starts != sorted(set(starts)):
        raise ConfigurationError(f"{where}: bands: put them in the order of 'above', each once.")
    units, steps = _list(rule, "units", where), _list(rule, "adjust", where)
    read, written, hour = (_maybe(rule, name, where) for name in _CACHE)
    rates = Rates(
        _amount(rule, "input", where),
        _amount(rule, "output", where),
        read,
        written,
        hour,
        _maybe(rule, "request", where) or ZERO,
        tuple(bands),
        label,
        _flag(rule, "marginal", where),
        tuple(_unit(_table(unit, f"{where}: units"), f"{where}: units") for unit in units),
        tuple(_step(_table(step, f"{where}: adjust"), f"{where}: adjust") for step in steps),
        _string(rule.get("group", ""), f"{where}: group"),
    )
    return rates if rule.keys() & set(_CACHE) else with_plain_cache(rates)


def _band(band: Mapping[str, object], where: str) -> RateBand:
    _only(band, _BAND, where)
    above = _whole(band, "above", where, 0)
    read, written, hour = (_maybe(band, name, where) for name in _CACHE)
    return RateBand(above, _amount(band, "input", where), _amount(band, "output", where), read, written, hour)


def _unit(unit: Mapping[str, object], where: str) -> UnitRate:
    _only(unit, _UNIT, where)
    return UnitRate(
        _text(unit, "unit", where),
        _amount(unit, "price", where),
        _whole(unit, "per", where, 1),
        _maybe(unit, "minimum", where) or ZERO,
        _maybe(unit, "increment", where) or ZERO,
    )


def _step(step: Mapping[str, object], where: str) -> PriceStep:
    _only(step, (*_STEPS, "reason"), where)
    kinds = [kind for kind in _STEPS if kind in step]
    if len(kinds) != 1:
        raise ConfigurationError(f"{where}: write one of {', '.join(_STEPS)} in each entry.")
    return PriceStep(kinds[0], _amount(step, kinds[0], where), _string(step.get("reason", ""), f"{where}: reason"))  # type: ignore[arg-type]


def _day(rule: Mapping[str, object], name: str, where: str) -> date | None:
    value = rule.get(name)
    if value is not None and type(value) is not date:
        raise ConfigurationError(f"{where}: {name}={value!r}: write a day such as 2026-10-12, without quotes.")
    return value


def _hours(rule: Mapping[str, object], where: str) -> tuple[time, time] | None:
    value = rule.get("hours")
    if value is None:
        return None
    if not isinstance(value, list) or [type(each) for each in value] != [time, time]:
        raise ConfigurationError(
            f"{where}: hours={value!r}: write two times of day in UTC, such as [16:30:00, 00:30:00]."
        )
    return cast("time", value[0]), cast("time", value[1])


def _amount(table: Mapping[str, object], name: str, where: str) -> Decimal:
    if name not in table:
        raise ConfigurationError(f"{where}: {name!r} is needed, in dollars; 0 is free.")
    found = _maybe(table, name, where)
    assert found is not None
    return found


def _maybe(table: Mapping[str, object], name: str, where: str) -> Decimal | None:
    if name not in table:
        return None
    try:
        amount = to_money(cast("Money", table[name]), strict=True)
    except MoneyPrecisionError as error:
        raise ConfigurationError(f"{where}: {name}: {error.message}") from None
    if amount < 0:
        raise ConfigurationError(f"{where}: {name}={table[name]!r} is below zero.")
    return amount


def _whole(table: Mapping[str, object], name: str, where: str, default: int) -> int:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < default:
        raise ConfigurationError(f"{where}: {name}={value!r}: pass a whole number from {default} on.")
    return value


def _flag(table: Mapping[str, object], name: str, where: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{where}: {name}={value!r}: write true or false, without quotes.")
    return value


def _list(table: Mapping[str, object], name: str, where: str) -> list[object]:
    value = table.get(name, [])
    if not isinstance(value, list):
        raise ConfigurationError(f"{where}: {name}: write a list of tables.")
    return cast("list[object]", value)


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: write a table, such as {{ region = 'eu' }}.")
    return cast("dict[str, object]", value)


def _text(table: Mapping[str, object], name: str, where: str) -> str:
    found = _string(table.get(name, ""), f"{where}: {name}")
    if not found:
        raise ConfigurationError(f"{where}: {name!r} is needed.")
    return found


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{where}: {value!r}: write text in quotes.")
    return value


def _only(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ConfigurationError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}.")
