"""What every transport has to hold, as checks that a test of your own runs against servers on loopback.

@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_mine(check): await check(lambda url, timeouts: MyTransport(url, timeouts))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeAlias

from agentkit.core.contracts import Timeouts
from agentkit.errors import AgentkitError, StreamBroken
from agentkit.providers.transports.port import Headers, HttpResponse, HttpTransport
from agentkit.testing.bytes_server import ByteServer, Talk, read_request, reset, unreachable

__all__ = ["TRANSPORT_CHECKS", "MakeTransport", "TransportCheck", "check_transport"]

MakeTransport: TypeAlias = Callable[[str, Timeouts | None], HttpTransport]
TransportCheck: TypeAlias = Callable[[MakeTransport], Awaitable[None]]

_SECRET: Final = "secret-of-loopback"
_PATH: Final = "/chat/completions"
_HEADERS: Final = Headers({"content-type": "application/json", "authorization": f"Bearer {_SECRET}"})
_BODY: Final = b'{"model": "m", "stream": true, "messages": []}'
_HUGE: Final = b'{"model": "m", "stream": true, "messages": "' + b"x" * (1 << 25) + b'"}'
_OK: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nX-Request-Id: req-1\r\n"
_CHUNKED: Final = _OK + b"transfer-encoding: chunked\r\n\r\n"
_PATIENCE = 20.0  # seconds for what should take none, on a machine that is busy


async def check_transport(make: MakeTransport) -> None:
    """Run every check; raise AssertionError naming what the transport does wrong.

    `make` gets a base_url (it ends in /v1) and limits, None for the transport's own, and returns a transport that
    sends the headers it is given or brings the key "secret-of-loopback". What `make` opened is closed by `aclose`.
    """
    for check in TRANSPORT_CHECKS:
        await check(make)


async def requests_arrive_whole(make: MakeTransport) -> None:
    """Check path and body, small and large, one request a post; and that headers of the answer are read in any case."""
    got: list[tuple[str, bytes]] = []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            got.append(await read_request(reader))
            writer.write(_OK + b"content-length: 4\r\n\r\ndone")

    async with ByteServer(answers) as server, _made(make, server.url) as transport:
        for body in (_BODY, _HUGE):
            async with _posted(transport, body) as response:
                assert (response.status, response.headers.get("x-request-id")) == (200, "req-1"), "status or headers"
                assert await response.read() == b"done", "read() does not return the body"
                assert response.at_end, "at_end is False after the body was read"
        assert server.opened == 1, f"2 answers that were read took {server.opened} connections"
    assert len(got) == 2, f"2 posts sent {len(got)} requests"
    for (head, arrived), body in zip(got, (_BODY, _HUGE), strict=True):
        assert head.startswith(f"POST /v1{_PATH} HTTP/1.1"), f"the request began {head[:60]!r}"
        assert len(arrived) == len(body) or b'"messages"' in arrived, "the body did not arrive as it was given"


async def bytes_come_as_they_are_sent(make: MakeTransport) -> None:
    """Check that a piece is there before the next is sent, and b"" at the end."""
    seen = asyncio.Event()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(_CHUNKED + b"5;name=value\r\nfirst\r\n")
        await seen.wait()
        writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
        await reader.read()

    async with ByteServer(answers) as server, _made(make, server.url) as transport, _posted(transport) as response:
        piece = await asyncio.wait_for(response.chunk(), _PATIENCE)
        assert piece == b"first", f"the first piece is {piece!r}"
        assert not response.at_end, "at_end is True before the end"
        seen.set()
        assert await response.chunk() + await response.chunk() == b"second", "the second piece is not what was sent"
        assert await response.chunk() == b"", "there is more after the end"


async def statuses_are_answers(make: MakeTransport) -> None:
    """Check that no status raises, none is repeated, and no redirect is followed."""
    for status in (204, 301, 307, 400, 401, 407, 429, 500, 503):
        got: list[str] = []

        async def answers(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int = status, got: list[str] = got
        ) -> None:
            while True:
                got.append((await read_request(reader))[0])
                body = b"" if status == 204 else b"content-length: 2\r\n\r\nno"
                to = f"http://127.0.0.1:{writer.get_extra_info('sockname')[1]}/other"
                head = f"HTTP/1.1 {status} Said\r\nRetry-After: 1\r\nLocation: {to}\r\n"
                writer.write(head.encode() + (body or b"\r\n"))

        async with ByteServer(answers) as server, _made(make, server.url) as transport:
            async with _posted(transport) as response:
                said = (response.status, response.headers.get("retry-after"))
            assert said == (status, "1"), f"{status} came as {said}"
        assert len(got) == 1, f"{status}: {len(got)} requests were sent"


async def no_connection_is_not_accepted(make: MakeTransport) -> None:
    """Check that a refused connection is StreamBroken with accepted=False, worth another try."""
    async with ByteServer(_silent) as server:
        url = server.url
    async with _made(make, url) as transport:
        error = await _broken(transport)
    assert error.accepted is False, f"accepted is {error.accepted}: nothing was sent"
    assert error.retryable, "the server may be back in a moment"


async def torn_answers_are_broken_streams(make: MakeTransport) -> None:
    """Check that every way an answer can break is StreamBroken, not known to be unaccepted, and sent once."""
    torn: dict[str, bytes] = {
        "nothing": b"",
        "half a head": b"HTTP/1.1 200 O",
        "no HTTP": b"\x16\x03\x01 not what was asked for\r\n\r\n",
        "a head without end": _OK + b"x-long: " + b"y" * (1 << 21),
        "a short body": _OK + b"content-length: 10\r\n\r\nshort",
        "a cut chunk": _CHUNKED + b"a\r\nshort",
        "no last chunk": _CHUNKED + b"5\r\nshort\r\n",
        "no chunk at all": _CHUNKED + b"zz\r\nshort\r\n0\r\n\r\n",
    }
    for name, sent in torn.items():
        for end in (asyncio.StreamWriter.close, reset):

            async def answers(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                sent: bytes = sent,
                end: Callable[[asyncio.StreamWriter], None] = end,
            ) -> None:
                await read_request(reader)
                writer.write(sent)
                await writer.drain()
                end(writer)

            async with ByteServer(answers) as server, _made(make, server.url) as transport:
                error = await _broken(transport)
                assert error.accepted is not False, f"{name}: the server may have accepted the request"
                assert server.opened == 1, f"{name}: the request was sent {server.opened} times"


async def limits_hold(make: MakeTransport) -> None:
    """Check that connect, write and idle end in StreamBroken naming the limit, and let go of the connection."""
    begin, arrived = asyncio.Event(), bytearray()
    async with ByteServer(_reads_after(begin, arrived)) as server:
        for limits, url, body, accepted in (
            (Timeouts(connect=0.2), server.url.replace("http:", "https:"), _BODY, False),
            (Timeouts(write=0.2), server.url, _HUGE, None),
            (Timeouts(idle=0.2), server.url, _BODY, None),
        ):
            name = next(name for name in ("connect", "write", "idle") if getattr(limits, name) == 0.2)
            async with _made(make, url, limits) as transport:
                error = await _broken(transport, body)
                assert f"{name} limit of 0.2 s" in error.message, f"{name}: the error says {error.message!r}"
                assert (error.accepted, error.retryable) == (accepted, True), f"{name}: {vars(error)}"
        begin.set()
        await asyncio.wait_for(server.until(over=server.opened), _PATIENCE)
    assert len(arrived) < len(_HUGE), "the whole body went out after the write limit"
    with unreachable() as origin:
        async with _made(make, f"{origin}/v1", Timeouts(connect=0.2)) as transport:
            error = await _broken(transport)
    assert "connect limit of 0.2 s" in error.message, f"connect: the error says {error.message!r}"


async def any_byte_is_life(make: MakeTransport) -> None:
    """Check that the idle limit starts anew with each piece, and holds between pieces."""

    async def pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(_CHUNKED)
        for _ in range(5):
            writer.write(b"8\r\n: ping\n\n\r\n")
            await asyncio.sleep(0.2)
        await reader.read()

    async with ByteServer(pings) as server, _made(make, server.url, Timeouts(idle=0.8)) as transport:
        pieces, error = await _until_broken(transport)
        assert pieces == b": ping\n\n" * 5, f"of 5 pings {len(pieces) // 8} were read"
        assert "idle limit of 0.8 s" in error.message, f"the error says {error.message!r}"
        await asyncio.wait_for(server.until(over=1), _PATIENCE)


async def cancelling_ends_the_request(make: MakeTransport) -> None:
    """Check that cancelling ends the request at once, in every phase, and that no more of a body is sent then."""
    with unreachable() as origin:
        await _cancelled(make, f"{origin}/v1", _BODY, asyncio.sleep(0.05))
    arrived = bytearray()
    cancelled = asyncio.Event()
    async with ByteServer(_reads_after(cancelled, arrived)) as server:
        url = server.url.replace("http:", "https:")
        for address, body in ((url, _BODY), (server.url, _BODY), (server.url, _HUGE)):
            before = server.opened
            await _cancelled(make, address, body, server.until(opened=before + 1))
        cancelled.set()
        await asyncio.wait_for(server.until(over=3), _PATIENCE)
    assert len(arrived) < len(_HUGE), "the whole body went out after the request had been cancelled"

    async def stalls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(_CHUNKED + b"5\r\nfirst\r\n")
        await reader.read()

    async with ByteServer(stalls) as server, _made(make, server.url) as transport:
        async with _posted(transport) as response:
            await response.chunk()
            reading = asyncio.ensure_future(response.chunk())
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading], timeout=_PATIENCE)
            assert reading.cancelled(), "cancelling chunk() did not come out as CancelledError"
        await asyncio.wait_for(server.until(over=1), _PATIENCE)


async def closing_an_answer_ends_it(make: MakeTransport) -> None:
    """Check that an answer closed before its end, twice at that, cuts the connection and leaves others alone."""

    async def stalls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(_CHUNKED + b"5\r\nfirst\r\n")
        await reader.read()

    async with ByteServer(stalls) as server, _made(make, server.url) as transport, _posted(transport) as kept:
        async with _posted(transport) as response:
            await response.chunk()
            await response.aclose()
            await asyncio.wait_for(server.until(over=1), _PATIENCE)
        assert await asyncio.wait_for(kept.chunk(), _PATIENCE) == b"first", "another answer was closed as well"


TRANSPORT_CHECKS: tuple[TransportCheck, ...] = (
    requests_arrive_whole,
    bytes_come_as_they_are_sent,
    statuses_are_answers,
    no_connection_is_not_accepted,
    torn_answers_are_broken_streams,
    limits_hold,
    any_byte_is_life,
    cancelling_ends_the_request,
    closing_an_answer_ends_it,
)


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the client is gone."""
    while await reader.read(1 << 20):
        await writer.drain()


