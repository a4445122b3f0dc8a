"""Parts of aiohttp with limits and checks it does not have; classes are made when it is first needed."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ["RequestBody", "body_type", "connector_type"]

_KEEP_ALIVE = 60.0
_PIECE = 1 << 16


class RequestBody(Protocol):
    """Bytes for one request; `late` says that the server did not take them in time."""

    late: bool

    def cut(self) -> None:
        """Close the connection without sending what is left of the body; does nothing before it is begun."""
        ...


@cache
def body_type() -> Callable[[bytes, float | None], RequestBody]:
    """Return the class of a body: its content, and the seconds for the server to take it."""
    import aiohttp

    class Body(aiohttp.Payload):
        _autoclose = True  # nothing to close: it is only bytes

        def __init__(self, content: bytes, limit: float | None) -> None:
            super().__init__(content)
            self._size = len(content)
            self._content = content
            self._limit = limit
            self._transport: asyncio.WriteTransport | None = None
            self.late = False

        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            return self._content.decode(encoding, errors)

        async def write(self, writer: AbstractStreamWriter) -> None:
            self._transport = writer.transport
            if len(self._content) < _PIECE // 2:  # the socket's buffer takes it
                await writer.write(self._content)
                return
            view = memoryview(self._content)
            try:
                async with asyncio.timeout(self._limit):
                    for start in range(0, len(view), _PIECE):
                        await writer.write(view[start : start + _PIECE])
            except TimeoutError:
                self.late = True
                raise

        async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
            await self.write(writer)

        def cut(self) -> None:
            if self._transport is not None:
                self._transport.abort()

    return Body


@cache
def connector_type() -> Callable[[int, set[asyncio.Timeout]], aiohttp.TCPConnector]:
    """Return the class of a pool: the most connections, and where the limits of those being opened are kept."""
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        """Opens connections, TLS included, within the connect limit, and uses none again on which something waits."""

        def __init__(self, connections: int, opening: set[asyncio.Timeout]) -> None:
            super().__init__(limit=connections, keepalive_timeout=_KEEP_ALIVE)
            self._opening = opening
            self._fresh: WeakSet[ResponseHandler] = WeakSet()

        async def connect(
            self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
        ) -> Connection:
            while True:
                connection = await super().connect(req, traces, timeout)
                protocol = connection.protocol
                if protocol is not None and protocol in self._fresh:
                    self._fresh.discard(protocol)
                    return connection
                if _is_quiet(connection):
                    return connection
                connection.close()

        async def _create_connection(
            self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
        ) -> ResponseHandler:
            async with asyncio.timeout(timeout.sock_connect) as limit:
                self._opening.add(limit)
                try:
                    protocol = await super()._create_connection(req, traces, timeout)
                finally:
                    self._opening.discard(limit)
            self._fresh.add(protocol)
            return protocol

    return Connector


def _is_quiet(connection: Connection) -> bool:
    """Return whether nothing came since the last answer: what a server says unasked is no answer to what follows."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or protocol.should_close:
        return False
    socket = transport.get_extra_info("socket")
    if socket is None or not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return not poll.poll(0)
