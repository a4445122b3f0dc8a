"""HTTP as odd servers speak it, over every transport: what can be read is read, the rest is an error of the tree."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import httpx
import httpx2
import openai
import pytest

from agentkit.errors import ProviderError, StreamBroken
from agentkit.providers.transports.port import HttpTransport
from agentkit.providers.transports.select import transport_for
from agentkit.testing import ByteServer
from agentkit.testing.bytes_server import Talk, read_request

KINDS = pytest.mark.parametrize("kind", ["default", "httpx", "httpx2", "openai"])
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = b"0123456789" * 50


@asynccontextmanager
async def over(kind: str, url: str) -> AsyncGenerator[HttpTransport, None]:
    """Give a transport of this kind, and close it and its client."""
    client = {
        "default": lambda: None,
        "httpx": httpx.AsyncClient,
        "httpx2": httpx2.AsyncClient,
        "openai": lambda: openai.AsyncOpenAI(api_key="k", base_url=url),
    }[kind]()
    transport = transport_for(client, url, url)
    yield transport
    await transport.aclose()
    close = getattr(client, "aclose", None) or getattr(client, "close", None)
    if close is not None:
        await close()


async def body_of(transport: HttpTransport, body: bytes = b"{}") -> bytes:
    response = await transport.post("/x", {"content-type": "application/json"}, body)
    async with aclosing(response):
        return await response.read()


def says(sent: bytes, *, stays: bool = False) -> Talk:
    """Return a talk that answers one request with these bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sent)
        await writer.drain()
        if stays:
            await reader.read()

    return talk


def chunked(body: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n0\r\n\r\n" % (len(body), extension, body)


RAW = zlib.compressobj(wbits=-15)
READ = {
    "until the end of the connection": OK + b"\r\n" + WHOLE,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + WHOLE,
    "chunk extensions": CHUNKED + chunked(WHOLE, b';a=b;c="d;e"'),
    "trailers": CHUNKED + chunked(WHOLE)[:-2] + b"x-checked: yes\r\n\r\n",
    "continue first": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 500\r\n\r\n" + WHOLE,
    "hints first": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK + b"content-length: 500\r\n\r\n" + WHOLE,
    "a header of 64 KB": OK + b"x-long: " + b"y" * 65536 + b"\r\ncontent-length: 500\r\n\r\n" + WHOLE,
    "100 headers": OK + b"".join(b"x-%d: y\r\n" % i for i in range(99)) + b"content-length: 500\r\n\r\n" + WHOLE,
    "gzip": OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(WHOLE),
    "deflate": OK + b"content-encoding: deflate\r\n\r\n" + zlib.compress(WHOLE),
    "no reason": b"HTTP/1.1 200 \r\ncontent-length: 500\r\n\r\n" + WHOLE,
    "a line too many": CHUNKED + chunked(WHOLE) + b"\r\n",
}


@KINDS
@pytest.mark.parametrize("case", READ)
async def test_odd_answers_are_read(case: str, kind: str) -> None:
    """The body comes out whole, and no more than the body."""
    async with ByteServer(says(READ[case])) as server, over(kind, server.url) as transport:
        assert await body_of(transport) == WHOLE


@KINDS
async def test_garbage_after_an_answer_is_not_the_next(kind: str) -> None:
    """What a server sends unasked after an answer is no part of the next, which gets a connection of its own."""
    said = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + chunked(WHOLE))
        await read.wait()
        writer.write(OK + b"content-length: 5\r\n\r\nwrong")
        await writer.drain()
        said.set()
        await reader.read()

    read = asyncio.Event()
    async with ByteServer(talk) as server, over(kind, server.url) as transport:
        assert await body_of(transport) == WHOLE
        read.set()
        await asyncio.wait_for(said.wait(), 20)
        assert await asyncio.wait_for(body_of(transport), 20) == WHOLE
        assert server.opened == 2


async def test_garbage_with_an_answer_is_told() -> None:
    """What comes in one piece with the end of an answer spoils it, and its text is not in the error."""
    sent = CHUNKED + chunked(WHOLE) + b"what is this?"
    async with ByteServer(says(sent)) as server, over("default", server.url) as transport:
        with pytest.raises(StreamBroken, match="broke") as raised:
            await body_of(transport)
    assert "what is this" not in raised.value.message
    assert raised.value.accepted is not False


@KINDS
@pytest.mark.parametrize("encoding", ["br", "zstd", "rot13"])
async def test_other_compression_is_said(encoding: str, kind: str) -> None:
    """A body that cannot be unpacked here is an error, and never handed on as if it were the answer."""
    sent = OK + f"content-encoding: {encoding}\r\ncontent-length: 500\r\n\r\n".encode() + WHOLE
    async with ByteServer(says(sent)) as server, over(kind, server.url) as transport:
        with pytest.raises(ProviderError):
            await body_of(transport)


@KINDS
async def test_damaged_compression_is_a_broken_stream(kind: str) -> None:
    """A body that says gzip and is none breaks."""
    sent = OK + b"content-encoding: gzip\r\ncontent-length: 500\r\n\r\n" + WHOLE
    async with ByteServer(says(sent)) as server, over(kind, server.url) as transport:
        with pytest.raises(StreamBroken):
            await body_of(transport)


@KINDS
async def test_b72_a_request_is_never_repeated_silently(kind: str) -> None:
    """A kept connection that the server closes meanwhile is replaced, or its loss is told; no request goes twice."""
    got = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await read_request(reader)
        got += 1
        writer.write(OK + b"content-length: 500\r\n\r\n" + WHOLE)
        await writer.drain()

    failed = sent = 0
    async with ByteServer(talk) as server, over(kind, server.url) as transport:
        for place in range(30):
            sent += 1
            try:
                assert await body_of(transport) == WHOLE
            except StreamBroken as error:
                failed += 1
                assert error.accepted is None
                assert error.retryable
            for _ in range(place % 4):  # sometimes the loop has seen the end of the connection, sometimes not yet
                await asyncio.sleep(0)
        assert got <= sent
        assert got + failed >= sent


@KINDS
async def test_a_request_that_was_read_is_not_repeated(kind: str) -> None:
    """A server that takes a second request on a kept connection and goes away has been asked once, not twice."""
    got = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await read_request(reader)
        got += 1
        writer.write(OK + b"content-length: 500\r\n\r\n" + WHOLE)
        await read_request(reader)
        got += 1

    async with ByteServer(talk) as server, over(kind, server.url) as transport:
        assert await body_of(transport) == WHOLE
        with pytest.raises(StreamBroken) as raised:
            await body_of(transport)
        assert (got, server.opened) == (2, 1)
        assert raised.value.accepted is None


@KINDS
async def test_an_answer_before_the_request_was_read(kind: str) -> None:
    """A refusal that comes while a large body is still going out is read."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 500\r\nconnection: close\r\n\r\n" + WHOLE)
        await writer.drain()
        while await reader.read(1 << 20):
            pass

    async with ByteServer(talk) as server, over(kind, server.url) as transport:
        response = await asyncio.wait_for(
            transport.post("/x", {"content-type": "application/json"}, b"{}" * (1 << 22)), 20
        )
        async with aclosing(response):
            assert response.status == 413
            assert await response.read() == WHOLE
