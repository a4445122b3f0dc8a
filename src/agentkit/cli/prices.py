"""`agentkit prices`: which rules price a model, and what a usage costs under them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from agentkit.catalog import DEFAULT_PRICES, PriceRow, PriceTable, assess, load_prices
from agentkit.cli.moment import read_moment
from agentkit.cli.table import text_table
from agentkit.core.contracts import Rates, Usage, render_money
from agentkit.errors import ConfigurationError

__all__ = ["explain_command", "list_command", "validate_command"]

_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_MOST = 2**53
_SHORT = {name.removesuffix("_tokens"): name for name in _TOKENS}


async def list_command(options: argparse.Namespace) -> int:
    """Print the providers, or the models of one with the rates in force now."""
    table = _table(options.table)
    if options.provider is None:
        print("\n".join(f"{name}  {len(table.names(name))} names" for name in table.providers()))
        return 0
    names = table.names(options.provider)
    if not names:
        raise ConfigurationError(f"No prices of {options.provider!r}; there are {', '.join(table.providers())}.")
    rows = []
    for name in sorted(names):
        rates = table.find(options.provider, name)
        if rates is not None:
            rows.append([name, *(_rate(amount) for amount in (rates.input, rates.output, rates.cache_read))])
    print(text_table(["model", "input", "output", "cache read"], rows))
    print("dollars per million tokens, standard tier, now; `agentkit prices explain` tells the rest")
    return 0


async def explain_command(options: argparse.Namespace) -> int:
    """Print why a model costs what it does, and the bill of a usage when one is given."""
    provider, _, model = options.model.partition(":")
    if not model:
        raise ConfigurationError(f"{options.model!r}: name provider and model, such as openai:gpt-5.2.")
    table = _table(options.table)
    at = datetime.now(UTC) if options.at is None else read_moment(options.at, "--at")
    facts = dict(_pair(text, "--fact") for text in options.fact)
    told = table.explain(provider, model, at=at, tier=options.tier, facts=facts)
    if told.rule is None:
        near = table.nearest(provider, model)
        hint = f" Names near it: {', '.join(near)}." if near and not table.rules(provider, model) else ""
        print(f"{provider}:{model} has no price for this call: it is unpriced, not free.{hint}")
    else:
        print(f"holds      {_described(told.rule)}")
        print(_rates(told.rule.rates))
    if told.runner_up is not None:
        print(f"runner-up  {_described(told.runner_up)}")
    for row, why in told.others:
        print(f"not this   {_described(row)}: {why}")
    if told.rule is not None and options.usage:
        print(f"\n{_bill(told.rule.rates, options.usage)}")
    return 0 if told.rule is not None else 1


async def validate_command(options: argparse.Namespace) -> int:
    """Read a price table of one's own and say what it holds; a wrong one is refused with the place."""
    table = load_prices(options.file, over=None)
    rows = table.all_rules()
    print(f"{options.file}: {len(rows)} rules for {len({(row.provider, row.model) for row in rows})} models, all sound")
    return 0


def _table(file: str | None) -> PriceTable:
    return DEFAULT_PRICES if file is None else load_prices(file)


def _described(row: PriceRow) -> str:
    return row.rates.rule or f"{row.provider}:{row.model}"


def _rates(rates: Rates) -> str:
    named = {
        "input": rates.input,
        "output": rates.output,
        "cache read": rates.cache_read,
        "cache write": rates.cache_write,
        "for an hour": rates.cache_write_1h,
    }
    parts = [", ".join(f"{name} {_rate(rate)}" for name, rate in named.items()) + " (dollars per million)"]
    if rates.request:
        parts.append(f"${render_money(rates.request)} a request")
    which = "of the input above it" if rates.marginal else "of the whole request"
    parts += [
        f"above {band.above_input_tokens} input tokens, {which}: input {_rate(band.input)}, output {_rate(band.output)}"
        for band in rates.bands
    ]
    parts += [f"{unit.unit}: ${render_money(unit.price)} for {unit.per}" for unit in rates.units]
    parts += [f"then {step.kind} {render_money(step.amount)} {step.reason}".rstrip() for step in rates.steps]
    return "\n".join(f"           {part}" for part in parts)


def _bill(rates: Rates, pairs: list[str]) -> str:
    bill = assess(rates, _usage(pairs))
    rows = [
        [
            line.what,
            "?" if line.quantity is None else str(line.quantity),
            f"{_rate(line.rate)} / {line.per}",
            "unknown" if line.cost is None else f"${render_money(line.cost)}",
        ]
        for line in bill.lines
    ]
    known = f"${render_money(bill.known)}"
    total = known if bill.cost is not None else f">= {known}"
    return text_table(["line", "quantity", "rate", "cost"], [*rows, ["total", "", "", total]], total=True)


def _usage(pairs: list[str]) -> Usage:
    tokens: dict[str, int] = {}
    units: dict[str, int | Decimal] = {}
    for text in pairs:
        name, value = _pair(text, "--usage")
        name = _SHORT.get(name, name)
        try:
            amount = Decimal(value)
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or not 0 <= amount <= _MOST or (name in _TOKENS and amount != int(amount)):
            raise ConfigurationError(f"--usage {text}: write NAME=NUMBER, such as input=1000.")
        if name in _TOKENS:
            tokens[name] = int(amount)
        else:
            units[name] = int(amount) if amount == int(amount) else amount
    read, output, cached, written, hour = (tokens.get(name, 0) for name in _TOKENS)
    return Usage(read, output, cached, written, hour, units=tuple(sorted(units.items())))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ConfigurationError(f"{option} {text}: write NAME=VALUE.")
    return name, value


def _rate(amount: Decimal | None) -> str:
    return "unknown" if amount is None else render_money(amount)
