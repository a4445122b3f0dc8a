"""Models over HTTP: clients, keys, event loops, silence, cloud variants and connections, on loopback."""

from __future__ import annotations

import asyncio
import base64
import binascii
import gc
import struct
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager

import anthropic
import httpx
import openai
import pytest

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ModelSettings,
    Route,
    Timeouts,
    UserMessage,
)
from agentkit.errors import BadRequest, ConfigurationError, ProviderError, RateLimited, StreamBroken
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile
from agentkit.providers.transports.framing import EVENT_STREAM, unframed
from agentkit.providers.transports.session import SessionPool
from agentkit.testing.context import make_context
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer, Received
from agentkit.testing.turns import Turn, write_turn

OK = Turn(text="It is forty two.")
SSE = {"content-type": "text/event-stream"}


def asking(model: HttpModel, text: str = "hi", name: str = "m") -> Call[ChatRequest]:
    request = ChatRequest((UserMessage(text),), settings=ModelSettings(max_tokens=50))
    return Call(make_context(model), request, "c1", Route(model, name, "openai"))


async def answer(model: HttpModel, text: str = "hi", name: str = "m") -> ChatResponse:
    async with aclosing(model.stream(asking(model, text, name))) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, ChatEnd)
    return last.response


@contextmanager
def server_elsewhere(script: Sequence[Given]) -> Iterator[LoopbackServer]:
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


def test_one_model_over_successive_loops() -> None:
    """A model used in asyncio.run again and again works each time, and leaves nothing unclosed behind."""
    with server_elsewhere([OK]) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")

        async def twice() -> list[str]:
            return [(await answer(model)).message.content for _ in range(2)]

        assert [asyncio.run(twice()) for _ in range(3)] == [[OK.text] * 2] * 3
        assert server.connections == 3
    gc.collect()


def test_one_model_over_two_loops_at_once() -> None:
    """Each running loop has connections of its own; closing from one closes those of both."""
    with server_elsewhere([OK]) as server, ThreadPoolExecutor(2) as pool:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        meet = threading.Barrier(2)

        async def once(closes: bool) -> str:
            said = (await answer(model)).message.content
            await asyncio.to_thread(meet.wait, 10)
            if closes:
                await model.aclose()
            await asyncio.to_thread(meet.wait, 10)
            return said

        runs = [pool.submit(lambda closes=closes: asyncio.run(once(closes))) for closes in (True, False)]
        assert [run.result(20) for run in runs] == [OK.text] * 2
    gc.collect()


def test_a_given_client_stays_on_its_loop() -> None:
    """A client handed in is refused on a second event loop with the way out, where it would fail obscurely."""
    client = httpx.AsyncClient()
    models: list[HttpModel] = []

    async def once() -> None:
        async with LoopbackServer([OK]) as server:
            if not models:
                models.append(build_model(find_profile("openai"), base_url=server.url, client=client))
            await answer(models[0])
            await client.aclose()

    asyncio.run(once())
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(once())


async def test_silence_is_a_broken_stream() -> None:
    """B29: a server that stops talking ends in a retryable error after the idle limit, which bytes push back."""

    def silent(received: Received) -> HttpAnswer:
        return HttpAnswer(headers=SSE, pieces=write_turn(OK, "chat")[:3], then="hang")

    async with LoopbackServer(silent) as server:
        limits = Timeouts(idle=0.05)
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k", timeouts=limits)
        with pytest.raises(StreamBroken, match="silent") as raised:
            await answer(model)
        await asyncio.wait_for(server.until_busy(0), 10)
        await model.aclose()
    assert (raised.value.retryable, raised.value.accepted) == (True, True)


async def test_cancelled_streams_never_use_up_the_pool() -> None:
    """B86: after 100 calls cancelled mid-stream over 5 connections a call still gets one."""

    def hangs(received: Received) -> HttpAnswer | Turn:
        if received.body["messages"][-1]["content"] == "last":  # type: ignore[index,call-overload]
            return OK
        return HttpAnswer(headers=SSE, pieces=write_turn(OK, "chat")[:3], then="hang")

    async with LoopbackServer(hangs) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k", sessions=SessionPool(5))
        for _ in range(20):
            running = [asyncio.ensure_future(answer(model)) for _ in range(5)]
            await asyncio.wait_for(server.until_busy(5), 10)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await asyncio.wait_for(server.until_busy(0), 10)
        assert (await asyncio.wait_for(answer(model, "last"), 10)).message.content == OK.text
        await model.aclose()


