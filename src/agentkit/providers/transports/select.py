"""Which transport a client object needs, told by its shape; no SDK is imported for it."""

from __future__ import annotations

from agentkit.errors import ConfigurationError
from agentkit.providers.transports.aiohttp import AiohttpTransport
from agentkit.providers.transports.port import HttpTransport, Timeouts

__all__ = ["transport_for"]


def transport_for(client: object | None, base_url: str, *, timeouts: Timeouts, connections: int) -> HttpTransport:
    """Return the transport over the client, the default one for None.

    Raises ConfigurationError for an object that is none of the clients known here.
    """
    if client is None:
        return AiohttpTransport(base_url, timeouts=timeouts, connections=connections)
    raise ConfigurationError(
        f"client={type(client).__module__}.{type(client).__qualname__} is not known; pass an httpx or httpx2 "
        "AsyncClient, or AsyncOpenAI, AsyncAzureOpenAI, AsyncAnthropic or a relative of theirs."
    )
