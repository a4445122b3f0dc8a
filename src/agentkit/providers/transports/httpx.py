"""Over an httpx or httpx2 async client that the application made; it is never closed here."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from types import ModuleType
from typing import Any, Final

from agentkit.errors import ConfigurationError, ProviderError, StreamBroken
from agentkit.providers.transports.port import Timeouts
from agentkit.providers.wire.failure import redact

__all__ = ["HttpxResponse", "HttpxTransport", "failure_of", "library_of"]

_LIBRARIES: Final = ("httpx", "httpx2")
_DEFAULT_SECONDS = 5.0  # both libraries' own default, far too short for a model that thinks


class HttpxTransport:
    """Sends over a given client with its proxies, certificates, headers and auth.

    A client that still has the library's default timeout of 5 seconds gets `timeouts` for each request.
    """

    protocol = None

    def __init__(self, client: Any, base_url: str, *, timeouts: Timeouts) -> None:
        self._client = client
        self._library = library_of(client)
        self.base_url = base_url.rstrip("/")
        headers = client.headers
        self.brings_auth = client.auth is not None or "authorization" in headers or "x-api-key" in headers
        timeout = self._library.Timeout
        self._more: dict[str, object] = {}
        if client.timeout == timeout(_DEFAULT_SECONDS):
            self._more["timeout"] = timeout(timeouts.idle, connect=timeouts.connect)

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpxResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        client = self._client
        if client.is_closed:
            raise ConfigurationError("The client given as client= is closed; keep it open while its binding is in use.")
        failure: ProviderError
        try:
            request = client.build_request("POST", self.base_url + path, content=body, headers=headers, **self._more)
            response = await client.send(request, stream=True, follow_redirects=False)
        except (self._library.TransportError, self._library.InvalidURL, OSError) as error:
            failure = failure_of(error, self._library)
        else:
            return HttpxResponse(response, self._library)
        raise failure

    async def aclose(self) -> None:
        """Leave the client open: it is the application's."""


class HttpxResponse:
    """An answer of httpx or httpx2; see HttpResponse."""

    __slots__ = ("_chunks", "_library", "_response", "at_end", "headers", "status")

    def __init__(self, response: Any, library: ModuleType) -> None:
        self._response = response
        self._library = library
        self._chunks: AsyncGenerator[bytes, None] = response.aiter_bytes()
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.at_end = False

    async def chunk(self) -> bytes:
        """Return the next bytes."""
        try:
            async for data in self._chunks:
                if data:
                    return data
        except (self._library.TransportError, self._library.StreamError, OSError) as error:
            failure = failure_of(error, self._library)
        else:
            self.at_end = True
            return b""
        raise failure

    async def read(self) -> bytes:
        """Return the rest of the body."""
        pieces = []
        while data := await self.chunk():
            pieces.append(data)
        return b"".join(pieces)

    async def aclose(self) -> None:
        """Give the connection back to the client's pool, or cut it when the body is not read to its end."""
        try:
            await self._chunks.aclose()
        finally:
            await self._response.aclose()


def library_of(client: object) -> ModuleType:
    """Return the loaded library, httpx or httpx2, that this async client is of."""
    for kind in type(client).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in _LIBRARIES:
            return sys.modules[root]
    raise ConfigurationError(f"{type(client).__qualname__} is no httpx or httpx2 client.")


def failure_of(error: Exception, library: ModuleType) -> ProviderError:
    """Return the error without the client's exception, whose texts and frames may hold headers."""
    what = redact(str(error))[:300] or type(error).__name__
    if isinstance(
        error, (library.ConnectError, library.ConnectTimeout, library.InvalidURL, library.UnsupportedProtocol)
    ):
        return StreamBroken(f"No connection: {what}", accepted=False)
    if isinstance(error, library.PoolTimeout):
        return StreamBroken("No free connection in the client's pool.", accepted=False)
    if isinstance(error, library.TimeoutException):
        return StreamBroken("The server went silent: not a byte within the client's read timeout.")
    return StreamBroken(f"The connection broke: {type(error).__name__}: {what}")
