"""The scripted server without a network: a transport in this process that answers and fails like the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Self
from weakref import WeakValueDictionary

import msgspec

from agentkit.errors import ConfigurationError, StreamBroken
from agentkit.testing.loopback import HttpAnswer, LoopbackServer, Received, answer_of

__all__ = ["MemoryServer", "MemoryTransport"]

_NUMBERS = count(1)


class MemoryServer(LoopbackServer):
    """A LoopbackServer for models over a `MemoryTransport(server.url)`; every byte goes the same way, without sockets.

    `connections` counts as a pool would: an answer that was read to its end gives its connection back.
    """

    grain = 1

    def __init__(self, script: object) -> None:
        super().__init__(script)  # type: ignore[arg-type]
        self.kept = 0

    async def __aenter__(self) -> Self:
        self.origin = f"memory://{next(_NUMBERS)}"
        _SERVERS[self.url] = self
        return self

    async def __aexit__(self, *_: object) -> None:
        _SERVERS.pop(self.url, None)

    def respond(self, received: Received) -> MemoryResponse:
        """Return the next answer of the script, as it begins."""
        if self.kept:
            self.kept -= 1
        else:
            self.connections += 1
        self.requests.append(received)
        answer = answer_of(self._next(received), received)
        self._count(1)
        return MemoryResponse(self, answer)

    def ended(self, *, whole: bool) -> None:
        """Count an answer as over; its connection is kept when it was read to its end."""
        self.kept += whole
        self._count(-1)


_SERVERS: WeakValueDictionary[str, MemoryServer] = WeakValueDictionary()


class MemoryTransport:
    """A transport to the MemoryServer of this url; see HttpTransport."""

    brings_auth = False
    protocols = ()

    def __init__(self, base_url: str) -> None:
        if not base_url.startswith("memory://"):
            raise ConfigurationError(f"MemoryTransport({base_url!r}): pass the url of a MemoryServer.")
        self.base_url = base_url

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> MemoryResponse:
        """Hand the request over; raises StreamBroken with accepted=False when the server is gone."""
        await asyncio.sleep(0)
        server = _SERVERS.get(self.base_url)
        if server is None:
            raise StreamBroken(f"No connection to {self.base_url}", accepted=False)
        return server.respond(Received(f"/v1{path}", dict(headers), msgspec.json.decode(body)))

    async def aclose(self) -> None:
        """Close nothing: there is nothing open."""


class MemoryResponse:
    """An answer of a MemoryServer; see HttpResponse."""

    def __init__(self, server: MemoryServer, answer: HttpAnswer) -> None:
        self._server = server
        self._pieces = iter(answer.pieces)
        self._then = answer.then
        self._open = True
        self.secrets: tuple[str, ...] = ()
        self.at_end = False
        self.status = answer.status
        self.headers = {"content-type": "application/json", **answer.headers}

    async def chunk(self) -> bytes:
        """Return the next piece, b"" at the end; raises StreamBroken or waits where the script says so."""
        await asyncio.sleep(0)
        if not self._open:
            raise StreamBroken("The connection was closed.")
        for piece in self._pieces:
            if piece:
                return piece
        if self._then == "hang":
            await asyncio.Event().wait()
        if self._then != "end":
            raise StreamBroken(f"The connection broke: {self._then}")
        self.at_end = True
        return b""

    async def read(self) -> bytes:
        """Return the rest of the body."""
        pieces = []
        while piece := await self.chunk():
            pieces.append(piece)
        return b"".join(pieces)

    async def aclose(self) -> None:
        """Give the connection back when the body was read, drop it otherwise."""
        if self._open:
            self._open = False
            self._server.ended(whole=self.at_end)
