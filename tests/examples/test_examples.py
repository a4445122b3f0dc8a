"""The examples do what they say."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import ClientSession, web

from agentkit import Binding, Usage
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def load(name: str) -> ModuleType:
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_chat_keeps_the_conversation() -> None:
    """Three turns leave the instructions, three questions and three answers."""
    assert await load("chat").main() == 7


async def test_endpoint_streams_an_answer() -> None:
    """A client that stays gets the whole answer."""
    assert await load("streaming_endpoint").main() == "One piece after another."


async def test_endpoint_stops_paying_when_the_client_leaves() -> None:
    """A client that disconnects mid-stream ends the model's stream."""
    example = load("streaming_endpoint")
    started, closed = asyncio.Event(), asyncio.Event()

    class Endless:
        provider, name, free = "endless", "endless", True

        async def stream(self, call):
            from agentkit.core.contracts import ChatStart, TextDelta

            try:
                yield ChatStart("endless", "endless")
                while True:
                    yield TextDelta("word " * 200)
                    started.set()
                    await asyncio.sleep(0)
            finally:
                closed.set()

    runner = web.AppRunner(example.make_app(Binding(Endless())), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/answer?q=Go"
    try:
        async with ClientSession() as client:
            response = await client.get(url)
            await response.content.readany()
            await started.wait()
            response.close()
            await asyncio.wait_for(closed.wait(), 10)
    finally:
        await runner.cleanup()
    assert closed.is_set()


async def test_database_tool_sees_its_tenant_only() -> None:
    """The tool uses the app's handle and answers with this tenant's rows."""
    assert await load("database_tool").main() == '["an engine","a loom"]'


async def test_agents_nested_by_hand_complete() -> None:
    """Three levels of fan-out over two slots a level complete, and every call is counted."""
    answers, calls = await asyncio.wait_for(load("nested_by_hand").main(), 30)
    assert answers == calls == 13


def test_script_needs_no_await() -> None:
    """run_sync answers outside of a loop."""
    assert load("in_a_script").main() == "A semaphore counts permits."


@pytest.mark.filterwarnings("default::DeprecationWarning")
async def test_official_clients_answer() -> None:
    """Both official clients reach a loopback server and answer through our streams."""
    hello = Turn(text="Hello from the server.", usage=Usage(12, 5))
    async with LoopbackServer([hello, hello]) as server:
        texts = await load("official_clients").main(f"{server.url}/v1", server.url)
    assert texts == ["Hello from the server."] * 2


async def test_the_ledgers_report_is_the_servers_bill() -> None:
    """Fifty agents of five tenants on a failing server: the example compares both bills itself, to the last decimal."""
    attempts, calls = await load("ledger_report").main()
    assert calls == 100
    assert attempts > calls
