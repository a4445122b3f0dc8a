"""The default transport: one pooled aiohttp session per running event loop."""

from __future__ import annotations

import asyncio
import io
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agentkit.errors import ProviderError, StreamBroken
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS, Timeouts
from agentkit.providers.wire.failure import redact

if TYPE_CHECKING:
    import aiohttp

__all__ = ["AiohttpTransport"]

_KEEP_ALIVE = 60.0
_BUFFER = 1 << 18  # bytes before the socket is paused, twice over; pausing for each small chunk costs more than they do
_LARGE = 1 << 20


class AiohttpTransport:
    """Sends over aiohttp; sessions belong to their event loop and close with it, or with `aclose`.

    All of them share the TLS context that aiohttp makes when it is imported: loading certificates once is enough.

    Proxies come from the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), certificates from the system or
    SSL_CERT_FILE. `connections` is the most at once per loop; further requests wait. Redirects are not followed.
    """

    brings_auth = False
    protocols = ()

    def __init__(self, base_url: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, connections: int = 1000) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeouts = timeouts
        self._connections = connections
        self._proxy = _proxy_for(self.base_url)
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = WeakKeyDictionary()

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> AiohttpResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        session = self._sessions.get(asyncio.get_running_loop()) or await self._open()
        failure: ProviderError
        try:
            response = await session.client.post(
                self.base_url + path, data=_payload(body), headers=headers, proxy=self._proxy, allow_redirects=False
            )
        except (OSError, ValueError, session.error) as error:
            failure = _failure(error, self.base_url)
        else:
            return AiohttpResponse(response, session.error)
        raise failure

    async def aclose(self) -> None:
        """Close the sessions of all loops that still run; a later call opens a new one."""
        here = asyncio.get_running_loop()
        sessions = list(self._sessions.items())
        self._sessions.clear()
        for loop, session in sessions:
            if loop is here:
                await session.keeper.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.keeper.aclose(), loop))

    async def _open(self) -> _Session:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEP_ALIVE)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeouts.connect, sock_read=self._timeouts.idle, ceil_threshold=60
        )
        client = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_BUFFER,
        )
        keeper = _keep(client)
        await keeper.__anext__()
        session = _Session(client, keeper, aiohttp.ClientError)
        self._sessions[asyncio.get_running_loop()] = session
        return session


class _Session:
    __slots__ = ("client", "error", "keeper")

    def __init__(
        self, client: aiohttp.ClientSession, keeper: AsyncGenerator[None, None], error: type[Exception]
    ) -> None:
        self.client = client
        self.keeper = keeper
        self.error = error


async def _keep(client: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Hold the session; a loop that ends closes its asynchronous generators, and so this session."""
    try:
        yield
    finally:
        await client.close()


class AiohttpResponse:
    """An answer of aiohttp; see HttpResponse."""

    __slots__ = ("_content", "_error", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, error: type[Exception]) -> None:
        self._response = response
        self._content = response.content
        self._error = error
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunk(self) -> bytes:
        """Return what has arrived, waiting for at least a byte."""
        try:
            return await self._content.readany()
        except (OSError, RuntimeError, self._error) as error:  # RuntimeError: closed by another task
            failure = _failure(error, "")
        raise failure

    async def read(self) -> bytes:
        """Return the rest of the body."""
        try:
            return await self._content.read()
        except (OSError, RuntimeError, self._error) as error:  # RuntimeError: closed by another task
            failure = _failure(error, "")
        raise failure

    @property
    def at_end(self) -> bool:
        """Return whether the body has been read to its end."""
        return self._content.at_eof()

    async def aclose(self) -> None:
        """Keep the connection when the body was read, cut it otherwise."""
        if self._content.at_eof():
            self._response.release()
        else:
            self._response.close()


def _payload(body: bytes) -> bytes | io.BytesIO:
    """Return the body in the form that aiohttp wants from this size on: a file, which it sends in pieces."""
    return body if len(body) < _LARGE else io.BytesIO(body)


def _failure(error: Exception, where: str) -> ProviderError:
    """Return the error without the client's exception, whose texts and frames may hold headers."""
    import aiohttp

    what = redact(str(error))[:300] or type(error).__name__
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)):
        certificate = isinstance(error, aiohttp.ClientConnectorCertificateError)
        return StreamBroken(f"No connection to {redact(where)}: {what}", accepted=False, retryable=not certificate)
    if isinstance(error, (aiohttp.SocketTimeoutError, TimeoutError)):
        return StreamBroken("The server went silent: not a byte within the idle limit.")
    return StreamBroken(f"The connection broke: {type(error).__name__}: {what}")


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