def _reads_after(begin: asyncio.Event, arrived: bytearray) -> Talk:
    """Return a talk that takes nothing and notices nothing until `begin`, and then all that still comes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        await begin.wait()
        transport.resume_reading()
        while data := await reader.read(1 << 20):
            arrived.extend(data)

    return talk


@asynccontextmanager
async def _made(make: MakeTransport, url: str, limits: Timeouts | None = None) -> AsyncGenerator[HttpTransport, None]:
    transport = make(url, limits)
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def _posted(transport: HttpTransport, body: bytes = _BODY) -> AsyncGenerator[HttpResponse, None]:
    response = await transport.post(_PATH, _HEADERS, body)
    async with aclosing(response):
        yield response


async def _until_broken(transport: HttpTransport, body: bytes = _BODY) -> tuple[bytes, StreamBroken]:
    pieces = b""
    try:
        async with asyncio.timeout(_PATIENCE), _posted(transport, body) as response:
            while data := await response.chunk():
                pieces += data
    except StreamBroken as error:
        _check_secret(error)
        return pieces, error
    except Exception as error:
        raise AssertionError(f"StreamBroken was due, not {error!r}") from error
    raise AssertionError(f"StreamBroken was due, not the end of an answer: {pieces[:100]!r}")


async def _broken(transport: HttpTransport, body: bytes = _BODY) -> StreamBroken:
    return (await _until_broken(transport, body))[1]


async def _cancelled(make: MakeTransport, url: str, body: bytes, begun: Awaitable[object]) -> None:
    async with _made(make, url) as transport:
        posting = asyncio.ensure_future(transport.post(_PATH, _HEADERS, body))
        await asyncio.wait_for(begun, _PATIENCE)
        posting.cancel()
        await asyncio.wait([posting], timeout=_PATIENCE)
        assert posting.cancelled(), f"cancelling a request did not end it: {posting!r}"


def _check_secret(error: AgentkitError) -> None:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        told = f"{cause!r} {cause} {cause.args} {vars(cause)} {getattr(cause, '__notes__', ())}"
        assert _SECRET not in told, f"the key shows in {type(cause).__name__}"
        cause = cause.__cause__ or cause.__context__
