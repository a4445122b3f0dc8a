"""Whose connections are whose: loops, threads, runtimes that close, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager

import httpx
import openai
import pytest

from agentkit import Binding, CallRuntime, RetryPolicy, Timeouts
from agentkit.errors import ConfigurationError, StreamBroken
from agentkit.providers.transports.aiohttp import AiohttpTransport
from agentkit.providers.transports.select import transport_for
from agentkit.providers.transports.session import SessionPool
from agentkit.testing import ByteServer, HttpAnswer, LoopbackServer, Turn
from agentkit.testing.bytes_server import read_request, unreachable
from agentkit.testing.turns import write_turn

OK = Turn(text="It is forty two.")
SSE = {"content-type": "text/event-stream"}
STALL = HttpAnswer(headers=SSE, pieces=write_turn(OK, "chat")[:5], then="hang")


@contextmanager
def elsewhere(script: list[Turn | HttpAnswer]) -> Iterator[LoopbackServer]:
    """Serve on an event loop of another thread, so that it outlives the loops of the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = LoopbackServer(script)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def binding(url: str, **more: object) -> Binding:
    return Binding("openai:m", base_url=url, api_key="k", price="1/1", **more)  # type: ignore[arg-type]


def test_b88_one_runtime_over_successive_loops() -> None:
    """A runtime and bindings kept in a module work in asyncio.run again and again, and leave no socket behind."""
    with elsewhere([OK]) as server:
        calls = CallRuntime()
        one, other = binding(server.url), Binding("openai:n", base_url=server.url, api_key="k2", price="1/1")

        async def both() -> list[str]:
            return [(await calls.ask(each, "hi")).value for each in (one, other)]

        assert asyncio.run(both()) == [OK.text] * 2
        gc.collect()
        before = descriptors()
        for _ in range(5):
            assert asyncio.run(both()) == [OK.text] * 2
        gc.collect()
        assert descriptors() <= before
        asyncio.run(calls.aclose())


def test_b88_one_runtime_over_loops_at_once() -> None:
    """Loops of several threads share a runtime, each with connections of its own; closing it closes them all."""
    with elsewhere([OK]) as server, ThreadPoolExecutor(4) as threads:
        calls = CallRuntime()
        one = binding(server.url)
        meet = threading.Barrier(4)

        async def several(place: int) -> list[str]:
            async with asyncio.timeout(30):
                said = [(await calls.ask(one, "hi")).value for _ in range(5)]
                await asyncio.to_thread(meet.wait, 20)
                if place == 0:
                    await calls.aclose()
                await asyncio.to_thread(meet.wait, 20)
            return said

        runs = [threads.submit(lambda place=place: asyncio.run(several(place))) for place in range(4)]
        assert [run.result(60) for run in runs] == [[OK.text] * 5] * 4
        gc.collect()


@pytest.mark.parametrize("kind", ["httpx", "openai"])
def test_b88_a_client_of_another_loop_is_said(kind: str) -> None:
    """A client handed in belongs to its first loop, also for another runtime; the error tells the way out."""
    with elsewhere([OK]) as server:
        made = httpx.AsyncClient() if kind == "httpx" else openai.AsyncOpenAI(api_key="k", base_url=server.url)
        one = Binding("openai:m", base_url=server.url, client=made, price="1/1")

        async def once() -> str:
            async with CallRuntime() as calls:
                return (await calls.ask(one, "hi")).value

        async def first() -> str:
            said = await once()
            close = made.aclose if isinstance(made, httpx.AsyncClient) else made.close
            await close()
            return said

        assert asyncio.run(first()) == OK.text
        with pytest.raises(ConfigurationError, match="event loop"):
            asyncio.run(once())


async def test_bindings_share_connections() -> None:
    """Bindings with other keys and limits go to one server over one pool of connections."""
    async with LoopbackServer([OK]) as server, CallRuntime() as calls:
        for place in range(5):
            key = f"key-{place}"
            one = Binding("openai:m", base_url=server.url, api_key=key, price="1/1", timeouts=Timeouts(idle=10 + place))
            await calls.ask(one, "hi")
            assert server.requests[-1].headers["authorization"] == f"Bearer {key}"
        assert server.connections == 1


