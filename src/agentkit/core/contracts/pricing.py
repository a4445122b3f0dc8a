"""What a call may cost and did cost: rates, verdicts, and the row each attempt leaves."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.money import ZERO
from agentkit.core.contracts.usage import Usage
from agentkit.errors import MeterExceeded

__all__ = ["Charge", "CostRecord", "Outcome", "PriceSource", "Quote", "RateBand", "Rates"]

Outcome: TypeAlias = Literal["ok", "error", "cancelled", "closed", "refused"]


class RateBand(Struct, frozen=True):
    """Dollars per million tokens from `above_input_tokens` on, for the whole request."""

    above_input_tokens: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class Rates(Struct, frozen=True):
    """Dollars per million tokens; a cache rate of None means the input rate. `rule` says where they come from."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    request: Decimal = ZERO
    bands: tuple[RateBand, ...] = ()
    rule: str = ""


class PriceSource(Protocol):
    """Finds the rates of a model; None means unpriced, never free."""

    def find(self, provider: str, model: str, *, at: datetime | None = None, tier: str | None = None) -> Rates | None:
        """Return the rates in force at `at` (now when None) for the service tier, None when there are none."""
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

    `cost` is dollars, None when the model is unpriced or the usage unknown. `accepted` marks the attempt by which its
    logical call counts: it delivered something, or was cut short while delivering.
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
