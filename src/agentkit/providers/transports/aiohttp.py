"""The default transport, over pooled aiohttp sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from agentkit.core.contracts import Timeouts
from agentkit.errors import ProviderError
from agentkit.providers.transports.connector import RequestBody, body_type
from agentkit.providers.transports.environment import proxy_for, tls_context
from agentkit.providers.transports.fault import (
    broken_connection,
    closed_under_way,
    no_connection,
    too_late,
    unread_encoding,
    unreadable,
)
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS
from agentkit.providers.transports.session import Session, SessionPool

if TYPE_CHECKING:
    import aiohttp

__all__ = ["AiohttpTransport"]

_OK = 200
_CEILING = 60  # seconds from which on aiohttp rounds a limit up to a whole one


class AiohttpTransport:
    """Sends over aiohttp; `sessions` may be shared with other transports, and are then their maker's to close.

    Proxies come from the environment (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), certificates from the system or
    from SSL_CERT_FILE and SSL_CERT_DIR, all as they are when the transport is made. Redirects are not followed.
    """

    brings_auth = False
    protocols = ()

    def __init__(
        self, base_url: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, sessions: SessionPool | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeouts = timeouts
        self._limits: aiohttp.ClientTimeout | None = None
        self._proxy = proxy_for(self.base_url)
        encrypted = any(url.lower().startswith("https:") for url in (self.base_url, self._proxy or ""))
        self._tls = tls_context() if encrypted else True
        self._owns = sessions is None
        self._sessions = SessionPool() if sessions is None else sessions

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> AiohttpResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        session = await self._sessions.here()
        payload = body_type()(body, self._timeouts.write)
        failure: ProviderError
        try:
            response = await session.client.post(
                self.base_url + path,
                data=payload,
                headers=headers,
                proxy=self._proxy,
                ssl=self._tls,
                timeout=self._limits or self._made_limits(),
                allow_redirects=False,
            )
        except asyncio.CancelledError:
            payload.cut()
            if not session.closed or _is_cancelled():
                raise
            failure = closed_under_way()  # a request that waited for a connection is cancelled by the library then
        except (OSError, ValueError, RuntimeError, session.error) as error:
            payload.cut()
            failure = self._failure(error, session, payload)
        else:
            if response.status == _OK and (encoding := unread_encoding(response.headers)):
                response.close()
                raise unreadable(encoding)
            session.answers.add(response)
            return AiohttpResponse(response, session.error, partial(self._failure, session=session))
        raise failure

    async def aclose(self) -> None:
        """Close the sessions, unless they are shared."""
        if self._owns:
            await self._sessions.aclose()

    def _made_limits(self) -> aiohttp.ClientTimeout:
        import aiohttp

        limits = self._timeouts
        self._limits = aiohttp.ClientTimeout(
            total=None, sock_connect=limits.connect, sock_read=limits.idle, ceil_threshold=_CEILING
        )
        return self._limits

    def _failure(self, error: Exception, session: Session, payload: RequestBody | None = None) -> ProviderError:
        """Return the error without the client's exception, whose texts and frames may hold headers."""
        import aiohttp

        if session.closed:
            return closed_under_way()
        if payload is not None and payload.late:
            return too_late("write", self._timeouts.write)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return too_late("connect", self._timeouts.connect, self.base_url)
        if isinstance(error, TimeoutError):
            return too_late("idle", self._timeouts.idle)
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.InvalidURL, aiohttp.ClientHttpProxyError)):
            return no_connection(error, self.base_url)
        return broken_connection(error, self.base_url)


class AiohttpResponse:
    """An answer of aiohttp; see HttpResponse."""

    __slots__ = ("_content", "_error", "_explain", "_response", "headers", "status")

    secrets = ()

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        error: type[Exception],
        explain: Callable[[Exception], ProviderError],
    ) -> None:
        self._response = response
        self._content = response.content
        self._error = error
        self._explain = explain
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunk(self) -> bytes:
        """Return what has arrived, waiting for at least a byte."""
        try:
            return await self._content.readany()
        except (OSError, RuntimeError, self._error) as error:  # RuntimeError: closed by another task
            failure = self._explain(error)
        raise failure

    async def read(self) -> bytes:
        """Return the rest of the body."""
        try:
            return await self._content.read()
        except (OSError, RuntimeError, self._error) as error:
            failure = self._explain(error)
        raise failure

    @property
    def at_end(self) -> bool:
        """Return whether the body has been read to its end."""
        return self._content.at_eof()

    async def aclose(self) -> None:
        """Keep the connection when the body was read, cut it otherwise."""
        if self._content.at_eof():
            self._response.release()
            return
        connection = self._response.connection
        transport = None if connection is None else connection.transport
        self._response.close()
        if transport is not None:
            transport.abort()  # closing alone would first send what the server has not taken of the request


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
