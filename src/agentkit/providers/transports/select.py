"""Which transport a client object needs, told by its classes' names; no SDK is imported for it."""

from __future__ import annotations

from agentkit.errors import ConfigurationError
from agentkit.providers.transports.aiohttp import AiohttpTransport
from agentkit.providers.transports.httpx import HttpxTransport
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS, HttpTransport, Timeouts
from agentkit.providers.transports.sdk import SdkTransport

__all__ = ["transport_for"]


def transport_for(
    client: object | None,
    base_url: str | None,
    default_url: str,
    *,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    connections: int = 1000,
) -> HttpTransport:
    """Return the transport over the client, the default one for None.

    `base_url` beats an httpx client's own address, which beats `default_url`; an SDK client keeps its own. Raises
    ConfigurationError for an object that is none of the clients known here, or an SDK client with a base_url.
    """
    if client is None:
        return AiohttpTransport(base_url or default_url, timeouts=timeouts, connections=connections)
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(client).__mro__}
    if kinds & {("httpx", "AsyncClient"), ("httpx2", "AsyncClient")}:
        own = str(getattr(client, "base_url", ""))
        return HttpxTransport(client, base_url or own or default_url, timeouts=timeouts)
    for root in ("openai", "anthropic"):
        if (root, "AsyncAPIClient") in kinds:
            if base_url is not None:
                raise ConfigurationError("client= brings its own address; leave base_url out, or set it on the client.")
            return SdkTransport(client, "chat" if root == "openai" else "messages")
    raise ConfigurationError(
        f"client={type(client).__module__}.{type(client).__qualname__} is not known; pass an httpx or httpx2 "
        "AsyncClient, or AsyncOpenAI, AsyncAzureOpenAI, AsyncAnthropic or a relative of theirs."
    )
