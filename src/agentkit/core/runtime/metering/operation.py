"""Paid operations that are no model calls: guarded before, priced and settled however they end."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal, DecimalException
from typing import NoReturn

from agentkit.catalog import cost, parse_price
from agentkit.core.contracts import (
    ZERO,
    Call,
    ChatRequest,
    Money,
    Outcome,
    Purpose,
    Quote,
    Rates,
    Route,
    UnitRate,
    UnpricedPolicy,
    Usage,
    to_money,
)
from agentkit.core.runtime.checks import text
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.identity import new_id
from agentkit.core.runtime.metering.attempt import Attempt, admit, charge, has_money_ceiling, settle
from agentkit.core.runtime.metering.ending import MOST_TOKENS, outcome_of, plausible
from agentkit.core.runtime.metering.ledgered import begin, end
from agentkit.core.runtime.metering.limits import to_ceiling
from agentkit.errors import ConfigurationError, ProviderError, UnpricedModel

__all__ = ["Bill", "metered"]

_UNKNOWN = Usage(None, None)
_NO_REQUEST = ChatRequest(())


class Bill:
    """What an operation used, told as soon as it is known: before what it returned is parsed, so that it counts.

    One that ends without a word is unknown, and its bound stays held, unless its price is a fixed one for each
    operation and it ended well.
    """

    __slots__ = ("_dollars", "_usage")

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._dollars: Decimal | None = None

    def used(self, usage: Usage | None = None, /, **units: int | Decimal) -> None:
        """Add what was used: tokens as a Usage, anything else by name, such as `pages=3`.

        Raises ConfigurationError for less than nothing.
        """
        told = {name: _amount(name, amount) for name, amount in units.items()}
        if usage is not None and plausible(usage) is not usage:
            raise ConfigurationError(f"used({usage!r}): pass tokens from 0 on.")
        added = Usage(units=tuple(sorted(told.items())))
        self._usage = (self._usage or Usage()) + (added if usage is None else usage + added)

    def costs(self, dollars: Money) -> None:
        """Take the provider's own word for what it cost; 0 when it says that it charged nothing."""
        told = to_money(dollars)
        if told < 0:
            raise ConfigurationError(f"costs({dollars!r}) is below zero; pass dollars from 0 on.")
        self._dollars = told

    def settled(self, rates: Rates | None, outcome: Outcome) -> tuple[Rates | None, Usage]:
        """Return what to price and how, after the operation."""
        if self._dollars is not None:
            return Rates(ZERO, ZERO, request=self._dollars, rule="told by the provider"), self._usage or Usage()
        fixed = rates is not None and not rates.units and not (rates.input or rates.output)
        if self._usage is None:
            return rates, Usage() if fixed and outcome == "ok" else _UNKNOWN
        return rates, self._usage


class _NoModel:
    """What stands in a route where there is no model."""

    def stream(self, call: Call[ChatRequest], /) -> NoReturn:
        raise ConfigurationError("A metered operation is no model.")


_NOWHERE = _NoModel()


@asynccontextmanager
async def metered(
    ctx: RunContext,
    provider: str,
    operation: str,
    *,
    price: Rates | Money | Mapping[str, Money] | None = None,
    at_most: Money | Mapping[str, int | Decimal] | None = None,
    purpose: Purpose = "operation",
) -> AsyncGenerator[Bill, None]:
    """Meter a paid operation of a tool or of your own code.

    Use it as `async with metered(ctx, "exa", "search", price="0.005") as bill`, around the request alone.
    Every meter of the context is asked before the block and charged after it, on every exit; the ledger has a row of
    its own, under `provider`, `operation` (where a model's name stands) and `purpose`. It counts as one call.
    `price` is dollars for each operation, dollars by unit ({"page": "0.001"}), or Rates; without it, say what it cost
    with `bill.costs(...)`. `at_most` is what is reserved: dollars, or units, `input_tokens` and `output_tokens` too.
    Left out it is one of each priced unit, but nothing is known of tokens then.

    Raises MeterExceeded when a ceiling refuses it, and UnpricedModel when there is neither price nor bound under a
    money ceiling and the runtime's policy is to refuse; the block does not begin then.
    """
    rates, bound = _rates(price), _bound(price, at_most)
    attempt = _opened(ctx, text("metered", "provider", provider), text("metered", "operation", operation), purpose)
    attempt.rates = rates
    if bound is None and has_money_ceiling(attempt):
        _unpriced(ctx, f"{provider}:{operation}")
    attempt.call = _quoted(attempt.call, bound)
    await admit(attempt)
    await begin(attempt)
    bill, refused = Bill(), False
    outcome: Outcome = "ok"
    try:
        yield bill
    except BaseException as error:
        outcome = outcome_of(error)
        refused = isinstance(error, ProviderError) and error.accepted is False
        raise
    finally:
        attempt.rates, usage = bill.settled(rates, outcome)
        attempt.visible = True
        try:
            await charge(attempt, settle(attempt, outcome, None if refused and usage is _UNKNOWN else usage))
        finally:
            if attempt.opened is not None:
                await end(attempt, attempt.opened)


