"""No error and no log of ours shows a key, whatever fails, over every transport; clouds and their tokens."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anthropic
import httpx
import httpx2
import openai
import pytest

from agentkit import Binding, CallRuntime, RetryPolicy, Timeouts
from agentkit.errors import AgentkitError, AuthFailed
from agentkit.testing import ByteServer, HttpAnswer, LoopbackServer, Turn
from agentkit.testing.bytes_server import Talk, read_request, unreachable
from agentkit.testing.turns import write_turn

KEY = "made-up-Kq7vXw2Tz9"
BASIC = base64.b64encode(KEY.encode()).decode()
OK = Turn(text="It is forty two.")

CLIENTS: dict[str, Callable[[str], object]] = {
    "default": lambda url: None,
    "httpx": lambda url: httpx.AsyncClient(),
    "httpx headers": lambda url: httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}),
    "httpx auth": lambda url: httpx.AsyncClient(auth=("user", KEY)),
    "httpx2": lambda url: httpx2.AsyncClient(),
    "openai": lambda url: openai.AsyncOpenAI(api_key=KEY, base_url=url),
    "azure": lambda url: openai.AsyncAzureOpenAI(
        azure_endpoint=url.removesuffix("/v1"), api_key=KEY, api_version="2026-01-01"
    ),
    "azure token": lambda url: openai.AsyncAzureOpenAI(
        azure_endpoint=url.removesuffix("/v1"), azure_ad_token_provider=lambda: KEY, api_version="2026-01-01"
    ),
    "anthropic": lambda url: anthropic.AsyncAnthropic(api_key=KEY, base_url=url.removesuffix("/v1")),
    "bedrock": lambda url: anthropic.AsyncAnthropicBedrock(
        api_key=KEY, aws_region="eu-west-1", base_url=url.removesuffix("/v1")
    ),
    "vertex": lambda url: anthropic.AsyncAnthropicVertex(
        region="eu", project_id="p", access_token=KEY, base_url=url.removesuffix("/v1")
    ),
}


def head(status: str, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def echoes(status: str, more: str = "") -> Talk:
    """Return a talk that answers with the request's own headers and body, as careless servers do."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got, body = await read_request(reader)
        said = got.replace("\r\n", " ").replace('"', "'") + body.decode().replace('"', "'")
        told = f'{{"error": {{"message": "no: {said}", "type": "t", "code": "c"}}}}'.encode()
        writer.write(head(status, more) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(told), told))

    return talk


def says(sent: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sent)
        await writer.drain()

    return talk


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1 << 16):
        await writer.drain()


FAULTS: dict[str, Talk] = {
    "silence": silent,
    "nothing": says(b""),
    "no HTTP": says(b"what is this\r\n\r\n"),
    "cut": says(head("200 OK") + b"ff\r\nshort"),
    "echo 400": echoes("400 Bad"),
    "echo 401": echoes("401 No"),
    "echo 500": echoes("500 Bad"),
    "echo 200": echoes("200 OK"),
    "redirect": echoes("307 There", f"location: http://127.0.0.1:9/?key={KEY}\r\n"),
    "quoted id": echoes("429 Slow", f"x-request-id: {KEY}\r\nx-ratelimit-limit-requests: {KEY}\r\n"),
}


@asynccontextmanager
async def bound(kind: str, url: str) -> AsyncGenerator[Binding, None]:
    client = CLIENTS[kind](url)
    own = kind in ("openai", "azure", "azure token", "anthropic", "bedrock", "vertex")
    name = "anthropic:m" if kind in ("anthropic", "bedrock", "vertex") else "openai:m"
    limits = Timeouts(connect=0.3, write=0.3, idle=0.3)
    key = KEY if kind in ("default", "httpx", "httpx2") else None
    yield Binding(name, base_url=None if own else url, client=client, price="1/1", timeouts=limits, api_key=key)
    close = getattr(client, "aclose", None) or getattr(client, "close", None)
    if close is not None:
        await close()


