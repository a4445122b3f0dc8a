"""Which transport a client object needs, told by its shape; no SDK is imported for it."""

from __future__ import annotations

from typing import cast

from agentkit.errors import ConfigurationError
from agentkit.providers.transports.aiohttp import AiohttpTransport
from agentkit.providers.transports.httpx import HttpxClient, HttpxTransport
from agentkit.providers.transports.port import HttpTransport, Timeouts
from agentkit.providers.transports.sdk import SdkClient, SdkTransport

__all__ = ["transport_for"]

_SDK = frozenset({"AsyncOpenAI", "AsyncAnthropic", "AsyncAPIClient"})
_BLOCKING = frozenset({"OpenAI", "Anthropic", "SyncAPIClient", "Client"})


def transport_for(
    client: object | None,
    base_url: str | None,
    default_url: str,
    *,
    api_key: str | None,
    timeouts: Timeouts,
    connections: int,
) -> HttpTransport:
    """Return the transport over the client, the default one for None.

    `base_url` and `api_key` are what was given beside the client, `default_url` is where the provider is. Raises
    ConfigurationError for an object that is none of the clients known here.
    """
    if client is None:
        return AiohttpTransport(base_url or default_url, timeouts=timeouts, connections=connections)
    kinds = {kind.__name__ for kind in type(client).__mro__}
    if kinds & _SDK and callable(getattr(client, "with_options", None)):
        return SdkTransport(cast("SdkClient", client), base_url=base_url, api_key=api_key)
    if "AsyncClient" in kinds and callable(getattr(client, "build_request", None)):
        httpx = cast("HttpxClient", client)
        return HttpxTransport(httpx, base_url or str(httpx.base_url) or default_url, timeouts=timeouts)
    hint = "; this one blocks, use its async twin" if kinds & _BLOCKING else ""
    raise ConfigurationError(
        f"client={type(client).__module__}.{type(client).__qualname__} is not known{hint}; pass an httpx or httpx2 "
        "AsyncClient, or AsyncOpenAI, AsyncAzureOpenAI, AsyncAnthropic or a relative of theirs."
    )
