"""Our cost of a call beside what somebody else says that it cost: the provider's answer, its API, an invoice."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from agentkit.core.contracts import CostRecord, Money, add_money, multiply_money, render_money, subtract_money, to_money
from agentkit.core.contracts.messages import JsonObject, JsonValue
from agentkit.errors import MoneyPrecisionError

__all__ = ["Disposition", "Reconciliation", "ReportedCost", "divergences", "reconcile", "reported_cost"]

Disposition: TypeAlias = Literal["equal", "divergent", "unknown"]

_TICKS = Decimal("0.0000000001")  # of a dollar: what one provider counts in


class ReportedCost(Struct, frozen=True):
    """What somebody says a call cost; an `amount` of None is not said. `source` names who says it, and where."""

    amount: Decimal | None
    currency: str = "USD"
    source: str = ""


class Reconciliation(Struct, frozen=True):
    """Our record beside a reported cost. What it comes to is derived from the two each time it is asked for."""

    record: CostRecord
    reported: ReportedCost | None

    @property
    def disposition(self) -> Disposition:
        """Return whether both say the same amount, another, or one of them cannot be compared."""
        if self.reason:
            return "unknown"
        return "divergent" if self.difference else "equal"

    @property
    def difference(self) -> Decimal | None:
        """Return the reported dollars minus ours, exactly; None where they cannot be compared."""
        if self.reason or self.record.cost is None or self.reported is None or self.reported.amount is None:
            return None
        return subtract_money(self.reported.amount, self.record.cost)

    @property
    def reason(self) -> str:
        """Return why the two cannot be compared, empty when they can."""
        ours, theirs = self.record.cost, self.reported
        if theirs is None or theirs.amount is None:
            return "no cost was reported"
        if theirs.currency.upper() != "USD":
            return f"the reported cost is in {theirs.currency}, ours in USD"
        if ours is None:
            return f"our cost is not known, at least ${render_money(self.record.known_cost)}"
        return ""


def reconcile(record: CostRecord, reported: ReportedCost | Money | None = None) -> Reconciliation:
    """Return the record beside a reported cost: the one given, else the one in the record's own raw usage.

    A plain amount is dollars. Amounts count to twelve places, and 1.00 is 1.0. Neither changes a record or a budget.
    Raises MoneyPrecisionError for what is no amount.
    """
    if reported is None:
        reported = reported_cost(record)
    elif not isinstance(reported, ReportedCost):
        reported = ReportedCost(to_money(reported))
    elif reported.amount is not None:
        reported = ReportedCost(to_money(reported.amount), reported.currency, reported.source)
    return Reconciliation(record, reported)


def divergences(records: Iterable[CostRecord]) -> tuple[Reconciliation, ...]:
    """Return those whose provider reported a cost that is not ours, or that cannot be compared with ours."""
    found = [reconcile(record) for record in records]
    return tuple(each for each in found if each.reported is not None and each.disposition != "equal")


def reported_cost(record: CostRecord) -> ReportedCost | None:
    """Return the cost that the provider told in its usage, None when it told none.

    OpenRouter tells dollars, for calls under the user's own key the upstream's price beside its fee; Perplexity a
    total; xAI ticks.
    """
    raw = record.raw_usage or {}
    try:
        amount = _amount(raw)
    except MoneyPrecisionError:
        return None
    return None if amount is None else ReportedCost(amount, "USD", f"{record.provider}: usage")


def _amount(raw: JsonObject) -> Decimal | None:
    told = raw.get("cost")
    if isinstance(told, dict):
        return _money(told.get("total_cost"))
    if told is None:
        ticks = _money(raw.get("cost_in_usd_ticks"))
        return None if ticks is None else multiply_money(ticks, _TICKS)
    amount, details = _money(told), raw.get("cost_details")
    if amount is None or raw.get("is_byok") is not True:
        return amount
    upstream = _money(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
    return None if upstream is None else add_money(amount, upstream)


def _money(value: JsonValue) -> Decimal | None:
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    return to_money(cast("Money", value))