def _opened(ctx: RunContext, provider: str, operation: str, purpose: Purpose) -> Attempt:
    if not isinstance(ctx, RunContext):
        raise ConfigurationError(f"metered({ctx!r}): pass the RunContext that the tool or agent was called with.")
    ctx.check_cancelled()
    route = Route(_NOWHERE, operation, provider, listed=False)
    call = Call(ctx, _NO_REQUEST, new_id(), route, 1, purpose)
    meters = ctx.all_meters
    limiting = [each for each in meters if not getattr(each, "unlimited", False)]
    return Attempt(call, ctx, meters, limiting, None, ctx.services.clock.now())


def _quoted(call: Call[ChatRequest], bound: Decimal | None) -> Call[ChatRequest]:
    return Call(call.ctx, call.request, call.id, call.route, 1, call.purpose, Quote(0, 0, bound))


def _rates(price: Rates | Money | Mapping[str, Money] | None) -> Rates | None:
    if price is None or isinstance(price, Rates):
        return price if price is None else parse_price(price)
    if isinstance(price, Mapping):
        units = tuple(UnitRate(unit, _dollars(f"price[{unit!r}]", each)) for unit, each in price.items())
        return Rates(ZERO, ZERO, units=units, rule="given")
    return Rates(ZERO, ZERO, request=_dollars("price", price), rule="given")


def _bound(
    price: Rates | Money | Mapping[str, Money] | None, at_most: Money | Mapping[str, int | Decimal] | None
) -> Decimal | None:
    if at_most is not None and not isinstance(at_most, Mapping):
        return _dollars("at_most", at_most)
    rates = _rates(price)
    if rates is None:
        return None
    expected = dict.fromkeys((rate.unit for rate in rates.units), 1) if at_most is None else at_most
    if (rates.input and "input_tokens" not in expected) or (rates.output and "output_tokens" not in expected):
        return None  # nobody said how many tokens it is at most
    told = {name: _amount(name, amount, "metered(at_most=...)") for name, amount in expected.items()}
    read, written = int(told.pop("input_tokens", 0)), int(told.pop("output_tokens", 0))
    bound = cost(rates, Usage(read, written, units=tuple(sorted(told.items()))))
    if bound is None:
        raise ConfigurationError(f"metered(at_most={dict(expected)!r}): the price has no rate for some of these units.")
    return bound


def _amount(name: str, value: object, owner: str = "used") -> int | Decimal:
    """Return how much of a unit was used; a float enters by its spelling."""
    try:
        amount = Decimal(str(value))
    except (DecimalException, ValueError):
        amount = Decimal("NaN")
    if isinstance(value, (bool, str)) or not amount.is_finite() or not 0 <= amount <= MOST_TOKENS:
        raise ConfigurationError(f"{owner}({name}={value!r}): pass a number from 0 on.")
    return value if isinstance(value, int) else amount


def _dollars(name: str, value: Money) -> Decimal:
    dollars = to_ceiling(value, name)
    return ZERO if dollars is None else dollars


def _unpriced(ctx: RunContext, name: str) -> None:
    layers = getattr(ctx.services.invoker, "chat_middleware", ())
    found = (getattr(layer, "unpriced_policy", None) for layer in layers)
    policy = next((each for each in found if each is not None), UnpricedPolicy.REFUSE)
    if policy is UnpricedPolicy.REFUSE:
        raise UnpricedModel(
            f"{name} has no price, and a money ceiling applies. Pass price=, or the most it can cost as at_most=."
        )
    if policy is UnpricedPolicy.WARN:
        warnings.warn(f"{name} has no price: the money ceiling does not see it.", RuntimeWarning, 4)
