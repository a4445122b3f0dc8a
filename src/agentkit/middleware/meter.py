"""The innermost layer: admits each attempt with every meter, and prices and settles it however it ends."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from decimal import Decimal
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from agentkit.catalog import FREE, bound, cost
from agentkit.catalog.prices import STANDARD_TIERS
from agentkit.core.contracts import (
    ZERO,
    AttemptEnded,
    Call,
    CallNext,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    CostRecord,
    LedgerEntry,
    Meter,
    Outcome,
    PriceSource,
    Quote,
    Rates,
    ReasoningDelta,
    Route,
    TextDelta,
    ToolCallDelta,
    UnpricedPolicy,
    Usage,
    multiply_money,
)
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.metering.ending import never_accepted, outcome_of, plausible, usage_of
from agentkit.core.runtime.metering.estimate import message_tokens
from agentkit.errors import MeterExceeded, StreamBroken, UnpricedModel

__all__ = ["MeterLayer", "meter"]

InputEstimate: TypeAlias = Callable[[ChatRequest], int]

_LOG = logging.getLogger("agentkit")
_LIKELY_OUTPUT = 1_024  # tokens of an answer before this run has seen one
_LEAST_OUTPUT = 64  # fewer tokens than this are no answer: a strict budget refuses instead
_STRICT_OUTPUT = 8_192  # the cap a strict budget starts from when the request names none
_SURELY = 4  # a token is a byte or more, and the estimate counts four: what a strict ceiling has to reckon with
_TOOLS_AT_MOST = 1_024  # tokens that servers add of their own where there are tools
_PER_TOKEN = Decimal("0.000001")
_LEDGER_GRACE = 5.0  # seconds


class Attempt(Struct):
    """One attempt: what it may use, who has to hear of it, and its priced row once it is over."""

    call: Call[ChatRequest]
    ctx: RunContext
    rates: Rates | None
    began: float
    input_tokens: int | None = None
    heard: int = 0  # quarter tokens of what was delivered
    started: bool = False
    visible: bool = False
    record: CostRecord | None = None


class MeterLayer:
    """Guards every meter in order before an attempt, and settles all of them at its end without waiting.

    Every exit settles: an answer with the usage it reports, a failure or an early close with what was reported or
    else estimated for what arrived (flagged), a proven refusal with nothing. The priced row goes to the context, the
    meters, the ledger and, as AttemptEnded, up the stream. A finished answer is never thrown away for its price.
    Raises MeterExceeded when a meter refuses, UnpricedModel for a model without a price under a money ceiling.
    """

    __slots__ = ("_estimate", "_policy", "_prices", "_warned")

    def __init__(
        self, prices: PriceSource | None, unpriced_policy: UnpricedPolicy, estimate: InputEstimate | None
    ) -> None:
        self._prices = prices
        self._policy = unpriced_policy
        self._estimate = estimate
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"meter(unpriced_policy={self._policy.name})"

    async def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the attempt's events, and AttemptEnded before the last one or before its error."""
        attempt = self._open(call)
        await _admit(attempt)
        events = call_next(attempt.call)
        try:
            async for event in events:
                if type(event) is TextDelta or type(event) is ReasoningDelta:
                    text = event.text
                    attempt.heard += len(text) if text.isascii() else 4 * len(text)
                    attempt.visible = True
                elif type(event) is ToolCallDelta:
                    attempt.heard += len(event.name) + len(event.arguments)
                    attempt.visible = True
                elif type(event) is ChatEnd:
                    yield AttemptEnded(await self._finish(attempt, event.response))
                else:
                    attempt.started = True
                    attempt.visible = attempt.visible or event.visible
                yield event
            if attempt.record is None:
                raise StreamBroken("The model's stream ended without its end event.", provider=_provider(attempt))
        except BaseException as error:
            try:
                await events.aclose()
            finally:
                cut = await self._cut_short(attempt, error) if attempt.record is None else None
            if cut is not None and isinstance(error, Exception):
                yield AttemptEnded(cut)
            raise
        finally:
            if attempt.record is not None and attempt.ctx.services.ledger is not None:
                await _to_ledger(attempt.ctx, attempt.record)

    def _open(self, call: Call[ChatRequest]) -> Attempt:
        ctx = cast(RunContext, call.ctx)
        rates = self._rates(ctx, call.route, call.request.settings.service_tier)
        attempt = Attempt(call, ctx, rates, ctx.services.clock.now())
        meters = ctx.all_meters
        if self._policy is not UnpricedPolicy.ALLOW and _has_money_ceiling(ctx, meters):
            self._check_priced(ctx, call.route, rates)
        actor = ctx.actor_budget
        if actor is not None and (axis := actor.exhausted_axis()) is not None:
            raise MeterExceeded(f"nothing of the actor's {axis} is left", axis=axis, suspends=True)
        for each in meters:
            if getattr(each, "needs_quotes", False):
                self._quote(attempt, meters)
                break
        return attempt

    def _rates(self, ctx: RunContext, route: Route | None, tier: str | None = None) -> Rates | None:
        if route is None:
            return FREE if getattr(_own_model(ctx), "free", False) else None
        if route.rates is not None:
            return route.rates
        if getattr(route.port, "free", False):
            return FREE
        if self._prices is None or not route.listed:
            return None
        return self._prices.find(route.provider, route.model, tier=tier)

    def _check_priced(self, ctx: RunContext, route: Route | None, rates: Rates | None) -> None:
        if rates is None:
            self._unpriced(route)
        for other in route.fallback if route is not None else ():
            self._check_priced(ctx, other, self._rates(ctx, other))

    def _unpriced(self, route: Route | None) -> None:
        name = "The Invoker's own model" if route is None else f"{route.provider}:{route.model}"
        if self._policy is UnpricedPolicy.WARN:
            if name not in self._warned:
                self._warned.add(name)
                warnings.warn(f"{name} has no price: the money ceiling does not see its calls.", RuntimeWarning, 2)
            return
        if route is None:
            raise UnpricedModel(
                f"{name} has no price, and a money ceiling applies. Call it by a route that has one: "
                "Route(port, model, provider, rates=Rates(...)), all 0 when it is free."
            )
        nearest = getattr(self._prices, "nearest", None)
        names = list(nearest(route.provider, route.model)) if route.listed and nearest is not None else []
        hint = f" Priced names near it: {', '.join(names)}." if names else ""
        raise UnpricedModel(
            f"{name} has no price, and a money ceiling applies. Add its price in dollars per million tokens: "
            f"Binding('{name}', price='INPUT/OUTPUT').{hint}"
        )

    def _quote(self, attempt: Attempt, meters: Sequence[Meter]) -> None:
        """Put the bound to reserve on the call, and under a strict budget lower its output cap to what fits."""
        call, rates = attempt.call, attempt.rates
        asked = call.request.settings.max_tokens
        tokens = self._input(attempt)
        limits = [each for each in meters if _is_strict(each)]
        if limits and self._estimate is None:
            tokens = _SURELY * tokens + (_TOOLS_AT_MOST if call.request.tools else 0)
        strict = _strict_cap(limits, rates, tokens, asked)
        if strict is not None:
            output = strict
            if strict != asked:
                settings = replace(call.request.settings, max_tokens=strict)
                call = replace(call, request=replace(call.request, settings=settings))
        else:
            likely = attempt.ctx.account.likely_output(_model(call.route)) or _LIKELY_OUTPUT
            output = likely if asked is None else min(likely, asked)
        price = None if rates is None else bound(rates, tokens, output)
        attempt.call = replace(call, quote=Quote(tokens, output, price))

    def _input(self, attempt: Attempt) -> int:
        if attempt.input_tokens is None:
            estimate = self._estimate or attempt.ctx.account.estimate_input
            attempt.input_tokens = estimate(attempt.call.request)
        return attempt.input_tokens

    async def _finish(self, attempt: Attempt, response: ChatResponse) -> CostRecord:
        attempt.visible = True
        usage = plausible(response.usage)
        if usage.input_tokens is None or usage.output_tokens is None:
            if not attempt.heard:
                attempt.heard = 4 * message_tokens(response.message)
            usage = self._estimated(attempt, usage)
        asked = attempt.call.request.settings.service_tier
        if response.service_tier is not None and not {asked or "default", response.service_tier} <= STANDARD_TIERS:
            attempt.rates = self._rates(attempt.ctx, attempt.call.route, response.service_tier)
        return await self._settle(attempt, "ok", usage, response)

    async def _cut_short(self, attempt: Attempt, error: BaseException) -> CostRecord:
        outcome = outcome_of(error)
        if never_accepted(error, started=attempt.started or attempt.visible):
            return await self._settle(attempt, outcome, None)
        return await self._settle(attempt, outcome, self._estimated(attempt, usage_of(error), cut=True))

    def _estimated(self, attempt: Attempt, reported: Usage | None, *, cut: bool = False) -> Usage:
        """Fill what was not reported; of a cut stream the reported output is where it began, so the larger counts."""
        known = reported or Usage(None, None)
        heard = -(-attempt.heard // 4)
        output = known.output_tokens
        guess = output is None or (cut and heard > output)
        return replace(
            known,
            input_tokens=self._input(attempt) if known.input_tokens is None else known.input_tokens,
            output_tokens=heard if guess else output,
            estimated=known.estimated or known.input_tokens is None or guess,
        )

    async def _settle(
        self, attempt: Attempt, outcome: Outcome, usage: Usage | None, response: ChatResponse | None = None
    ) -> CostRecord:
        """Book the attempt everywhere; only meters that know no `settle` are waited for, after all others."""
        call, ctx = attempt.call, attempt.ctx
        record = attempt.record = CostRecord(
            run_id=ctx.correlation_id,
            path=ctx.path,
            call_id=call.id,
            attempt=call.attempt,
            purpose=call.purpose,
            provider=_provider(attempt) or ("" if response is None else response.provider),
            model=_model(call.route) or ("" if response is None else response.model),
            outcome=outcome,
            usage=usage or Usage(),
            cost=ZERO if usage is None else _price(attempt.rates, usage),
            rates=attempt.rates,
            service_tier=None if response is None else response.service_tier,
            seconds=ctx.services.clock.now() - attempt.began,
            accepted=usage is not None and _delivered(attempt, outcome),
        )
        ctx.record(record)
        if ctx.actor_budget is not None and usage is not None:
            ctx.actor_budget.charge(usage, record.cost, steps=1 if record.accepted else 0)
        foreign = [each for each in ctx.all_meters if not _settled(each, call, record)]
        if usage is not None:
            for each in foreign:
                await _charge(each, call, usage)
        return record


def meter(
    prices: PriceSource | None = None,
    unpriced_policy: UnpricedPolicy = UnpricedPolicy.REFUSE,
    estimate: InputEstimate | None = None,
) -> MeterLayer:
    """Return the layer that admits, prices and settles attempts; it belongs innermost, inside retry.

    `prices` finds the rates of routes that bring none, `estimate` returns the likely input tokens of a request (the
    run's own running estimate when left out).
    """
    return MeterLayer(prices, unpriced_policy, estimate)


async def _admit(attempt: Attempt) -> None:
    passed: list[Meter] = []
    try:
        for each in attempt.ctx.all_meters:
            reserve = getattr(each, "reserve", None) or each.guard
            verdict = await reserve(attempt.call)
            if verdict is not None and not verdict.ok:
                raise MeterExceeded(verdict.reason, axis=verdict.axis, suspends=True)
            passed.append(each)
    except BaseException:
        for each in reversed(passed):
            release = getattr(each, "release", None)
            if release is not None:
                release(attempt.call)
        raise


def _settled(each: Meter, call: Call[ChatRequest], record: CostRecord) -> bool:
    settle = getattr(each, "settle", None)
    if settle is None:
        return False
    try:
        settle(call, record)
    except Exception:
        _LOG.exception("A meter failed to settle call %s of run %s", record.call_id, record.run_id)
    return True


async def _charge(each: Meter, call: Call[ChatRequest], usage: Usage) -> None:
    try:
        await each.charge(call, usage)
    except MeterExceeded:
        return  # the money is spent; its next guard refuses
    except Exception:
        _LOG.exception("A meter failed to book call %s of run %s", call.id, call.ctx.correlation_id)


async def _to_ledger(ctx: RunContext, record: CostRecord) -> None:
    ledger = ctx.services.ledger
    if ledger is None:
        return
    try:
        async with asyncio.timeout(_LEDGER_GRACE):
            scope = ctx.scope
            entry = LedgerEntry(
                tenant=scope.tenant, record=record, at=ctx.services.clock.wall(), user=scope.user, session=scope.session
            )
            await ledger.settle([entry])
    except Exception:
        _LOG.exception("The ledger lost call %s of run %s", record.call_id, record.run_id)


def _has_money_ceiling(ctx: RunContext, meters: Sequence[Meter]) -> bool:
    for each in meters:
        ceiling = getattr(each, "ceiling", None)
        if ceiling is not None and ceiling() is not None and getattr(each, "mode", None) != "observe":
            return True
    return ctx.actor_budget is not None and ctx.actor_budget.max_cost() is not None


def _strict_cap(meters: Sequence[Meter], rates: Rates | None, tokens: int, asked: int | None) -> int | None:
    """Return the output cap that surely fits all of these strict meters, None when none of them limits it.

    What fits only without the attempts in flight is asked for at the least cap, so that the guard waits or refuses.
    """
    fits: list[int] = []
    for each in meters:
        affordable = getattr(each, "affordable_output")(  # noqa: B009
            ZERO if rates is None else bound(rates, tokens, 0), _dearest_output(rates)
        )
        if affordable is not None:
            fits.append(affordable)
    if not fits:
        return None
    wanted = _STRICT_OUTPUT if asked is None else asked
    return max(min(wanted, *fits), min(wanted, _LEAST_OUTPUT))


def _is_strict(each: Meter) -> bool:
    return bool(getattr(each, "strict", False)) and getattr(each, "mode", None) != "observe"


def _dearest_output(rates: Rates | None) -> Decimal:
    if rates is None:
        return ZERO
    return multiply_money(max((rates.output, *(band.output for band in rates.bands))), _PER_TOKEN)


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


def _own_model(ctx: RunContext) -> object:
    return getattr(ctx.services.invoker, "llm", None)


def _provider(attempt: Attempt) -> str:
    route = attempt.call.route
    return "" if route is None else route.provider


def _model(route: Route | None) -> str:
    return "" if route is None else route.model