@pytest.mark.parametrize("phase", ["connecting", "shaking hands", "headers", "chunks", "waiting for a connection"])
async def test_a_runtime_closed_under_way(phase: str) -> None:
    """Closing ends every call in flight with an error that says so; none is tried again, and nothing stays open."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    with unreachable() as nobody:
        async with ByteServer(silent) as server, LoopbackServer([STALL]) as stalling:
            url = {
                "connecting": f"{nobody}/v1",
                "shaking hands": server.url.replace("http:", "https:"),
                "headers": server.url,
                "chunks": stalling.url,
                "waiting for a connection": server.url,
            }[phase]
            before = descriptors()
            if phase == "waiting for a connection":
                pool = SessionPool(1)
                transport = AiohttpTransport(url, sessions=pool)
                asking = [asyncio.ensure_future(transport.post("/x", {}, b"{}")) for _ in range(2)]
                close = pool.aclose
            else:
                calls = CallRuntime(
                    retry=RetryPolicy(max_attempts=3, base_delay=0, max_delay=0), timeouts=Timeouts(connect=None)
                )
                await calls.__aenter__()
                asking = [asyncio.ensure_future(calls.ask(binding(url), "hi"))]
                close = calls.aclose
            if phase == "chunks":
                await asyncio.wait_for(stalling.until_busy(1), 20)
            elif phase != "connecting":
                await asyncio.wait_for(server.until(opened=1), 20)
            for _ in range(20):
                await asyncio.sleep(0)
            await asyncio.wait_for(close(), 20)
            ends = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 20)
            for end in ends:
                assert isinstance(end, StreamBroken), end
                assert "closed while" in end.message
                assert not end.retryable
            if server.opened:
                await asyncio.wait_for(server.until(over=1), 20)
            assert server.opened + stalling.connections <= 1
        gc.collect()
        assert descriptors() <= before


async def test_a_closed_pool_stays_closed() -> None:
    """A transport whose connections were closed sends nothing any more, and says so."""
    async with LoopbackServer([OK]) as server:
        transport = AiohttpTransport(server.url)
        await transport.aclose()
        with pytest.raises(ConfigurationError, match="closed"):
            await transport.post("/chat/completions", {}, b"{}")
        assert not server.requests


async def test_many_cancelled_runs_leave_no_socket() -> None:
    """After a hundred streams cut in the middle there are no more descriptors than before."""
    async with LoopbackServer([STALL]) as server, CallRuntime() as calls:
        one = binding(server.url)

        async def batch() -> None:
            running = [asyncio.ensure_future(calls.ask(one, "hi")) for _ in range(20)]
            await asyncio.wait_for(server.until_busy(20), 20)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.wait_for(server.until_busy(0), 20)

        await batch()
        before = descriptors()
        for _ in range(4):
            await batch()
        assert descriptors() <= before + 2


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("kind", ["default", "httpx"])
async def test_a_body_nobody_reads_keeps_no_socket(kind: str, answered: bool) -> None:
    """A request cut while its body is stuck is gone at once, and does not wait for the server to read the rest."""
    later = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        if answered:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst")
        await later.wait()

    async with ByteServer(talk) as server:
        client = httpx.AsyncClient() if kind == "httpx" else None
        transport = transport_for(client, server.url, server.url)
        gc.collect()
        before = descriptors()
        posting = asyncio.ensure_future(transport.post("/x", {}, b"x" * (1 << 25)))
        await asyncio.wait_for(server.until(opened=1), 20)
        if answered and kind == "default":
            response = await asyncio.wait_for(posting, 20)
            assert await response.chunk() == b"first"
            await response.aclose()
        else:
            for _ in range(50):
                await asyncio.sleep(0)
            posting.cancel()
            await asyncio.wait([posting])
        for _ in range(5):
            await asyncio.sleep(0)
        assert descriptors() <= before + 1  # the server's
        later.set()
        await transport.aclose()
        if client is not None:
            await client.aclose()


@pytest.mark.parametrize("kind", ["default", "httpx"])
async def test_a_connection_closed_unnoticed_is_not_used(kind: str) -> None:
    """A kept connection that the server closed while the loop was busy is seen before a request is lost on it."""
    gone = threading.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone")
        await writer.drain()
        await asyncio.to_thread(read.wait, 20)
        writer.close()
        await writer.wait_closed()
        gone.set()

    read = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ByteServer(talk)
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.__aenter__(), loop))
    client = httpx.AsyncClient() if kind == "httpx" else None
    transport = transport_for(client, server.url, server.url)
    for _ in range(2):
        async with aclosing(await transport.post("/x", {}, b"{}")) as response:
            assert await response.read() == b"done"
        read.set()
        assert gone.wait(20)  # this loop stands still meanwhile
    assert server.opened == 2
    await transport.aclose()
    if client is not None:
        await client.aclose()
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.__aexit__(), loop))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
