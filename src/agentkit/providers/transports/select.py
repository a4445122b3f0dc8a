"""Which transport a client object needs, told by its shape; no SDK is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agentkit.core.contracts import Timeouts, WireProtocol
from agentkit.errors import ConfigurationError
from agentkit.providers.transports.aiohttp import AiohttpTransport
from agentkit.providers.transports.httpx import HttpxClient, HttpxTransport
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS, HttpResponse, HttpTransport
from agentkit.providers.transports.sdk import SdkClient, SdkTransport
from agentkit.providers.transports.session import SessionPool
from agentkit.providers.transports.total import TotalLimit

__all__ = ["transport_for"]

_SDK = frozenset({"AsyncOpenAI", "AsyncAnthropic", "AsyncAPIClient"})
_BLOCKING = frozenset({"OpenAI", "Anthropic", "SyncAPIClient", "Client"})
_PORT = ("base_url", "brings_auth", "protocols", "post", "aclose")


def transport_for(
    client: object | None,
    base_url: str | None,
    default_url: str,
    *,
    api_key: str | None = None,
    timeouts: Timeouts | None = None,
    sessions: SessionPool | None = None,
) -> HttpTransport:
    """Return the transport over the client, the default one for None.

    `base_url` and `api_key` are what was given beside the client, `default_url` is where the provider is. `timeouts`
    beat the client's own; a transport handed in keeps its own and gets the total. Raises ConfigurationError for an
    object that is none of the clients known here.
    """
    transport = _over(client, base_url, default_url, api_key, timeouts, sessions)
    if timeouts is None or timeouts.total is None:
        return transport
    return TotalLimit(transport, timeouts.total)


class _Lent:
    """A transport of the user's, which stays the user's to close."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self.base_url = transport.base_url.rstrip("/")
        self.brings_auth = transport.brings_auth
        self.protocols: tuple[WireProtocol, ...] = transport.protocols

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        return await self._transport.post(path, headers, body)

    async def aclose(self) -> None:
        """Leave it open."""


def _over(
    client: object | None,
    base_url: str | None,
    default_url: str,
    api_key: str | None,
    timeouts: Timeouts | None,
    sessions: SessionPool | None,
) -> HttpTransport:
    if client is None:
        return AiohttpTransport(base_url or default_url, timeouts=timeouts or DEFAULT_TIMEOUTS, sessions=sessions)
    kinds = {kind.__name__ for kind in type(client).__mro__}
    if kinds & _SDK and callable(getattr(client, "with_options", None)):
        return SdkTransport(cast("SdkClient", client), base_url=base_url, api_key=api_key, timeouts=timeouts)
    if "AsyncClient" in kinds and callable(getattr(client, "build_request", None)):
        httpx = cast("HttpxClient", client)
        return HttpxTransport(httpx, base_url or str(httpx.base_url) or default_url, timeouts=timeouts)
    if not isinstance(client, type) and all(hasattr(client, name) for name in _PORT):
        return _lent(cast("HttpTransport", client), base_url)
    hint = "; this one blocks, use its async twin" if kinds & _BLOCKING else ""
    raise ConfigurationError(
        f"client={type(client).__module__}.{type(client).__qualname__} is not known{hint}; pass an httpx or httpx2 "
        "AsyncClient, AsyncOpenAI, AsyncAzureOpenAI, AsyncAnthropic or a relative of theirs, or a transport with "
        "base_url, brings_auth, protocols, post and aclose."
    )


def _lent(transport: HttpTransport, base_url: str | None) -> HttpTransport:
    if base_url is not None and base_url.rstrip("/") != transport.base_url.rstrip("/"):
        raise ConfigurationError("base_url= is not that of the transport given as client=; leave base_url= out.")
    return _Lent(transport)
