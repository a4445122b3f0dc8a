"""One attempt of a model call: who has to admit it, and where it is booked once it is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from agentkit.catalog import assess, bound, cost
from agentkit.core.contracts import (
    ZERO,
    AssistantMessage,
    Call,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    CostRecord,
    LedgerEntry,
    Meter,
    Outcome,
    Quote,
    RateLimit,
    Rates,
    Reported,
    ToolCallDelta,
    Usage,
)
from agentkit.core.runtime.context import RunContext
from agentkit.errors import MeterExceeded

__all__ = ["Attempt", "admit", "charge", "give_back", "has_money_ceiling", "learn", "resize", "row", "settle"]

_LOG = logging.getLogger("agentkit")
_NOTHING = Usage()
_NO_ANSWER = ChatResponse(AssistantMessage())
_NO_BILLING: Mapping[str, str] = {}
_MOST_GAPS = 256
_MOST_DOLLARS = Decimal(10) ** 24  # what every ledger can hold, also added up
_TOLD_GAPS: set[tuple[str, tuple[str, ...]]] = set()


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
    reported: Reported | None = None  # what the provider told of the bill before the end
    billing: Mapping[str, str] = _NO_BILLING  # the facts that found the rates
    bounds: Sequence[Rates] = ()  # what the bound was made with: all rules that may turn out to apply
    fallback: Rates | None = None  # what a model without a price is declared to cost at most
    foreign: Sequence[Meter] = ()  # those that know no `settle` and are waited for, after all others

    def hear(self, event: ChatEvent) -> None:
        """Take notice of an event that is no piece of text."""
        self.started = True
        if type(event) is ChatStart:
            self.reported = event.reported
        elif event.visible:
            self.visible = True
            if type(event) is ToolCallDelta:
                self.heard += len(event.name) + len(event.arguments)


async def admit(attempt: Attempt) -> None:
    """Ask the actor, and every meter that may refuse, in order; raises MeterExceeded, and then nothing is reserved."""
    actor = attempt.ctx.actor_budget
    if actor is not None and (axis := actor.exhausted_axis()) is not None:
        raise MeterExceeded(f"nothing of the actor's {axis} is left", axis=axis, suspends=True)
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


def has_money_ceiling(attempt: Attempt) -> bool:
    """Return whether anybody who is asked limits dollars."""
    for each in attempt.limiting:
        ceiling = getattr(each, "ceiling", None)
        if ceiling is not None and ceiling() is not None and getattr(each, "mode", None) != "observe":
            return True
    actor = attempt.ctx.actor_budget
    return actor is not None and actor.max_cost() is not None


def give_back(attempt: Attempt, meters: Sequence[Meter]) -> None:
    """Give back what these meters reserved, in reverse: the attempt never began."""
    for each in reversed(meters):
        release = getattr(each, "release", None)
        if release is not None:
            release(attempt.call)


def settle(attempt: Attempt, outcome: Outcome, usage: Usage | None, response: ChatResponse | None = None) -> CostRecord:
    """Book the attempt everywhere, but for the meters that have to be waited for: those become `foreign`."""
    ctx = attempt.ctx
    record = attempt.record = row(attempt, outcome, usage, response)
    ctx.record(record)
    if ctx.actor_budget is not None and usage is not None:
        steps = 1 if record.accepted else 0
        ctx.actor_budget.charge(usage, record.cost, steps=steps, known_cost=record.known_cost)
    if attempt.fallback is not None and attempt.rates is None and usage is not None:
        _hold_for_good(attempt, attempt.fallback, usage)
    call = attempt.call
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


def learn(attempt: Attempt, limit: RateLimit) -> None:
    """Tell every meter that heeds it what the provider said of its limits."""
    for each in attempt.meters:
        heed = getattr(each, "learn", None)
        if heed is None:
            continue
        try:
            heed(attempt.call, limit)
        except Exception:
            _LOG.exception("A meter failed to learn the limits told for call %s", attempt.call.id)


def resize(attempt: Attempt, quote: Quote) -> None:
    """Have every meter that admitted the attempt hold another bound for it."""
    for each in attempt.limiting:
        change = getattr(each, "resize", None)
        if change is not None:
            change(attempt.call, quote)
    attempt.call = replace(attempt.call, quote=quote)


def _hold_for_good(attempt: Attempt, declared: Rates, usage: Usage) -> None:
    """Hold the most that an attempt without a price can have cost by what it used."""
    held = attempt.call.quote or Quote()
    read = held.input_tokens if usage.input_tokens is None else usage.input_tokens
    written = held.output_tokens if usage.output_tokens is None else usage.output_tokens
    resize(attempt, Quote(read, written, bound(declared, read, written)))


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
    call, ctx, route, said = attempt.call, attempt.ctx, attempt.call.route, attempt.reported
    answered = response if response is not None else _NO_ANSWER
    price = ZERO if usage is None else _price(attempt.rates, usage)
    known = price
    if known is None:
        known = ZERO if usage is None or attempt.rates is None else _least(attempt.rates, usage)
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
        service_tier=answered.service_tier if said is None else said.service_tier,
        seconds=ctx.services.clock.now() - attempt.began,
        accepted=usage is not None and _delivered(attempt, outcome),
        raw_usage=answered.raw_usage if said is None else said.raw,
        physical=route is None or bool(getattr(route.port, "physical", True)),
        billing=attempt.billing,
    )


def _price(rates: Rates | None, usage: Usage) -> Decimal | None:
    if rates is None:
        return None
    try:
        price = cost(rates, usage)
        if price is None or price is ZERO or ZERO <= price < _MOST_DOLLARS:
            return price
    except Exception:
        _LOG.exception("The rates %r cannot price %r", rates.rule, usage)
    else:
        _LOG.error("The rates %r price %r at %s, which no bill can say", rates.rule, usage, price)
    return None


def _least(rates: Rates, usage: Usage) -> Decimal:
    """Return the lower bound of a cost that is not known, 0 when none can be said; tell once what has no price."""
    try:
        bill = assess(rates, usage)
        known = bill.known if ZERO <= bill.known < _MOST_DOLLARS else ZERO
    except Exception:  # it was logged when the whole could not be priced
        return ZERO
    gap = (rates.rule, bill.missing)
    counted = usage.input_tokens is not None and usage.output_tokens is not None  # else it is no gap of the rule's
    if counted and gap not in _TOLD_GAPS and len(_TOLD_GAPS) < _MOST_GAPS:
        _TOLD_GAPS.add(gap)
        missing = ", ".join(bill.missing)
        _LOG.warning("The rule %r has no price for %s: the cost of such calls is unknown", rates.rule, missing)
    return known


def _delivered(attempt: Attempt, outcome: Outcome) -> bool:
    return attempt.visible or (attempt.started and outcome in ("cancelled", "closed", "refused"))