async def failure(binding: Binding) -> AgentkitError:
    async with CallRuntime(retry=RetryPolicy(max_attempts=2, base_delay=0, max_delay=0)) as calls:
        with pytest.raises(AgentkitError) as raised:
            await calls.ask(binding, "hi")
    return raised.value


def told_by(error: BaseException) -> str:
    """Return all that an error shows, with those behind it."""
    told, seen, waiting = "", set(), [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        told += f"{one!r} {one} {one.args} {vars(one)} {getattr(one, '__notes__', ())}\n"
        waiting += [each for each in (one.__cause__, one.__context__) if each is not None]
        waiting += getattr(one, "exceptions", ())
    return told + "".join(traceback.format_exception(error))


@pytest.fixture
def ours() -> list[str]:
    """Collect what the loggers of this package say, at every level."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    logger = logging.getLogger("agentkit")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lines  # type: ignore[misc]
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.parametrize("fault", [*FAULTS, "nobody there", "no TLS", "never accepted"])
@pytest.mark.parametrize("kind", CLIENTS)
async def test_nothing_shows_a_key(kind: str, fault: str, ours: io.StringIO) -> None:
    """Text, arguments, attributes, notes, causes, tracebacks and logs are free of keys in every failure."""
    with unreachable() as nobody:
        async with ByteServer(FAULTS.get(fault, silent)) as server:
            url = {
                "nobody there": "http://127.0.0.1:9/v1",
                "no TLS": server.url.replace("http:", "https:"),
                "never accepted": f"{nobody}/v1",
            }.get(fault, server.url)
            async with bound(kind, url) as binding:
                error = await failure(binding)
    told = told_by(error) + ours.getvalue()
    assert KEY not in told
    assert BASIC not in told
    assert base64.b64encode(f"user:{KEY}".encode()).decode() not in told


async def test_azure_by_token_provider() -> None:
    """A token provider, plain or async, is asked for each call, and its token goes out as the bearer."""
    given = iter(f"token-{place}" for place in range(4))

    async def later() -> str:
        return next(given)

    async with LoopbackServer([OK]) as server:
        for provider in (lambda: next(given), later):
            async with openai.AsyncAzureOpenAI(
                azure_endpoint=server.origin, azure_ad_token_provider=provider, api_version="2026-01-01"
            ) as client:
                async with CallRuntime() as calls:
                    for _ in range(2):
                        await calls.ask(Binding("openai:depl", client=client, price="1/1"), "hi")
        sent = [received.headers["authorization"] for received in server.requests]
        assert sent == [f"Bearer token-{place}" for place in range(4)]
        assert server.requests[0].path == "/openai/deployments/depl/chat/completions?api-version=2026-01-01"


async def test_a_token_provider_that_fails() -> None:
    """Credentials that cannot be had are an error about rights, before anything is sent, without the reason's text."""

    def provider() -> str:
        raise ValueError(f"could not refresh with {KEY}")

    async with LoopbackServer([OK]) as server:
        async with openai.AsyncAzureOpenAI(
            azure_endpoint=server.origin, azure_ad_token_provider=provider, api_version="2026-01-01"
        ) as client:
            error = await failure(Binding("openai:depl", client=client, price="1/1"))
        assert not server.requests
    assert isinstance(error, AuthFailed)
    assert "ValueError" in error.message
    assert KEY not in told_by(error)


async def test_vertex_addresses_its_project() -> None:
    """A Vertex client puts project, region and model into the path, and its token into the bearer."""
    said = HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=write_turn(OK, "messages"))
    async with LoopbackServer([said]) as server:
        async with anthropic.AsyncAnthropicVertex(
            region="eu", project_id="p", access_token="token", base_url=server.origin
        ) as client:
            async with CallRuntime() as calls:
                answer = await calls.ask(Binding("anthropic:claude-x", client=client, price="1/1"), "hi")
    sent = server.requests[0]
    assert answer.value == OK.text
    assert sent.path == "/projects/p/locations/eu/publishers/anthropic/models/claude-x:streamRawPredict"
    assert sent.headers["authorization"] == "Bearer token"
    assert "model" not in sent.body
