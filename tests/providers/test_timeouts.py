"""Limits on attempts through the public API, and what ends a request in flight, over every kind of client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anthropic
import httpx
import httpx2
import openai
import pytest

from agentkit import Binding, Budget, CallRuntime, CancellationToken, RetryPolicy, TextDelta, Timeouts
from agentkit.core.contracts import ModelEvent
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, RateLimited, StreamBroken
from agentkit.testing import ByteServer, HttpAnswer, LoopbackServer, Turn
from agentkit.testing.bytes_server import read_request
from agentkit.testing.turns import write_turn

ONCE = RetryPolicy(max_attempts=1)
SSE = {"content-type": "text/event-stream"}
OK = Turn(text="It is forty two.")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

Client = Callable[[str], object]

CLIENTS: dict[str, Client] = {
    "default": lambda url: None,
    "httpx": lambda url: httpx.AsyncClient(limits=httpx.Limits(max_connections=10)),
    "httpx2": lambda url: httpx2.AsyncClient(limits=httpx2.Limits(max_connections=10)),
    "openai": lambda url: openai.AsyncOpenAI(
        api_key="k", base_url=url, http_client=httpx2.AsyncClient(limits=httpx2.Limits(max_connections=10))
    ),
    "azure": lambda url: openai.AsyncAzureOpenAI(
        azure_endpoint=url.removesuffix("/v1"),
        api_key="k",
        api_version="2026-01-01",
        http_client=httpx2.AsyncClient(limits=httpx2.Limits(max_connections=10)),
    ),
    "anthropic": lambda url: anthropic.AsyncAnthropic(
        api_key="k",
        base_url=url.removesuffix("/v1"),
        http_client=httpx2.AsyncClient(limits=httpx2.Limits(max_connections=10)),
    ),
}
KINDS = pytest.mark.parametrize("kind", CLIENTS)


@asynccontextmanager
async def bound(kind: str, url: str, timeouts: Timeouts | None = None) -> AsyncGenerator[Binding, None]:
    """Give a binding over a client of this kind, which is closed after that."""
    client = CLIENTS[kind](url)
    name = "anthropic:m" if kind == "anthropic" else "openai:m"
    if kind in ("openai", "azure", "anthropic"):
        yield Binding(name, client=client, price="1/1", timeouts=timeouts)
    else:
        yield Binding(name, base_url=url, api_key="k", client=client, price="1/1", timeouts=timeouts)
    close = getattr(client, "aclose", None) or getattr(client, "close", None)
    if close is not None:
        await close()


def hangs(received: object) -> HttpAnswer:
    """Answer with three events, and nothing more."""
    path = getattr(received, "path", "")
    return HttpAnswer(headers=SSE, pieces=write_turn(OK, "messages" if "messages" in path else "chat")[:5], then="hang")


@pytest.mark.parametrize("name", ["connect", "write", "idle", "total"])
@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, "10", True])
def test_limits_that_cannot_be_name_their_field(name: str, seconds: object) -> None:
    """A limit is a positive number of seconds or None; anything else is refused by its name."""
    with pytest.raises(ConfigurationError, match=rf"Timeouts\({name}="):
        Timeouts(**{name: seconds})  # type: ignore[arg-type]
    assert getattr(Timeouts(**{name: None}), name) is None


def test_a_binding_checks_its_limits() -> None:
    """Limits are Timeouts, and a model object keeps its own."""
    with pytest.raises(ConfigurationError, match="timeouts"):
        Binding("openai:m", timeouts=10)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="timeouts"):
        Binding(SimpleNamespace(stream=lambda call: None), timeouts=Timeouts())  # type: ignore[arg-type]


@KINDS
@pytest.mark.parametrize("whose", ["binding", "runtime"])
async def test_b29_a_stall_ends_at_the_idle_limit(kind: str, whose: str) -> None:
    """Silence after three events ends the attempt and its connection, and what it may have cost is settled."""
    limits = Timeouts(idle=0.2)
    budget = Budget("1.00")
    async with (
        LoopbackServer(hangs) as server,
        bound(kind, server.url, limits if whose == "binding" else None) as binding,
    ):
        async with CallRuntime(budget=budget, timeouts=limits if whose == "runtime" else None) as calls:
            with pytest.raises(StreamBroken, match=r"idle limit of 0\.2 s") as raised:
                await calls.ask(binding, "hi")
            await asyncio.wait_for(server.until_busy(0), 20)
            assert len(server.requests) == 1  # events had been shown: no second attempt
    assert raised.value.retryable
    assert budget.held() == 0
    assert budget.spent() > 0


async def test_b29_pings_are_life() -> None:
    """Comments for longer than the idle limit and then an answer are no stall."""
    pieces = write_turn(OK, "chat")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD)
        for piece in [b": ping\n\n"] * 5 + list(pieces):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if piece.startswith(b":"):
                await asyncio.sleep(0.25)
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with ByteServer(talk) as server, bound("default", server.url, Timeouts(idle=1.0)) as binding:
        async with CallRuntime() as calls:
            assert (await calls.ask(binding, "hi")).value == OK.text


@KINDS
@pytest.mark.parametrize("phase", ["headers", "chunks", "pings"])
async def test_a_total_limit_ends_an_attempt(kind: str, phase: str) -> None:
    """An attempt ends at the total limit, whether the server is silent or goes on and on."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if phase != "headers":
            writer.write(HEAD + b"8\r\n: ping\n\n\r\n")
        while phase == "pings" and not writer.is_closing():
            writer.write(b"8\r\n: ping\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        await reader.read()

    async with ByteServer(talk) as server, bound(kind, server.url, Timeouts(total=0.3)) as binding:
        async with CallRuntime(retry=ONCE) as calls:
            with pytest.raises(StreamBroken, match=r"total limit of 0\.3 s"):
                await asyncio.wait_for(calls.ask(binding, "hi"), 20)
            await asyncio.wait_for(server.until(over=1), 20)


@KINDS
@pytest.mark.parametrize("by", ["token", "deadline", "task"])
@pytest.mark.parametrize("phase", ["headers", "chunks"])
async def test_what_ends_a_run_ends_its_request(kind: str, by: str, phase: str) -> None:
    """A tripped token, a passed deadline and a cancelled task cut the connection while the server is silent."""
    opened = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if phase == "chunks":
            writer.write(HEAD + b"8\r\n: ping\n\n\r\n")
        opened.set()
        await reader.read()

    token = CancellationToken()
    async with ByteServer(talk) as server, bound(kind, server.url) as binding, CallRuntime() as calls:
        ctx = calls.context(cancel=token, deadline=1.0 if by == "deadline" else None)
        asking = asyncio.ensure_future(calls.ask(binding, "hi", ctx=ctx))
        await asyncio.wait_for(opened.wait(), 20)
        if by == "token":
            token.cancel("no longer wanted")
        elif by == "task":
            asking.cancel()
        await asyncio.wait([asking], timeout=20)
        await asyncio.wait_for(server.until(over=1), 20)
        kinds = {"token": Cancelled, "deadline": DeadlineExceeded, "task": asyncio.CancelledError}
        with pytest.raises(kinds[by]):
            await asking


@KINDS
async def test_b85_closing_while_another_task_waits(kind: str) -> None:
    """A stream may be closed while another task waits for its next event; that task's wait ends too."""
    async with LoopbackServer(hangs) as server, bound(kind, server.url) as binding, CallRuntime() as calls:
        started = asyncio.Event()
        async with calls.stream(binding, "hi") as events:

            async def read() -> None:
                async for event in events:
                    if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                        started.set()

            reading = asyncio.ensure_future(read())
            await asyncio.wait_for(started.wait(), 20)
            await asyncio.wait_for(events.aclose(), 20)
            await events.aclose()
            await asyncio.wait([reading], timeout=20)
            assert reading.done()
        await asyncio.wait_for(server.until_busy(0), 20)
        reading.exception() if not reading.cancelled() else None


@KINDS
async def test_b86_cancelled_streams_give_their_connections_back(kind: str) -> None:
    """After 200 runs cancelled mid-stream over a client with 10 connections a normal run gets its answer."""
    last = False

    def script(received: object) -> HttpAnswer | Turn:
        return OK if last else hangs(received)

    async with LoopbackServer(script) as server, bound(kind, server.url) as binding, CallRuntime() as calls:
        for _ in range(20):
            running = [asyncio.ensure_future(calls.ask(binding, "hi")) for _ in range(10)]
            await asyncio.wait_for(server.until_busy(10), 20)
            for task in running:
                task.cancel()
            ends = await asyncio.gather(*running, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            await asyncio.wait_for(server.until_busy(0), 20)
        last = True
        assert (await asyncio.wait_for(calls.ask(binding, "hi"), 20)).value == OK.text
        assert len(server.requests) == 201


@KINDS
async def test_b73_requests_are_attempts(kind: str) -> None:
    """Three attempts are three requests: no client repeats anything on its own."""
    script = [HttpAnswer(status=429, headers={"retry-after-ms": "1"}, pieces=(b"{}",))]
    async with LoopbackServer(script) as server, bound(kind, server.url) as binding:
        async with CallRuntime(retry=RetryPolicy(max_attempts=3, base_delay=0, max_delay=0)) as calls:
            with pytest.raises(RateLimited):
                await calls.ask(binding, "hi")
        assert len(server.requests) == 3
