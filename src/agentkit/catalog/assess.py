"""From one usage to one bill, line by line: what was counted, at which rate, and what cannot be priced."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from agentkit.core.contracts import (
    ZERO,
    PriceStep,
    RateBand,
    Rates,
    UnitRate,
    Usage,
    add_money,
    divide_money,
    multiply_money,
    round_money,
    subtract_money,
)

__all__ = ["Assessment", "CostLine", "GroupBill", "assess", "bill_group"]

MILLION = 1_000_000
_PER_TOKEN = Decimal("0.000001")
_ORDINARY = ("input_image_tokens", "input_video_tokens")  # cost what text costs where a list gives them no rate
_UNKNOWN_SPLIT = "how many of its {} were read from the cache"


class CostLine(Struct, frozen=True):
    """One line of a bill: `quantity` of something at `rate` dollars for each `per`; None is unknown."""

    what: str
    quantity: int | Decimal | None
    rate: Decimal | None
    per: int
    cost: Decimal | None


class Assessment(Struct, frozen=True):
    """A usage under rates: `cost` in dollars, None when a part is unknown; `known` is then its lower bound.

    `missing` names what is not known.
    """

    cost: Decimal | None
    known: Decimal
    lines: tuple[CostLine, ...]
    missing: tuple[str, ...]


class GroupBill(Struct, frozen=True):
    """Several calls rounded together: the total, each call's share, and what no call accounts for."""

    total: Decimal | None
    shares: tuple[Decimal, ...]
    unallocated: Decimal = ZERO


def assess(rates: Rates, usage: Usage) -> Assessment:
    """Return the bill of one call.

    Input is inclusive: cached parts and tokens of a modality with a rate of its own are taken out of it and priced
    apart, so that every token is in one line. Images and videos that were read are ordinary input where the rule has
    no rate for them; anything else without a rate makes the cost unknown, never free.
    """
    return _closed(_lines(rates, usage), rates)


def bill_group(rates: Rates, usages: Sequence[Usage]) -> GroupBill:
    """Return the bill of calls that are rounded together: units and adjustments apply to their sum, once.

    Shares follow what each call would cost without rounding; they add up to the total, the last takes the rest.
    """
    raw = [_lines(rates, usage, rounded=False) for usage in usages]
    billed = {rate.unit: rate for rate in rates.units if rate.minimum or rate.increment}
    sums: dict[str, Decimal] = dict.fromkeys(billed, ZERO)
    lines: list[CostLine] = []
    for line in (line for each in raw for line in each):
        if line.what in sums and line.quantity is not None:
            sums[line.what] = add_money(sums[line.what], Decimal(line.quantity))
        else:
            lines.append(line)
    lines += [_unit_line(billed[unit], quantity, rounded=True) for unit, quantity in sums.items() if quantity]
    total = _closed(lines, rates).cost
    return GroupBill(None, ()) if total is None else _shared(total, [_sum(each) for each in raw])


def _closed(lines: Sequence[CostLine], rates: Rates) -> Assessment:
    known = _sum(lines)
    for step in rates.steps:
        known = stepped(known, step)
    known = round_money(known)
    missing = tuple(line.what for line in lines if line.cost is None)
    return Assessment(None if missing else known, known, tuple(lines), missing)


def _sum(lines: Sequence[CostLine]) -> Decimal:
    total = ZERO
    for line in lines:
        if line.cost is not None:
            total = add_money(total, line.cost)
    return total


def _shared(total: Decimal, weights: Sequence[Decimal]) -> GroupBill:
    whole = ZERO
    for weight in weights:
        whole = add_money(whole, weight)
    if not whole:
        return GroupBill(total, tuple(ZERO for _ in weights), total)
    shares: list[Decimal] = []
    left = total
    for weight in weights[:-1]:
        nano = divide_money(multiply_money(multiply_money(total, weight), 10**12), whole)
        share = round_money(multiply_money(Decimal(nano), Decimal("1e-12")))
        shares.append(share)
        left = subtract_money(left, share)
    return GroupBill(total, (*shares, left))


def _lines(rates: Rates, usage: Usage, *, rounded: bool = True) -> list[CostLine]:
    units = dict(usage.units)
    lines = _input_lines(rates, usage, units)
    lines += _output_lines(rates, usage, units)
    if rates.request:
        lines.append(CostLine("requests", 1, rates.request, 1, rates.request))
    priced = {rate.unit: rate for rate in rates.units}
    for name, quantity in units.items():
        rate = priced.get(name)
        if rate is None:
            lines.append(CostLine(name, quantity, None, 1, None))
        else:
            lines.append(_unit_line(rate, quantity, rounded=rounded))
    return lines


def _input_lines(rates: Rates, usage: Usage, units: dict[str, int | Decimal]) -> list[CostLine]:
    total = usage.input_tokens
    if total is None:
        return [CostLine("input_tokens", None, rates.input, MILLION, None)]
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    lines, apart, read, unsplit = _modalities(rates, units, "input", read)
    hour = min(usage.cache_write_1h_tokens or 0, written)
    ordinary = max(0, total - read - written - apart)
    if unsplit:
        lines += [CostLine(_UNKNOWN_SPLIT.format(name), None, None, MILLION, None) for name in unsplit]
        read = 0
    parts = (("cache_read_tokens", read), ("cache_write_tokens", written - hour), ("cache_write_1h_tokens", hour))
    return lines + _banded(rates, total, (*parts, ("input_tokens", ordinary)))


