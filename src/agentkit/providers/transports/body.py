"""A request's body on its way through aiohttp, which has no limit of its own for a server that does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

__all__ = ["RequestBody", "body_type"]

_PIECE = 1 << 16


class RequestBody(Protocol):
    """Bytes for one request; `late` says that the server did not take them in time."""

    late: bool

    def cut(self) -> None:
        """Close the connection without sending what is left of the body; does nothing before it is begun."""
        ...


@cache
def body_type() -> Callable[[bytes, float | None], RequestBody]:
    """Return the payload class, made when aiohttp is first needed."""
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
