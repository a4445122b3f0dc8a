"""From bindings to routes: builds each model once, shares its clients, and closes them."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from agentkit.calls.binding import Binding
from agentkit.catalog import FREE, CapabilityTable, PriceTable
from agentkit.core.contracts import (
    Call,
    ChatEvent,
    ChatRequest,
    LLMPort,
    Mode,
    ModeAdapter,
    NativeToolPolicy,
    PriceSource,
    Route,
    Timeouts,
    UnpricedPolicy,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.transports.session import SessionPool

__all__ = ["ModelPool"]


@runtime_checkable
class Closeable(Protocol):
    """A model that holds clients or processes."""

    async def aclose(self) -> None:
        """Release them."""
        ...


class GovernedAdapter:
    """A mode adapter as a model port, with the runtime's policy on tools of its own."""

    __slots__ = ("_policy", "adapter", "mode", "physical")

    def __init__(self, adapter: ModeAdapter, policy: NativeToolPolicy) -> None:
        self.adapter = adapter
        self.mode: Mode = adapter.mode
        self.physical = bool(getattr(adapter, "physical", adapter.mode is not Mode.CLI))
        self._policy = policy

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Yield the adapter's events under the policy."""
        return self.adapter.stream(call, native_tool_policy=self._policy)


class ModelPool:
    """Turns bindings into routes; models are built on first use and closed with the pool."""

    def __init__(
        self,
        *,
        adapters: Mapping[str, ModeAdapter],
        native_tool_policy: NativeToolPolicy,
        prices: PriceSource,
        capabilities: CapabilityTable,
        unpriced_policy: UnpricedPolicy,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._adapters = {name: self._governed(name, adapter, native_tool_policy) for name, adapter in adapters.items()}
        self._policy = native_tool_policy
        self._prices = prices
        self._capabilities = capabilities
        self._unpriced = unpriced_policy
        self._timeouts = timeouts
        self._sessions: SessionPool | None = None
        self._models: dict[tuple[object, ...], LLMPort] = {}
        self._routes: WeakKeyDictionary[Binding, Route] = WeakKeyDictionary()

    def route(self, binding: object, /) -> Route:
        """Return the binding's route; raises ConfigurationError for a provider or model that is not known."""
        if not isinstance(binding, Binding):
            raise ConfigurationError(f"{binding!r} is no binding; pass Binding('provider:model').")
        route = self._routes.get(binding)
        if route is None:
            route = self._routes[binding] = self._resolve(binding)
        return route

    async def aclose(self) -> None:
        """Close every model this pool built, and the adapters it was given."""
        models, sessions = list(self._models.values()), self._sessions
        self._sessions = None
        self._models.clear()
        self._routes.clear()
        for model in models:
            if isinstance(model, Closeable):
                await model.aclose()
        if sessions is not None:
            await sessions.aclose()
        for governed in self._adapters.values():
            await governed.adapter.aclose()

    @staticmethod
    def _governed(name: str, adapter: ModeAdapter, policy: NativeToolPolicy) -> GovernedAdapter:
        if adapter.native_tools == "always" and policy is NativeToolPolicy.DENY:
            raise ConfigurationError(
                f"adapters[{name!r}] cannot switch its own tools off, which native_tool_policy=DENY asks for; "
                "use WARN or ALLOW, or another adapter."
            )
        if adapter.native_tools != "none" and policy is NativeToolPolicy.WARN:
            warnings.warn(
                f"Adapter {name!r} runs tools of its own: policy, approval, audit and timeout do not see them.",
                RuntimeWarning,
                stacklevel=4,
            )
        return GovernedAdapter(adapter, policy)

    def _resolve(self, binding: Binding) -> Route:
        fallback = tuple(self.route(other) for other in binding.fallback)
        rates = binding.rates
        known = self._capabilities.find(binding.provider, binding.model, listed=False)
        if binding.port is not None:
            if rates is None and getattr(binding.port, "free", False):
                rates = FREE
            return Route(
                binding.port, binding.model, binding.provider, rates, None, True, fallback, known, binding.billing
            )
        if binding.provider in self._adapters:
            if binding.protocol is not None:
                raise ConfigurationError(f"{binding!r}: an adapter speaks for itself; leave protocol out.")
            governed = self._adapters[binding.provider]
            return Route(governed, binding.model, binding.provider, rates, None, True, fallback, known, binding.billing)
        if binding.provider in ("local", "scripted"):
            free = FREE if rates is None else rates
            known = self._capabilities.find(binding.provider, binding.model)
            return Route(self._offline(binding), binding.model, binding.provider, free, None, True, fallback, known)
        return self._remote(binding, fallback)

    def _offline(self, binding: Binding) -> LLMPort:
        key = (binding.provider, binding.model, binding.protocol)
        model = self._models.get(key)
        if model is None:
            if binding.provider == "local":
                from agentkit.providers.local import LocalModel

                model = LocalModel(binding.model, protocol=binding.protocol)
            else:
                from agentkit.providers.scripted import ScriptedModel

                model = ScriptedModel([binding.model or "scripted"], repeat_last=True)
            self._models[key] = model
        return model

    def _remote(self, binding: Binding, fallback: tuple[Route, ...]) -> Route:
        from agentkit.providers.model import build_model
        from agentkit.providers.profiles import find_profile

        try:
            chosen = binding.profile or binding.provider
            profile = find_profile(chosen) if isinstance(chosen, str) else chosen
        except ConfigurationError as error:
            adapters = f" Adapters: {', '.join(self._adapters)}." if self._adapters else ""
            raise ConfigurationError(
                f"Binding('{binding.provider}:{binding.model}'): {error.message}{adapters}"
            ) from None
        own = binding.base_url is None and binding.client is None
        if own and binding.rates is None and self._unpriced is UnpricedPolicy.REFUSE:
            self._check_known(binding)
        timeouts = self._timeouts if binding.timeouts is None else binding.timeouts
        client = None if binding.client is None else id(binding.client)
        key = (profile, binding.base_url, binding.api_key, client, binding.protocol, timeouts)
        model = self._models.get(key)
        if model is None:
            self._sessions = self._sessions or SessionPool()
            model = self._models[key] = build_model(
                profile,
                base_url=binding.base_url,
                api_key=binding.api_key,
                client=binding.client,
                protocol=binding.protocol,
                capabilities=self._capabilities,
                timeouts=timeouts,
                sessions=self._sessions,
            )
        own_dialect = profile.name == binding.provider.removesuffix("+schema")
        listed = own_dialect and binding.base_url is None and getattr(model, "own_server", True)
        known = self._capabilities.find(binding.provider, binding.model, listed=listed)
        if profile.tools == "schema":
            known = replace(known, tools=known.structured_output, required_tools=known.structured_output)
        return Route(
            model, binding.model, binding.provider, binding.rates, profile, listed, fallback, known, binding.billing
        )

    def _check_known(self, binding: Binding) -> None:
        provider, name = binding.provider, binding.model
        prices = self._prices
        if not isinstance(prices, PriceTable) or prices.possible(provider, name, facts=binding.billing):
            return
        nearest = prices.nearest(provider, name)
        if nearest:
            raise ConfigurationError(
                f"Unknown model {name!r} of {provider}; did you mean {', '.join(nearest)}? If it is newer than this "
                f"release, give its price: Binding('{provider}:{name}', price='INPUT/OUTPUT') in dollars per million."
            )
