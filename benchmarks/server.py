"""A scripted Chat Completions server: HTTP/1.1 with keep-alive on a bare asyncio protocol.

The first path segment chooses the script: `one`, `tools-N` (N tool calls, then an answer), `stream-N` (N deltas at
once), `paced-N` (one a millisecond). A request with `"stream": true` is answered by server-sent events.
`python -m benchmarks.server` prints the port and serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
from functools import lru_cache

from benchmarks import wire

_PACE_SECONDS = 0.001


@lru_cache
def _joined(pieces: tuple[bytes, ...]) -> bytes:
    return wire.STREAM_HEAD + b"".join(pieces) + wire.STREAM_TAIL


@lru_cache
def _script(path: bytes) -> tuple[str, int]:
    name, _, size = path.split(b"/")[1].decode().partition("-")
    return name, int(size or 0)


def _has(body: bytes, key: bytes, value: bytes) -> int:
    return body.count(b'"%s":%s' % (key, value)) + body.count(b'"%s": %s' % (key, value))


class Scripted(asyncio.Protocol):
    """One connection: parses requests one after the other and answers each by its script."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            mark = head.lower().find(b"content-length:")
            length = int(head[mark + 15 :].split(b"\r\n", 1)[0]) if mark >= 0 else 0
            total = end + 4 + length
            if len(self._buffer) < total:
                return
            body, self._buffer = self._buffer[end + 4 : total], self._buffer[total:]
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        name, size = _script(path)
        streamed = _has(body, b"stream", b"true") > 0
        done = _has(body, b"role", b'"tool"') if name == "tools" else size
        if name == "tools" and done < size:
            self._send(_joined(wire.stream_tool_call(done)) if streamed else wire.tool_call(done))
            return
        deltas = size if name in ("stream", "paced") else 0
        if not streamed:
            self._send(wire.text_answer(deltas))
        elif name == "paced":
            self._send(wire.STREAM_HEAD)
            self._pace(wire.stream_answer(deltas), 0, asyncio.get_running_loop().time())
        else:
            self._send(_joined(wire.stream_answer(deltas)))

    def _pace(self, pieces: tuple[bytes, ...], index: int, start: float) -> None:
        self._send(pieces[index])
        if index + 1 == len(pieces):
            self._timer = None
            self._send(wire.STREAM_TAIL)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(start + (index + 1) * _PACE_SECONDS, self._pace, pieces, index + 1, start)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def main() -> None:
    """Serve on a free loopback port, print it, and stop when standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Scripted, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    closed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), closed.set)
    await closed.wait()


if __name__ == "__main__":
    asyncio.run(main())
