"""What every ledger does the same: who is in the way, what an end changes, and how rows add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from decimal import Decimal

from msgspec import convert
from msgspec.structs import replace

from agentkit.core.contracts import (
    ZERO,
    CostDimension,
    CostQuery,
    CostSum,
    LedgerEntry,
    SharedCeiling,
    SharedRefusal,
    SharedSpend,
    add_money,
    subtract_money,
)

__all__ = ["columns", "held", "in_the_way", "is_unknown", "released", "settled", "sum_of", "summed", "wanted"]


def in_the_way(ceiling: SharedCeiling, standing: SharedSpend, hold: Decimal) -> SharedRefusal | None:
    """Return why a bound does not fit under a ceiling, None when it does."""
    for_good = add_money(add_money(standing.spent, standing.uncertain), hold)
    if add_money(for_good, standing.held) <= ceiling.dollars:
        return None
    return SharedRefusal(ceiling, standing, in_flight=for_good <= ceiling.dollars)


def held(standing: SharedSpend, hold: Decimal) -> SharedSpend:
    """Return what stands with one more attempt in flight."""
    return replace(standing, held=add_money(standing.held, hold))


def released(standing: SharedSpend, hold: Decimal) -> SharedSpend:
    """Return what stands once an attempt in flight is lost."""
    return replace(standing, held=max(ZERO, subtract_money(standing.held, hold)))


def settled(standing: SharedSpend, hold: Decimal, entry: LedgerEntry, *, lost: bool) -> SharedSpend:
    """Return what stands once an attempt is over: its cost is spent, its bound stays uncertain when it has none."""
    record = entry.record
    after = standing if lost else released(standing, hold)
    after = replace(after, spent=add_money(after.spent, record.at_least))
    if record.cost is None and record.accepted:
        rest = max(ZERO, subtract_money(hold, record.at_least))
        after = replace(after, uncertain=add_money(after.uncertain, rest))
    return after


def wanted(entry: LedgerEntry, query: CostQuery) -> bool:
    """Return whether the query asks for the row."""
    record = entry.record
    if (query.since is not None and entry.at < query.since) or (query.until is not None and entry.at >= query.until):
        return False
    pairs = (
        (query.tenant, entry.tenant),
        (query.user, entry.user),
        (query.session, entry.session),
        (query.agent, record.agent),
        (query.run_id, record.run_id),
        (query.provider, record.provider),
        (query.model, record.model),
    )
    return all(asked is None or asked == value for asked, value in pairs)


def summed(entries: Iterable[LedgerEntry], by: Sequence[CostDimension]) -> list[CostSum]:
    """Return the sum of the rows of each key, ordered by key."""
    sums: dict[tuple[str, ...], CostSum] = {}
    for entry in entries:
        key = tuple(_value(entry, dimension) for dimension in by)
        sums[key] = _plus(sums.get(key) or CostSum(key=key), entry)
    return [sums[key] for key in sorted(sums)]


def is_unknown(entry: LedgerEntry) -> bool:
    """Return whether the attempt's tokens are not known."""
    usage = entry.record.usage
    return entry.state != "settled" or usage.input_tokens is None or usage.output_tokens is None


def columns(entry: LedgerEntry, *, at: object, known: object) -> tuple[object, ...]:
    """Return a row's columns in the order of the tables; the moment and the dollars as the database takes them."""
    record, usage = entry.record, entry.record.usage
    return (
        *entry.id,
        entry.user,
        entry.session,
        record.agent,
        record.provider,
        record.model,
        record.purpose,
        at,
        entry.state,
        known,
        entry.complete,
        record.accepted and entry.state == "settled",
        usage.estimated,
        is_unknown(entry),
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
    )


def sum_of(row: Sequence[object], keys: int) -> CostSum:
    """Return the sum that a database's row holds behind its keys, in the order of the fields."""
    names = [name for name in CostSum.__struct_fields__ if name != "key"]
    return convert({"key": tuple(row[:keys]), **dict(zip(names, row[keys:], strict=True))}, CostSum)


def _value(entry: LedgerEntry, dimension: CostDimension) -> str:
    record = entry.record
    values: dict[CostDimension, str | None] = {
        "tenant": entry.tenant,
        "user": entry.user,
        "session": entry.session,
        "agent": record.agent,
        "run": record.run_id,
        "provider": record.provider,
        "model": record.model,
        "purpose": record.purpose,
        "day": entry.at.astimezone(UTC).date().isoformat(),
    }
    return values[dimension] or ""


def _plus(total: CostSum, entry: LedgerEntry) -> CostSum:
    record, usage = entry.record, entry.record.usage
    return CostSum(
        key=total.key,
        calls=total.calls + (1 if record.accepted and entry.state == "settled" else 0),
        attempts=total.attempts + 1,
        input_tokens=total.input_tokens + (usage.input_tokens or 0),
        output_tokens=total.output_tokens + (usage.output_tokens or 0),
        cache_read_tokens=total.cache_read_tokens + (usage.cache_read_tokens or 0),
        cache_write_tokens=total.cache_write_tokens + (usage.cache_write_tokens or 0),
        known_cost=add_money(total.known_cost, record.at_least),
        incomplete=total.incomplete + (not entry.complete),
        unknown=total.unknown + is_unknown(entry),
        estimated=total.estimated + usage.estimated,
    )
