"""The innermost layer: admits each attempt with every meter, and prices and settles it however it ends."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    CallNext,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    CostRecord,
    Meter,
    ModelSettings,
    PriceSource,
    Rates,
    ReasoningDelta,
    Route,
    TextDelta,
    UnpricedPolicy,
    Usage,
)
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.layers import run_context
from agentkit.core.runtime.metering.attempt import Attempt, admit, charge, has_money_ceiling, learn, settle
from agentkit.core.runtime.metering.capping import capped, check_bounded, is_strict, quote_of, strict_cap
from agentkit.core.runtime.metering.ending import (
    limit_of,
    never_accepted,
    outcome_of,
    plausible,
    reported_of,
    usage_of,
)
from agentkit.core.runtime.metering.estimate import message_tokens
from agentkit.core.runtime.metering.ledgered import begin, end
from agentkit.core.runtime.metering.midstream import within_ceilings
from agentkit.core.runtime.metering.tariff import Tariff, asked_tier, names_another
from agentkit.errors import StreamBroken, UnpricedModel

__all__ = ["MeterLayer", "meter"]

InputEstimate: TypeAlias = Callable[[ChatRequest], int]

_PLAIN = ModelSettings()
_LIKELY_OUTPUT = 1_024  # tokens of an answer before this run has seen one
_SURELY = 4  # a token is a byte or more, and the estimate counts four: what a strict ceiling has to reckon with
_TOOLS_AT_MOST = 1_024  # tokens that servers add of their own where there are tools


class MeterLayer:
    """Guards every meter in order before an attempt, and settles all of them at its end without waiting.

    Every exit settles: an answer with the usage it reports, a failure or an early close with what was reported or
    else estimated for what arrived (flagged), a proven refusal with nothing. The priced row goes to the context, the
    meters, the ledger and, as AttemptEnded, up the stream. A finished answer is never thrown away for its price.
    Raises MeterExceeded when a meter refuses, UnpricedModel for a model without a price under a money ceiling.
    """

    __slots__ = ("_estimate", "_policy", "_tariff", "_warned")

    def __init__(
        self,
        prices: PriceSource | None,
        unpriced_policy: UnpricedPolicy,
        estimate: InputEstimate | None,
        fallback_price: Rates | None = None,
    ) -> None:
        self._tariff = Tariff(prices, fallback_price)
        self._policy = unpriced_policy
        self._estimate = estimate
        self._warned: set[str] = set()

    @property
    def unpriced_policy(self) -> UnpricedPolicy:
        """Return what happens to a call without a price under a money ceiling."""
        return self._policy

    def __repr__(self) -> str:
        return f"meter(unpriced_policy={self._policy.name})"

    async def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the attempt's events, and AttemptEnded before the last one or before its error."""
        attempt = self._open(call)
        ctx = attempt.ctx
        if attempt.limiting or ctx.actor_budget is not None or ctx.services.ledger is not None:
            await self._begin(attempt)
        events = within_ceilings(attempt, call_next(attempt.call))
        try:
            async for event in events:
                if type(event) is TextDelta or type(event) is ReasoningDelta:
                    text = event.text
                    attempt.heard += len(text) if text.isascii() else 4 * len(text)
                    attempt.visible = True
                elif type(event) is ChatEnd:
                    record = self._finish(attempt, event.response)
                    yield AttemptEnded(await charge(attempt, record) if attempt.foreign else record)
                else:
                    attempt.hear(event)
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
            if attempt.opened is not None:
                await end(attempt, attempt.opened)

    def _open(self, call: Call[ChatRequest]) -> Attempt:
        ctx = run_context(call)
        route, settings, tariff = call.route, call.request.settings, self._tariff
        billing = tariff.facts(route, settings)
        rates = None if route is None else route.rates
        if rates is None:
            rates = tariff.rates(ctx, route, asked_tier(settings), billing)
        if settings.extra and names_another(route, settings):
            rates = None
        meters = ctx.all_meters
        limiting = [each for each in meters if not getattr(each, "unlimited", False)]
        return Attempt(call, ctx, meters, limiting, rates, ctx.services.clock.now(), billing=billing)

    async def _begin(self, attempt: Attempt) -> None:
        """Ask everybody who may refuse; the ledger comes last, since it writes down that the attempt begins."""
        if attempt.limiting or attempt.ctx.actor_budget is not None:
            self._prepare(attempt)
            await admit(attempt)
        await begin(attempt)

    def _prepare(self, attempt: Attempt) -> None:
        """Refuse what cannot be priced or has nothing left, and put the bound to reserve on the call."""
        ctx, call, limiting = attempt.ctx, attempt.call, attempt.limiting
        judged = self._policy is not UnpricedPolicy.ALLOW and self._tariff.fallback is None
        if judged and has_money_ceiling(attempt):
            self._check_priced(ctx, call.route, attempt.rates, call.request.settings)
        if any(getattr(each, "needs_quotes", False) for each in limiting):
            self._quote(attempt, limiting)

    def _check_priced(
        self, ctx: RunContext, route: Route | None, rates: Rates | None, settings: ModelSettings = _PLAIN
    ) -> None:
        if rates is None:
            self._unpriced(route, settings)
        for other in route.fallback if route is not None else ():
            self._check_priced(ctx, other, self._tariff.rates(ctx, other, None, other.billing))

    def _unpriced(self, route: Route | None, settings: ModelSettings) -> None:
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
        if names_another(route, settings):
            raise UnpricedModel(
                f"ModelSettings(extra=...) lets another model answer than {name}, and a money ceiling applies. Name it "
                "in a Binding of its own, or as fallback=."
            )
        nearest = getattr(self._tariff.source, "nearest", None)
        names = list(nearest(route.provider, route.model)) if route.listed and nearest is not None else []
        hint = f" Priced names near it: {', '.join(names)}." if names else ""
        raise UnpricedModel(
            f"{name} has no price, and a money ceiling applies. Add its price in dollars per million tokens: "
            f"Binding('{name}', price='INPUT/OUTPUT').{hint}"
        )

    def _quote(self, attempt: Attempt, meters: Sequence[Meter]) -> None:
        """Put the bound to reserve on the call, and under a strict budget lower its output cap to what fits."""
        call = attempt.call
        asked = call.request.settings.max_tokens
        tokens = self._input(attempt)
        limits = [each for each in meters if is_strict(each)]
        if limits:
            check_bounded(call.request.settings)
        if limits and self._estimate is None:
            tokens = _SURELY * tokens + (_TOOLS_AT_MOST if call.request.tools else 0)
        dearest = attempt.bounds = self._tariff.dearest(attempt)
        attempt.fallback = self._tariff.fallback
        strict = strict_cap(limits, dearest, tokens, asked)
        if strict is not None:
            output = strict
            call = capped(call, strict)
        else:
            likely = attempt.ctx.account.likely_output(_model(call.route)) or _LIKELY_OUTPUT
            output = likely if asked is None else min(likely, asked)
        attempt.call = replace(call, quote=quote_of(dearest, tokens, output))

    def _input(self, attempt: Attempt) -> int:
        if attempt.input_tokens is None:
            estimate = self._estimate or attempt.ctx.account.estimate_input
            attempt.input_tokens = estimate(attempt.call.request)
        return attempt.input_tokens

    def _finish(self, attempt: Attempt, response: ChatResponse) -> CostRecord:
        attempt.visible = True
        usage = plausible(response.usage)
        if usage.input_tokens is None or usage.output_tokens is None:
            if not attempt.heard:
                attempt.heard = 4 * message_tokens(response.message)
            usage = self._estimated(attempt, usage)
        attempt.reported = None
        if response.billing or response.service_tier is not None:
            self._tariff.reprice(attempt, response.service_tier, response.billing)
        if response.rate_limit is not None:
            learn(attempt, response.rate_limit)
        return settle(attempt, "ok", usage, response)

    async def _cut_short(self, attempt: Attempt, error: BaseException) -> CostRecord:
        refused = never_accepted(error, started=attempt.started or attempt.visible)
        usage = None
        if not refused:
            said = attempt.reported = reported_of(error) or attempt.reported
            if said is not None:
                self._tariff.reprice(attempt, said.service_tier, said.billing)
            usage = self._estimated(attempt, usage_of(error) or (None if said is None else said.usage), cut=True)
        limit = limit_of(error)
        if limit is not None:
            learn(attempt, limit)
        return await charge(attempt, settle(attempt, outcome_of(error), usage))

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


def meter(
    prices: PriceSource | None = None,
    unpriced_policy: UnpricedPolicy = UnpricedPolicy.REFUSE,
    estimate: InputEstimate | None = None,
    fallback_price: Rates | None = None,
) -> MeterLayer:
    """Return the layer that admits, prices and settles attempts; it belongs innermost, inside retry.

    `prices` finds the rates of routes that bring none, `estimate` returns the likely input tokens of a request (the
    run's own running estimate when left out). `fallback_price` is the most that a model without a price is taken to
    cost: ceilings count that, for good, and the cost stays unknown.
    """
    return MeterLayer(prices, unpriced_policy, estimate, fallback_price)


def _provider(attempt: Attempt) -> str:
    route = attempt.call.route
    return "" if route is None else route.provider


def _model(route: Route | None) -> str:
    return "" if route is None else route.model
