"""Which rates a call is billed by, as far as that is known before it, and as the provider tells it after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Final

from agentkit.catalog import FREE
from agentkit.catalog.rules import STANDARD_TIERS
from agentkit.core.contracts import ModelSettings, PriceSource, Rates, Route
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.metering.attempt import Attempt
from agentkit.errors import ConfigurationError

__all__ = ["Tariff", "asked_tier", "names_another"]

_ASKED: Final = ("inference_geo", "speed")
_NO_FACTS: Final[Mapping[str, str]] = {}


class Tariff:
    """A price source as the meter asks it.

    `fallback` is what a model without a price is declared to cost at most. A source whose `find` takes no `facts` is
    asked without them; a binding that has some is a ConfigurationError then.
    """

    __slots__ = ("_possible", "_takes_facts", "fallback", "source")

    def __init__(self, source: PriceSource | None, fallback: Rates | None = None) -> None:
        self.source = source
        self.fallback = fallback
        self._takes_facts = source is None or _takes_facts(source)
        self._possible: Callable[..., Sequence[Rates]] | None = getattr(source, "possible", None)

    def facts(self, route: Route | None, settings: ModelSettings) -> Mapping[str, str]:
        """Return the binding's facts and those that the request itself asks for."""
        billing = _NO_FACTS if route is None else route.billing
        if not settings.extra:
            return billing
        asked = {name: value for name in _ASKED if isinstance(value := settings.extra.get(name), str)}
        return {**billing, **asked} if asked else billing

    def rates(self, ctx: RunContext, route: Route | None, tier: str | None, facts: Mapping[str, str]) -> Rates | None:
        """Return the rates of a route for the tier and the facts, None when it is unpriced."""
        if route is None:
            return FREE if getattr(getattr(ctx.services.invoker, "llm", None), "free", False) else None
        if route.rates is not None:
            return route.rates
        if getattr(route.port, "free", False):
            return FREE
        if self.source is None or not route.listed:
            return None
        if not facts:
            return self.source.find(route.provider, route.model, tier=tier)
        if self._takes_facts:
            return self.source.find(route.provider, route.model, tier=tier, facts=facts)
        if route.billing:
            raise ConfigurationError(
                f"Binding('{route.provider}:{route.model}', billing={dict(route.billing)!r}): the price source "
                f"{type(self.source).__qualname__} takes no facts; give its find() a parameter facts=None."
            )
        return self.source.find(route.provider, route.model, tier=tier)

    def dearest(self, attempt: Attempt) -> Sequence[Rates]:
        """Return every rule that the answer may turn out to be billed by: the fallback price, or none, when unpriced.

        A tier that is asked for may not be the one that serves; without one the account's own default may.
        """
        route, rates = attempt.call.route, attempt.rates
        if rates is None:
            return () if self.fallback is None else (self.fallback,)
        if route is None or route.rates is not None or not route.listed or rates is FREE:
            return (rates,)
        asked = asked_tier(attempt.call.request.settings)
        if self._possible is None:
            standard = None if asked is None else self.rates(attempt.ctx, route, None, attempt.billing)
            return (rates,) if standard is None else (rates, standard)
        return (rates, *self._possible(route.provider, route.model, tier=asked, facts=attempt.billing))

    def reprice(self, attempt: Attempt, tier: str | None, billing: Mapping[str, str]) -> None:
        """Find the attempt's rates anew where the provider says that it bills otherwise than was asked for."""
        asked = asked_tier(attempt.call.request.settings)
        if billing:
            attempt.billing = {**attempt.billing, **billing}
        elif tier is None or {asked or "default", tier} <= STANDARD_TIERS:
            return
        if names_another(attempt.call.route, attempt.call.request.settings):
            return
        attempt.rates = self.rates(attempt.ctx, attempt.call.route, tier or asked, attempt.billing)


def asked_tier(settings: ModelSettings) -> str | None:
    """Return the service tier that a request asks for, however it does."""
    named = settings.extra.get("service_tier") if settings.extra else None
    return named if isinstance(named, str) else settings.service_tier


def names_another(route: Route | None, settings: ModelSettings) -> bool:
    """Return whether the request's `extra` lets another model answer than the route's, whose price would be wrong."""
    if route is None or not settings.extra:
        return False
    named = settings.extra.get("models") or []
    names = [settings.extra.get("model", route.model), *(named if isinstance(named, list) else [named])]
    return any(name != route.model for name in names)


def _takes_facts(source: PriceSource) -> bool:
    try:
        parameters = signature(source.find).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(each.name == "facts" or each.kind is each.VAR_KEYWORD for each in parameters)