def _output_lines(rates: Rates, usage: Usage, units: dict[str, int | Decimal]) -> list[CostLine]:
    total = usage.output_tokens
    if total is None:
        return [CostLine("output_tokens", None, rates.output, MILLION, None)]
    lines, apart, _, _ = _modalities(rates, units, "output", 0)
    reasoning = next((rate for rate in rates.units if rate.unit == "output_reasoning_tokens"), None)
    if reasoning is not None and usage.reasoning_tokens:
        lines.append(_unit_line(reasoning, usage.reasoning_tokens, rounded=True))
        apart += usage.reasoning_tokens
    band = rates if rates.marginal else band_of(rates, usage.input_tokens or 0)
    lines.append(_token_line("output_tokens", max(0, total - apart), band.output))
    return lines


def _modalities(
    rates: Rates, units: dict[str, int | Decimal], side: str, read: int
) -> tuple[list[CostLine], int, int, list[str]]:
    """Take the tokens of a modality out of the units: their lines, how many they are, and the cache reads left.

    Where some were read from the cache and nobody says how many, their price is unknown.
    """
    lines: list[CostLine] = []
    unsplit: list[str] = []
    apart, cached_reads = 0, read
    priced = {rate.unit: rate for rate in rates.units}
    for name in [name for name in units if name.startswith(f"{side}_") and name.endswith("_tokens")]:
        tokens = int(units.pop(name))
        modality = name.removeprefix(f"{side}_").removesuffix("_tokens")
        in_cache = f"cache_{modality}_read_tokens"
        if name in _ORDINARY and name not in priced:
            units.pop(in_cache, None)
            continue
        cached = int(units.pop(in_cache, 0 if not read else -1))
        apart += tokens
        if cached < 0:
            unsplit.append(name)
            continue
        for what, quantity in ((name, tokens - cached), (in_cache, cached)):
            if quantity:
                rate = priced.get(what)
                line = CostLine(what, quantity, None, MILLION, None)
                lines.append(line if rate is None else _unit_line(rate, quantity, rounded=True))
        cached_reads = max(0, cached_reads - cached)
    return lines, apart, cached_reads, unsplit


def _banded(rates: Rates, total: int, parts: Sequence[tuple[str, int]]) -> list[CostLine]:
    """Price the parts of the input in their order in the prompt: what was cached stands first."""
    if not rates.marginal:
        band = band_of(rates, total)
        return [_token_line(what, tokens, rate_of(band, what)) for what, tokens in parts if tokens]
    lines: list[CostLine] = []
    starts = [0, *(band.above_input_tokens for band in rates.bands)]
    rows: list[Rates | RateBand] = [rates, *rates.bands]
    place = 0
    for what, tokens in parts:
        for index, row in enumerate(rows):
            end = starts[index + 1] if index + 1 < len(starts) else total
            inside = max(0, min(place + tokens, end) - max(place, starts[index]))
            if inside:
                lines.append(_token_line(what, inside, rate_of(row, what)))
        place += tokens
    return lines


def band_of(rates: Rates, input_tokens: int) -> Rates | RateBand:
    """Return the rates that hold for a request with so many input tokens."""
    best: Rates | RateBand = rates
    for band in rates.bands:
        if input_tokens > band.above_input_tokens:
            best = band
    return best


def rate_of(band: Rates | RateBand, what: str) -> Decimal | None:
    """Return dollars per million of that kind of input; an hour's cache costs at least what a shorter one does."""
    if what == "input_tokens":
        return band.input
    if what == "cache_read_tokens":
        return band.cache_read
    if what == "cache_write_1h_tokens":
        return band.cache_write_1h
    return band.cache_write


def _token_line(what: str, tokens: int, rate: Decimal | None) -> CostLine:
    cost = None if rate is None else multiply_money(multiply_money(rate, tokens), _PER_TOKEN)
    return CostLine(what, tokens, rate, MILLION, cost)


def _unit_line(rate: UnitRate, quantity: int | Decimal, *, rounded: bool) -> CostLine:
    billed = Decimal(quantity)
    if rounded:
        billed = max(_up(billed, rate.increment), rate.minimum)
    if rate.per == MILLION:
        cost = multiply_money(multiply_money(rate.price, billed), _PER_TOKEN)
    else:
        cost = divided(multiply_money(rate.price, billed), rate.per)
    shown = int(billed) if billed == billed.to_integral_value() else billed
    return CostLine(rate.unit, shown, rate.price, rate.per, cost)


def stepped(amount: Decimal, step: PriceStep) -> Decimal:
    """Return the dollars after one adjustment."""
    if step.kind == "multiply":
        return multiply_money(amount, step.amount)
    if step.kind == "add":
        return add_money(amount, step.amount)
    return max(amount, step.amount) if step.kind == "minimum" else _up(amount, step.amount)


def _up(amount: Decimal, step: Decimal) -> Decimal:
    """Return the amount rounded up to a multiple of the step; a step of 0 leaves it."""
    if not step:
        return amount
    times = divide_money(amount, step)
    down = multiply_money(step, times)
    return down if down == amount else add_money(down, step)


def divided(amount: Decimal, per: int) -> Decimal:
    """Return the quotient at twenty places, of which money keeps twelve."""
    return multiply_money(Decimal(divide_money(multiply_money(amount, 10**20), Decimal(per))), Decimal("1e-20"))
