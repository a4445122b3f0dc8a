"""An attempt in the ledger: told before it begins, held under shared ceilings, and told again when it is over."""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal

from msgspec.structs import replace

from agentkit.core.contracts import (
    ZERO,
    LedgerEntry,
    LedgerStore,
    SharedCeiling,
    SharedRefusal,
    Usage,
    add_money,
    render_money,
    subtract_money,
)
from agentkit.core.runtime.metering.attempt import Attempt, give_back, row
from agentkit.core.runtime.metering.capping import is_strict, lower_cap
from agentkit.errors import ConfigurationError, MeterExceeded

__all__ = ["begin", "end"]

_LOG = logging.getLogger("agentkit")
_GRACE = 5.0  # seconds a ledger has for the end of an attempt
_GRACE_OF_LEAVING = 0.25  # and of one that was never sent
_LONGEST_LEASE = 3_600.0  # what an answer without a deadline may take, and holds after a crash
_SHORTEST_LEASE = 600.0
_UNKNOWN = Usage(None, None)
_FIRST_LOOK = 0.02  # seconds until a full ceiling is looked at again, doubled each time
_LAST_LOOK = 1.0


async def begin(attempt: Attempt) -> None:
    """Write down that the attempt begins, and hold its bound under the ceilings that workers share.

    Where a budget is strict, the output cap is lowered to what is left under them. What fits only once other attempts
    are over is waited for, at most the budget's `max_wait` and the deadline. When
    the ledger refuses, or cannot write, nothing is sent and every meter gets its reservation back: raises
    MeterExceeded, or the store's error.
    """
    ledger, ctx = attempt.ctx.services.ledger, attempt.ctx
    shared = [each for each in attempt.limiting if getattr(each, "shared", None)]
    if ledger is None:
        if shared:
            give_back(attempt, attempt.limiting)
            raise ConfigurationError(
                f"Budget(shared={getattr(shared[0], 'shared')!r}) needs a ledger: pass store= to CallRuntime."  # noqa: B009
            )
        return
    ceilings = [SharedCeiling(getattr(each, "shared"), getattr(each, "ceiling")()) for each in shared]  # noqa: B009
    opened: LedgerEntry | None = None
    patience = min((float(getattr(each, "max_wait", 0.0)) for each in shared), default=0.0)
    try:
        record = replace(row(attempt, "ok", None), usage=_UNKNOWN, cost=None)
        opened = LedgerEntry(
            tenant=ctx.scope.tenant,
            record=record,
            at=ctx.services.clock.wall(),
            user=ctx.scope.user,
            session=ctx.scope.session,
            state="open",
        )
        refusal = await _admitted(attempt, ledger, opened, ceilings, patience)
    except BaseException:
        give_back(attempt, attempt.limiting)
        if opened is not None and attempt.record is not None:
            await end(attempt, opened, sent=False)
        raise
    attempt.opened = opened
    if refusal is not None:
        give_back(attempt, attempt.limiting)
        attempt.opened = None
        stops = any(getattr(each, "on_exceeded", "raise") == "stop" for each in shared)
        raise MeterExceeded(_said(refusal, _hold(attempt)), axis="cost", suspends=stops)


async def end(attempt: Attempt, opened: LedgerEntry, *, sent: bool = True) -> None:
    """Tell the ledger how the attempt ended; a ledger that cannot write is logged, the answer is kept."""
    ledger, record = attempt.ctx.services.ledger, attempt.record
    if ledger is None or record is None:
        return
    try:
        async with asyncio.timeout(_GRACE if sent else _GRACE_OF_LEAVING):
            await ledger.settle([replace(opened, record=record, state="settled")])
    except Exception:
        _LOG.exception("The ledger lost call %s of run %s", record.call_id, record.run_id)


async def _admitted(
    attempt: Attempt, ledger: LedgerStore, opened: LedgerEntry, ceilings: list[SharedCeiling], patience: float
) -> SharedRefusal | None:
    clock, left = attempt.ctx.services.clock, attempt.ctx.remaining_time()
    until = clock.now() + (patience if left is None else min(patience, left))
    strict = any(getattr(each, "shared", None) and is_strict(each) for each in attempt.limiting)
    look = _FIRST_LOOK
    while True:
        refusal = await _begun(attempt, ledger, opened, ceilings)
        if refusal is not None and strict and lower_cap(attempt, _left(refusal)):
            continue
        if refusal is None or not refusal.in_flight or clock.now() >= until:
            return refusal
        await clock.sleep(min(look, max(0.0, until - clock.now())))
        look = min(2 * look, _LAST_LOOK)


async def _begun(
    attempt: Attempt, ledger: LedgerStore, opened: LedgerEntry, ceilings: list[SharedCeiling]
) -> SharedRefusal | None:
    """Begin once; who leaves meanwhile has a row that takes back what may have been written: nothing was sent."""
    try:
        lease = _lease(attempt.ctx.remaining_time())
        return await ledger.begin(opened, hold=_hold(attempt), ceilings=ceilings, lease=lease)
    except Exception:
        raise
    except BaseException:
        attempt.record = row(attempt, "cancelled", None)
        raise


def _lease(left: float | None) -> float:
    """Return the seconds until a worker that tells no end is dead: longer than an answer takes, or may take."""
    return _LONGEST_LEASE if left is None else min(_LONGEST_LEASE, max(_SHORTEST_LEASE, left))


def _left(refusal: SharedRefusal) -> Decimal:
    standing = refusal.standing
    taken = add_money(add_money(standing.spent, standing.held), standing.uncertain)
    return subtract_money(refusal.ceiling.dollars, taken)


def _hold(attempt: Attempt) -> Decimal:
    quote = attempt.call.quote
    return ZERO if quote is None or quote.cost is None else quote.cost


def _said(refusal: SharedRefusal, hold: Decimal) -> str:
    standing, ceiling = refusal.standing, refusal.ceiling
    parts = [f"spent ${render_money(standing.spent)}"]
    parts += [f"in flight ${render_money(standing.held)}"] if standing.held else []
    parts += [f"uncertain ${render_money(standing.uncertain)}"] if standing.uncertain else []
    return (
        f"a bound of ${render_money(hold)} does not fit under ${render_money(ceiling.dollars)} shared as "
        f"{ceiling.key!r} ({', '.join(parts)})"
    )