async def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """B118: no key is said before anything is sent, and a vendor's key never goes to another server."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        build_model(find_profile("openai"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor-key-0123456789")
    async with LoopbackServer([OK]) as server:
        model = build_model(find_profile("openai"), base_url=server.url)
        await answer(model)
        await model.aclose()
        assert "authorization" not in server.requests[0].headers
    assert "sk-vendor" not in repr(build_model(find_profile("openai")))


@pytest.mark.parametrize("key", ["", " ", "ab c", "schlüssel"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    """An empty or impossible key is an error at once, without the key in it."""
    with pytest.raises(ConfigurationError, match="api_key") as raised:
        build_model(find_profile("openai"), api_key=key)
    assert not key.strip() or key not in str(raised.value)


@pytest.mark.parametrize("client", [object(), httpx.Client, "http://x"])
def test_an_unknown_client_is_named(client: object) -> None:
    """An object that is no async client is refused by its type, with those that are taken."""
    with pytest.raises(ConfigurationError, match="AsyncClient"):
        build_model(find_profile("openai"), api_key="k", client=client)


async def test_a_client_of_the_other_protocol_is_refused() -> None:
    """An anthropic client does not serve an openai binding."""
    async with anthropic.AsyncAnthropic(api_key="k") as client:
        with pytest.raises(ConfigurationError, match="protocol"):
            build_model(find_profile("openai"), client=client)


async def test_an_sdk_retries_nothing_and_keeps_its_own_auth() -> None:
    """B73: one request a call however often the client would retry; the client's key and headers are used."""
    async with LoopbackServer([HttpAnswer(status=429, headers={"retry-after-ms": "1500"}, pieces=(b"{}",))]) as server:
        async with openai.AsyncOpenAI(
            api_key="sdk-key", base_url=server.url, max_retries=5, default_headers={"x-team": "a"}
        ) as client:
            with pytest.raises(RateLimited) as raised:
                await answer(build_model(find_profile("openai"), client=client))
        assert len(server.requests) == 1
        assert server.requests[0].headers["authorization"] == "Bearer sdk-key"
        assert server.requests[0].headers["x-team"] == "a"
    assert raised.value.retry_after == 1.5


async def test_azure_addresses_its_deployment() -> None:
    """An Azure client builds the deployment's path from the body, and its own header carries the key."""
    async with LoopbackServer([OK]) as server:
        client = openai.AsyncAzureOpenAI(azure_endpoint=server.origin, api_key="azure-key", api_version="2026-01-01")
        model = build_model(find_profile("openai"), client=client)
        assert (await answer(model, name="my-deployment")).message.content == OK.text
        await client.close()
    sent = server.requests[0]
    assert sent.path == "/openai/deployments/my-deployment/chat/completions?api-version=2026-01-01"
    assert sent.headers["api-key"] == "azure-key"
    assert sent.body["max_completion_tokens"] == 50


def frame(payload: bytes, **headers: str) -> bytes:
    """Return one message of Amazon's event stream."""
    block = b""
    for name, value in headers.items():
        key = b":" + name.replace("_", "-").encode()
        block += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + block + payload
    return message + struct.pack(">I", binascii.crc32(message))


def event_frame(event: bytes) -> bytes:
    inner = b'{"bytes":"' + base64.b64encode(event) + b'"}'
    return frame(inner, message_type="event", event_type="chunk", content_type="application/json")


def framed(turn: Turn) -> list[bytes]:
    """Return the turn as Bedrock frames it."""
    events = [piece.partition(b"data: ")[2].strip() for piece in write_turn(turn, "messages")]
    return [event_frame(event) for event in events if b'"ping"' not in event]


async def test_bedrock_streams_binary_frames() -> None:
    """A Bedrock client addresses the model in the path, and its framed stream is the same turn."""
    async with LoopbackServer([HttpAnswer(headers={"content-type": EVENT_STREAM}, pieces=tuple(framed(OK)))]) as server:
        client = anthropic.AsyncAnthropicBedrock(api_key="aws-key", aws_region="eu-west-1", base_url=server.origin)
        model = build_model(find_profile("anthropic"), client=client)
        response = await answer(model, name="anthropic.claude-x")
        await client.close()
    assert (response.message.content, response.usage) == (OK.text, OK.usage)
    assert server.requests[0].path == "/model/anthropic.claude-x/invoke-with-response-stream"
    assert "anthropic_version" in server.requests[0].body


