"""One attempt of a model call: who has to admit it, and where it is booked once it is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from agentkit.catalog import assess, cost
from agentkit.core.contracts import (
    ZERO,
    AssistantMessage,
    Call,
    ChatRequest,
    ChatResponse,
    CostRecord,
    LedgerEntry,
    Meter,
    Outcome,
    Rates,
    Usage,
)
from agentkit.core.runtime.context import RunContext
from agentkit.errors import MeterExceeded

__all__ = ["Attempt", "admit", "charge", "give_back", "row", "settle"]

_LOG = logging.getLogger("agentkit")
_NOTHING = Usage()
_NO_ANSWER = ChatResponse(AssistantMessage())


class Attempt(Struct):
    """One attempt: what it may use, who has to hear of it, and its priced row once it is over."""

    call: Call[ChatRequest]
    ctx: RunContext
    meters: Sequence[Meter]
    limiting: Sequence[Meter]  # those that may refuse
    rates: Rates | None
    began: float
    input_tokens: int | None = None
    heard: int = 0  # quarter tokens of what was delivered
    started: bool = False
    visible: bool = False
    record: CostRecord | None = None
    opened: LedgerEntry | None = None  # its row in the ledger while it runs
    foreign: Sequence[Meter] = ()  # those that know no `settle` and are waited for, after all others


async def admit(attempt: Attempt) -> None:
    """Ask every meter that may refuse, in order; raises MeterExceeded, and then nothing stays reserved."""
    passed: list[Meter] = []
    try:
        for each in attempt.limiting:
            reserve = getattr(each, "reserve", None) or each.guard
            verdict = await reserve(attempt.call)
            if verdict is not None and not verdict.ok:
                raise MeterExceeded(verdict.reason, axis=verdict.axis, suspends=True)
            passed.append(each)
    except BaseException:
        give_back(attempt, passed)
        raise


def give_back(attempt: Attempt, meters: Sequence[Meter]) -> None:
    """Give back what these meters reserved, in reverse: the attempt never began."""
    for each in reversed(meters):
        release = getattr(each, "release", None)
        if release is not None:
            release(attempt.call)


def settle(attempt: Attempt, outcome: Outcome, usage: Usage | None, response: ChatResponse | None = None) -> CostRecord:
    """Book the attempt everywhere, but for the meters that have to be waited for: those become `foreign`."""
    call, ctx = attempt.call, attempt.ctx
    record = attempt.record = row(attempt, outcome, usage, response)
    ctx.record(record)
    if ctx.actor_budget is not None and usage is not None:
        ctx.actor_budget.charge(usage, record.cost, steps=1 if record.accepted else 0)
    foreign: list[Meter] = []
    for each in attempt.meters:
        book = getattr(each, "settle", None)
        if book is None:
            foreign.append(each)
            continue
        try:
            book(call, record)
        except Exception:
            _LOG.exception("A meter failed to settle call %s of run %s", record.call_id, record.run_id)
    if usage is not None:
        attempt.foreign = foreign
    return record


async def charge(attempt: Attempt, record: CostRecord) -> CostRecord:
    """Book the attempt with the meters that have to be waited for, and return its row.

    What one of them raises goes no further.
    """
    call = attempt.call
    for each in attempt.foreign:
        try:
            await each.charge(call, record.usage)
        except MeterExceeded:
            continue  # the money is spent; its next guard refuses
        except Exception:
            _LOG.exception("A meter failed to book call %s of run %s", call.id, call.ctx.correlation_id)
    return record


def row(attempt: Attempt, outcome: Outcome, usage: Usage | None, response: ChatResponse | None = None) -> CostRecord:
    """Return the attempt's priced row; a usage of None stands for one that provably did not run."""
    call, ctx, route = attempt.call, attempt.ctx, attempt.call.route
    answered = response if response is not None else _NO_ANSWER
    price = ZERO if usage is None else _price(attempt.rates, usage)
    known = price
    if known is None:
        known = ZERO if usage is None or attempt.rates is None else assess(attempt.rates, usage).known
    return CostRecord(
        run_id=ctx.correlation_id,
        path=ctx.path,
        call_id=call.id,
        attempt=call.attempt,
        purpose=call.purpose,
        provider=answered.provider if route is None or not route.provider else route.provider,
        model=answered.model if route is None or not route.model else route.model,
        outcome=outcome,
        usage=_NOTHING if usage is None else usage,
        cost=price,
        known_cost=known,
        agent=ctx.agent,
        rates=attempt.rates,
        service_tier=answered.service_tier,
        seconds=ctx.services.clock.now() - attempt.began,
        accepted=usage is not None and _delivered(attempt, outcome),
    )


def _price(rates: Rates | None, usage: Usage) -> Decimal | None:
    if rates is None:
        return None
    try:
        return cost(rates, usage)
    except Exception:
        _LOG.exception("The rates %r cannot price %r", rates.rule, usage)
        return None


def _delivered(attempt: Attempt, outcome: Outcome) -> bool:
    return attempt.visible or (attempt.started and outcome in ("cancelled", "closed", "refused"))
