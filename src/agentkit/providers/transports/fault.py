"""From what an httpx-like library or SDK raises to StreamBroken: by the type's name, which all of them share."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Iterator
from urllib.parse import urlsplit

from agentkit.errors import ConfigurationError, StreamBroken
from agentkit.providers.wire.failure import redact

__all__ = ["OneLoop", "broken"]

_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "ClientConnectorError"})
_STALLED = frozenset({"ReadTimeout", "SocketTimeoutError", "APITimeoutError"})
_NOT_SENDABLE = frozenset({"InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "TypeError"})


def broken(error: BaseException, url: str) -> StreamBroken | ConfigurationError:
    """Return the error of this package for a failed request to `url`, without the library's own in its chain."""
    causes = list(_causes(error))
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    what = f"{type(causes[-1]).__name__}: {redact(str(causes[-1]))[:300]}".removesuffix(": ")
    where = _origin(url)
    if names & _NOT_SENDABLE:
        return ConfigurationError(f"No request can be sent to {where}: {what}. Look at the client and its base_url.")
    if names & _NOT_SENT:
        secure = any(isinstance(cause, ssl.SSLError) for cause in causes)
        return StreamBroken(f"No connection to {where}: {what}", accepted=False, retryable=not secure)
    if names & _STALLED:
        return StreamBroken("The server went silent: not a byte within the client's read timeout.")
    return StreamBroken(f"The connection to {where} broke: {what}")


class OneLoop:
    """Refuses a second event loop: the connections of a client belong to the first that used it."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def check(self) -> None:
        """Raise ConfigurationError on any loop but the first."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = weakref.ref(loop)
        elif self._loop() is not loop:
            raise ConfigurationError(
                "client= was used on another event loop before, and its connections belong to that one. Make a client "
                "for each event loop, or leave client= out: the default transport keeps a pool for each."
            )


def _origin(url: str) -> str:
    """Return the part of a URL that holds no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
