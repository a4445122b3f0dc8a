"""Who answers: a provider and a model with their knobs, or any object that is a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args
from urllib.parse import urlsplit

from agentkit.catalog import parse_price
from agentkit.core.contracts import LLMPort, ModelSettings, Rates, Timeouts, WireProtocol
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import Profile

__all__ = ["Binding", "Price"]

_PROTOCOLS: Final = get_args(WireProtocol)

Price = Rates | str | int | float | Mapping[str, object]


class Binding:
    """Names a model as "provider:model", or holds any object with a model port's `stream`.

    `base_url` points at a compatible server, which drops the provider's list prices; `api_key` beats the provider's
    environment variable; `client` is an official SDK client, an httpx async client or a transport of your own, which
    stays yours to close; `settings` are defaults for every call; `profile` is the server's dialect, a name or a
    `Profile`, when it is not the provider's own; `protocol` is "chat" (Chat Completions), "responses" or "messages"
    where the server speaks several, and then the only one that is used; `price` is dollars per million tokens, such as
    "1.25/10"; `billing` are facts that its price rules ask for, such as {"region": "eu", "biller": "azure"}, unless the
    answer itself says otherwise; `fallback` bindings are tried in order when this one fails before its first visible
    event; `timeouts` hold for each attempt and beat those of `client`, whose own hold otherwise. Raises
    ConfigurationError naming the bad field.
    """

    __slots__ = (
        "__weakref__",
        "api_key",
        "base_url",
        "billing",
        "client",
        "fallback",
        "model",
        "port",
        "profile",
        "protocol",
        "provider",
        "rates",
        "settings",
        "timeouts",
    )

    def __init__(
        self,
        model: str | LLMPort,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: object | None = None,
        settings: ModelSettings | None = None,
        profile: str | Profile | None = None,
        protocol: WireProtocol | None = None,
        price: Price | None = None,
        fallback: Sequence[Binding] = (),
        timeouts: Timeouts | None = None,
        billing: Mapping[str, str] | None = None,
    ) -> None:
        self.port: LLMPort | None = None
        if isinstance(model, str):
            self.provider, self.model = _split(model)
        elif callable(getattr(model, "stream", None)):
            self.port = model
            self.provider = str(getattr(model, "provider", "") or type(model).__name__)
            self.model = str(getattr(model, "name", "") or type(model).__name__)
        else:
            raise ConfigurationError(
                f"Binding(model={model!r}): pass 'provider:model', or an object with stream(call)."
            )
        if base_url is not None:
            _check_address(base_url)
        self._check_protocol(protocol)
        if settings is not None and not isinstance(settings, ModelSettings):
            raise ConfigurationError(f"Binding(settings={settings!r}): pass ModelSettings(...).")
        if timeouts is not None and not isinstance(timeouts, Timeouts):
            raise ConfigurationError(f"Binding(timeouts={timeouts!r}): pass Timeouts(...).")
        if timeouts is not None and self.port is not None:
            raise ConfigurationError("Binding(timeouts=...): a model object keeps its own limits; set them there.")
        for index, other in enumerate(fallback):
            if not isinstance(other, Binding):
                raise ConfigurationError(f"Binding(fallback[{index}]={other!r}): pass bindings.")
        if not isinstance(profile, (str, Profile, type(None))):
            raise ConfigurationError(f"Binding(profile={profile!r}): pass a name such as 'vllm', or a Profile(...).")
        self.base_url = base_url
        self.api_key = api_key
        self.client = client
        self.settings = settings
        self.profile = profile
        self.timeouts = timeouts
        self.protocol: WireProtocol | None = protocol
        self.rates: Rates | None = None if price is None else parse_price(price)
        self.billing: Final[Mapping[str, str]] = _checked_billing(billing, priced=price is not None)
        self.fallback: Final[tuple[Binding, ...]] = tuple(fallback)

    def __repr__(self) -> str:
        where = f", base_url={self.base_url.partition('?')[0]!r}" if self.base_url else ""
        how = f", protocol={self.protocol!r}" if self.protocol else ""
        return f"Binding('{self.provider}:{self.model}'{where}{how})"

    def _check_protocol(self, protocol: str | None) -> None:
        if protocol is None:
            return
        if protocol not in _PROTOCOLS:
            known = ", ".join(map(repr, _PROTOCOLS))
            raise ConfigurationError(f"Binding(protocol={protocol!r}): pass one of {known}.")
        if self.port is not None or self.provider == "scripted":
            raise ConfigurationError(
                f"Binding(protocol={protocol!r}): {self.provider} is no server; leave protocol out, or name a server's "
                "model as 'provider:model'."
            )


def _checked_billing(billing: Mapping[str, str] | None, *, priced: bool) -> Mapping[str, str]:
    if billing is None:
        return {}
    if not isinstance(billing, Mapping):
        raise ConfigurationError(f"Binding(billing={billing!r}): pass names and words, such as {{'region': 'eu'}}.")
    for name, value in billing.items():
        if not (isinstance(name, str) and isinstance(value, str) and name.strip() and value.strip()):
            raise ConfigurationError(
                f"Binding(billing={{{name!r}: {value!r}}}): names and values are words, not empty."
            )
        if value == "*":
            raise ConfigurationError(
                f"Binding(billing={{{name!r}: '*'}}): '*' is for rules; say what holds, or leave it out."
            )
        if name in ("tier", "service_tier"):
            raise ConfigurationError(
                f"Binding(billing={{{name!r}: ...}}): a service tier is asked for, with "
                f"settings=ModelSettings(service_tier={value!r})."
            )
    if priced and billing:
        raise ConfigurationError("Binding(price=..., billing=...): a price of its own needs no facts; leave one out.")
    return dict(billing)


def _check_address(base_url: str) -> None:
    if not base_url.startswith(("http://", "https://")):
        raise ConfigurationError(f"Binding(base_url={base_url!r}): pass a URL that starts with http:// or https://.")
    if "@" in urlsplit(base_url).netloc:
        raise ConfigurationError("Binding(base_url=...): a URL holds no credentials; pass the key as api_key=.")


def _split(model: str) -> tuple[str, str]:
    provider, colon, name = model.partition(":")
    if not colon or not provider.strip() or (not name.strip() and provider != "scripted"):
        raise ConfigurationError(
            f"Binding(model={model!r}): name provider and model, such as 'openai:gpt-5.2' or 'local:smollm2'."
        )
    return provider.strip(), name.strip()
