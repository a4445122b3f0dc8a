"""A server on loopback that talks bytes: for whatever a well-behaved server would never say."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Self, TypeAlias

__all__ = ["ByteServer", "Talk", "read_request", "reset", "unreachable"]

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_RESET = struct.pack("ii", 1, 0)  # linger of 0 seconds: closing sends RST


class ByteServer:
    """Runs `talk(reader, writer)` for each connection and closes it after that; `async with` starts and stops it.

    With `tls` the talk begins after the handshake. `opened` counts connections, `over` those whose talk has ended.
    """

    def __init__(self, talk: Talk, *, tls: ssl.SSLContext | None = None) -> None:
        self._talk = talk
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.opened = 0
        self.over = 0
        self.port = 0

    @property
    def origin(self) -> str:
        """Return the server's address without a path."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Return the base_url to send to, which ends in /v1."""
        return f"{self.origin}/v1"

    async def until(self, *, opened: int = 0, over: int = 0) -> None:
        """Wait until so many connections were opened and so many talks have ended."""
        while self.opened < opened or self.over < over:
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._changed.set()
        talk = asyncio.ensure_future(self._run(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._talk(reader, writer)
        finally:
            self.over += 1
            self._changed.set()
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return the head and the body of one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = (line.partition(":") for line in head.split("\r\n"))
    length = next((value for name, _, value in lines if name.lower() == "content-length"), "0")
    return head, await reader.readexactly(int(length))


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@contextmanager
def unreachable() -> Generator[str, None, None]:
    """Give the origin of a server that never takes a connection: its queue is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(listening.getsockname())
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for one in waiting:
                one.close()
