"""What a call may cost and did cost: rates, verdicts, and the row each attempt leaves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.messages import JsonObject
from agentkit.core.contracts.money import ZERO
from agentkit.core.contracts.usage import Usage
from agentkit.errors import MeterExceeded

__all__ = ["Charge", "CostRecord", "Outcome", "PriceSource", "PriceStep", "Quote", "RateBand", "Rates", "UnitRate"]

Outcome: TypeAlias = Literal["ok", "error", "cancelled", "closed", "refused"]


class RateBand(Struct, frozen=True):
    """Dollars per million tokens once the input exceeds `above_input_tokens`; a cache rate of None is unknown."""

    above_input_tokens: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class UnitRate(Struct, frozen=True):
    """Dollars for each `per` of a unit of `Usage.units`, at least `minimum` of it, in steps of `increment`."""

    unit: str
    price: Decimal
    per: int = 1
    minimum: Decimal = ZERO
    increment: Decimal = ZERO


class PriceStep(Struct, frozen=True):
    """One adjustment of dollars: multiply by, add, raise to at least, or round up to a multiple of `amount`."""

    kind: Literal["multiply", "add", "minimum", "round_up"]
    amount: Decimal
    reason: str = ""


class Rates(Struct, frozen=True):
    """What a rule charges; tokens in dollars per million, a cache rate of None is unknown.

    `request` is dollars for each request. A band replaces the rates of the whole request, or, when the rates are
    `marginal`, only those of the input above its start. `units` price what is no plain token. `steps` adjust the
    sum, in order. Calls of one `group` are rounded together in reports. `rule` says where all this comes from.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    request: Decimal = ZERO
    bands: tuple[RateBand, ...] = ()
    rule: str = ""
    marginal: bool = False
    units: tuple[UnitRate, ...] = ()
    steps: tuple[PriceStep, ...] = ()
    group: str = ""


class PriceSource(Protocol):
    """Finds the rates of a model; None means unpriced, never free.

    Optional, found by name: `possible(provider, model, *, tier, facts)` returns every rule's rates that the answer to a
    call may turn out to be billed by; without it the tier asked for and the standard one are reserved for.
    """

    def find(
        self,
        provider: str,
        model: str,
        *,
        at: datetime | None = None,
        tier: str | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> Rates | None:
        """Return the rates in force at `at` (now when None) for the service tier, None when there are none.

        `facts` are further billing facts of the call, such as its region or who bills it.
        """
        ...


class Quote(Struct, frozen=True):
    """The most an attempt may use: what is reserved before it and given back after it.

    `cost` is dollars, None when unpriced.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None


class CostRecord(Struct, frozen=True, kw_only=True):
    """The priced row of one attempt: who, which model, what was used, at which rates, what it cost.

    Three answers stand apart: whether it ran (`outcome`, `accepted`), what it used (`usage`), and what that costs:
    `cost` in dollars, None when the price or the usage is unknown, with the lower bound in `known_cost`. `accepted`
    marks the attempt by which its logical call counts: it delivered something, or was cut short while delivering.
    `raw_usage` is what the provider reported, as it said it; `billing` are the facts that the rates were found by,
    beside the day and the tier. `physical` False stands for an attempt inside which a
    program of somebody else's may have made several.
    """

    run_id: str
    path: str
    call_id: str
    attempt: int
    purpose: str
    provider: str
    model: str
    outcome: Outcome
    usage: Usage
    cost: Decimal | None
    rates: Rates | None = None
    service_tier: str | None = None
    seconds: float = 0.0
    accepted: bool = True
    known_cost: Decimal = ZERO
    agent: str = ""
    raw_usage: JsonObject | None = None
    physical: bool = True
    billing: Mapping[str, str] = {}

    @property
    def at_least(self) -> Decimal:
        """Return the dollars, or the lower bound of those that are not known."""
        return self.known_cost if self.cost is None else self.cost


class Charge(Struct, frozen=True):
    """A meter's verdict. `spent` and `remaining` are dollars; `remaining` None means no ceiling.

    `cost_complete` False makes `spent` a lower bound.
    """

    ok: bool
    reason: str = ""
    spent: Decimal = ZERO
    remaining: Decimal | None = None
    calls: int = 0
    cost_complete: bool = True
    usage: Usage = Usage()
    axis: str = ""

    def raise_if_exceeded(self) -> Charge:
        """Return self when ok, so it chains; raise MeterExceeded with the reason otherwise."""
        if not self.ok:
            raise MeterExceeded(self.reason, axis=self.axis)
        return self
