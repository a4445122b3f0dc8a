"""A model's server on loopback that answers from a script: for tests of providers, transports and whole apps."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Literal, Self, TypeAlias

import msgspec
from msgspec import Struct

from agentkit.core.contracts import JsonObject
from agentkit.testing.turns import Turn, protocol_of, write_turn

__all__ = ["Given", "HttpAnswer", "LoopbackServer", "Received", "answer_of"]

_RESET = struct.pack("ii", 1, 0)  # linger of 0 seconds: closing sends RST


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """Raw bytes as an HTTP answer, each piece in a chunk of its own.

    `then` is how it ends: "end" properly, "close" without the last chunk, "reset" by RST, "hang" never (until the
    client goes or the server stops).
    """

    status: int = 200
    headers: Mapping[str, str] = {}
    pieces: tuple[bytes, ...] = ()
    then: Literal["end", "close", "reset", "hang"] = "end"


class Received(Struct, frozen=True):
    """A request the server got; `body` is its JSON."""

    path: str
    headers: Mapping[str, str]
    body: JsonObject


Given: TypeAlias = Turn | HttpAnswer


class LoopbackServer:
    """Answers each POST with the next of `script`, the last one again and again; `async with` starts and stops it.

    A `Turn` is told in the protocol the path asks for (Chat Completions, Messages or Responses), streamed or not as
    the body asks; an `HttpAnswer` goes out as it is. A function gets the request and returns either. `requests` are
    those got, `connections` counts all that were opened, `busy` the answers not yet over. `grain` is how many places
    a check that could try all of them goes on by.
    """

    grain: ClassVar[int] = 7

    def __init__(self, script: Sequence[Given] | Callable[[Received], Given]) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._changed = asyncio.Event()
        self.requests: list[Received] = []
        self.connections = 0
        self.busy = 0
        self.origin = ""

    @property
    def url(self) -> str:
        """Return the base_url to bind to, which ends in /v1."""
        return f"{self.origin}/v1"

    async def until_busy(self, answers: int) -> None:
        """Wait until exactly so many answers are under way; 0 waits for quiet."""
        while self.busy != answers:
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        self.connections += 1
        try:
            while (received := await _receive(reader)) is not None:
                self.requests.append(received)
                self._count(1)
                try:
                    again = await self._answer(self._next(received), received, reader, writer)
                finally:
                    self._count(-1)
                if not again:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        except asyncio.CancelledError:
            if not self._stopping:  # asyncio reports a cancelled handler as a failure
                raise
        finally:
            self._handlers.discard(handler)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _count(self, more: int) -> None:
        self.busy += more
        self._changed.set()

    def _next(self, received: Received) -> Given:
        script = self._script
        if not isinstance(script, Sequence):
            return script(received)
        return script[min(len(self.requests), len(script)) - 1]

    async def _answer(
        self, given: Given, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Write one answer; returns whether the connection serves another request."""
        answer = answer_of(given, received)
        writer.write(_head(answer))
        for piece in answer.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
        if answer.then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if answer.then == "hang":
            while await reader.read(1 << 16):
                pass
        elif answer.then == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        return False


def answer_of(given: Given, received: Received) -> HttpAnswer:
    """Return the bytes of an answer to this request: a turn in the protocol and form it asks for."""
    if isinstance(given, HttpAnswer):
        return given
    stream = received.body.get("stream") is True
    pieces = write_turn(given, protocol_of(received.path), stream=stream)
    kind = "text/event-stream" if stream else "application/json"
    return HttpAnswer(headers={"content-type": kind, "x-request-id": "req-loopback"}, pieces=pieces)


def _head(answer: HttpAnswer) -> bytes:
    headers = {"content-type": "application/json", **answer.headers, "transfer-encoding": "chunked"}
    lines = [f"HTTP/1.1 {answer.status} Loopback", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _receive(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, msgspec.json.decode(body or b"{}"))
