"""The default transport's connections: one aiohttp session for each running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from agentkit.errors import ConfigurationError
from agentkit.providers.transports.connector import connector_type

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Session", "SessionPool"]

_BUFFER = 1 << 18  # bytes before the socket is paused, twice over; pausing for each small chunk costs more than they do
_HEADER = 1 << 17
_CLOSING = 5.0  # seconds for another thread's loop to close its session


class SessionPool:
    """Sessions that several transports share; each belongs to its event loop and closes with it, or with `aclose`.

    `connections` is the most at once per loop; further requests wait. Once closed it stays closed.
    """

    def __init__(self, connections: int = 1000) -> None:
        self._connections = connections
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, Session] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = False

    async def here(self) -> Session:
        """Return the running loop's session; raises ConfigurationError when the pool was closed."""
        session = self._sessions.get(asyncio.get_running_loop())
        return await self._open() if session is None else session

    async def aclose(self) -> None:
        """Close the sessions of all loops that still run; what they were doing ends with StreamBroken."""
        with self._lock:
            self._closed = True
            sessions = list(self._sessions.items())
            self._sessions.clear()
        here = asyncio.get_running_loop()
        for loop, session in sessions:
            session.closed = True
            if loop is here:
                await session.keeper.aclose()
            elif loop.is_running():
                await _close_elsewhere(loop, session)

    async def _open(self) -> Session:
        if self._closed:
            raise ConfigurationError("The connections of this model were closed; make a new runtime, or a new model.")
        session = Session(self._connections)
        await session.keeper.__anext__()
        with self._lock:
            self._sessions[asyncio.get_running_loop()] = session
        return session


class Session:
    """A session of one loop; `error` is what its library raises, `closed` says that it was closed on purpose.

    `answers` are those being read, which would wait for ever when only their connections were closed.
    """

    __slots__ = ("answers", "client", "closed", "error", "keeper")

    def __init__(self, connections: int) -> None:
        import aiohttp

        opening: set[asyncio.Timeout] = set()
        self.answers: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self.client = aiohttp.ClientSession(
            connector=connector_type()(connections, opening),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_BUFFER,
            max_line_size=_HEADER,
            max_field_size=_HEADER,
        )
        self.error: type[Exception] = aiohttp.ClientError
        self.closed = False
        self.keeper = _keep(self.client, opening, self.answers)


async def _keep(
    client: aiohttp.ClientSession, opening: set[asyncio.Timeout], answers: WeakSet[aiohttp.ClientResponse]
) -> AsyncGenerator[None, None]:
    """Hold the session; a loop that ends closes its asynchronous generators, and so this session."""
    try:
        yield
    finally:
        for limit in opening:
            limit.reschedule(0)
        for answer in list(answers):
            answer.close()
        await client.close()


async def _close_elsewhere(loop: asyncio.AbstractEventLoop, session: Session) -> None:
    """Close a session on its own loop, which may be ending at this moment and then closes it itself."""

    async def close() -> None:
        with suppress(RuntimeError):  # the end of the loop is closing it already
            await session.keeper.aclose()

    closing = close()
    try:
        future = asyncio.run_coroutine_threadsafe(closing, loop)
    except RuntimeError:
        closing.close()
    else:
        await asyncio.wait([asyncio.wrap_future(future)], timeout=_CLOSING)