async def unframe(*chunks: bytes) -> list[bytes]:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [event async for event in unframed(body())]


async def test_frames_are_cut_anywhere() -> None:
    """Byte by byte the frames give the same events as in one piece."""
    stream = b"".join(framed(OK))
    whole = await unframe(stream)
    assert whole == await unframe(*(stream[place : place + 1] for place in range(len(stream))))
    assert whole[-1] == b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"".join(framed(OK))[:-3], id="ends inside a frame"),
        pytest.param(framed(OK)[0][:-1] + b"\x00", id="wrong checksum"),
        pytest.param(b"HTTP says something else", id="no frames"),
        pytest.param(frame(b"not json", message_type="event"), id="no event"),
    ],
)
async def test_damaged_frames_are_a_broken_stream(damaged: bytes) -> None:
    """A frame that is torn, wrong or none raises StreamBroken, never a short answer."""
    with pytest.raises(StreamBroken):
        await unframe(damaged)


async def test_an_exception_frame_is_its_error() -> None:
    """A throttling exception inside the stream becomes the rate limit it is."""
    limited = frame(b'{"message":"slow down"}', message_type="exception", exception_type="throttlingException")
    async with LoopbackServer(
        [HttpAnswer(headers={"content-type": EVENT_STREAM}, pieces=(framed(OK)[0], limited))]
    ) as server:
        client = anthropic.AsyncAnthropicBedrock(api_key="aws-key", aws_region="eu-west-1", base_url=server.origin)
        with pytest.raises(RateLimited, match="slow down"):
            await answer(build_model(find_profile("anthropic"), client=client))
        await client.close()


async def test_large_bodies_and_answers() -> None:
    """A conversation of 3 MB goes out whole and 2 MB of text come back."""
    turn = Turn(text="y" * 2_000_000, size=400_000)
    async with LoopbackServer([turn]) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        response = await answer(model, "x" * 3_000_000)
        await model.aclose()
    assert len(response.message.content) == 2_000_000
    assert len(server.requests[0].body["messages"][0]["content"]) == 3_000_000  # type: ignore[index,call-overload,arg-type]


async def test_a_redirect_is_not_followed() -> None:
    """A key never follows a redirect; the error says what to do."""
    async with LoopbackServer([HttpAnswer(status=307, headers={"location": "http://127.0.0.1:9/"})]) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        with pytest.raises(BadRequest, match="base_url"):
            await answer(model)
        await model.aclose()


@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/event-stream"])
async def test_a_page_instead_of_an_answer(kind: str) -> None:
    """HTML with status 200, from a proxy say, is an error of the tree and never an empty answer."""
    async with LoopbackServer([HttpAnswer(headers={"content-type": kind}, pieces=(b"<html>login</html>",))]) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        with pytest.raises(ProviderError):
            await answer(model)
        await model.aclose()


async def test_closing_while_another_task_reads() -> None:
    """Closing the model ends a stream another task reads with an error of the tree, and waits for nobody."""

    def hangs(received: Received) -> HttpAnswer:
        return HttpAnswer(headers=SSE, pieces=write_turn(OK, "chat")[:3], then="hang")

    async with LoopbackServer(hangs) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        first = asyncio.Event()

        async def reads() -> None:
            async with aclosing(model.stream(asking(model))) as events:
                async for _ in events:
                    first.set()

        reading = asyncio.ensure_future(reads())
        await first.wait()
        await asyncio.create_task(model.aclose())
        with pytest.raises(StreamBroken):
            await asyncio.wait_for(reading, 10)
        await asyncio.wait_for(server.until_busy(0), 10)


async def test_an_abandoned_stream_lets_go() -> None:
    """A stream dropped without closing releases its connection when it is collected."""

    def hangs(received: Received) -> HttpAnswer:
        return HttpAnswer(headers=SSE, pieces=write_turn(OK, "chat")[:6], then="hang")

    async with LoopbackServer(hangs) as server:
        model = build_model(find_profile("openai"), base_url=server.url, api_key="k")
        events: AsyncGenerator[ChatEvent, None] | None = model.stream(asking(model))
        await anext(events)
        events = None
        gc.collect()
        await asyncio.wait_for(server.until_busy(0), 10)
        await model.aclose()
