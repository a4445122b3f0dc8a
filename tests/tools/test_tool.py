"""Functions as tools: what is refused at decoration, how they run, what becomes of their errors."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time

import pytest

from agentkit import Agent, Binding
from agentkit.core.contracts import Call, CallKey, ImagePart, ToolCall, ToolPort, ToolRequest, ToolResult
from agentkit.core.runtime import RunContext
from agentkit.errors import (
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    EffectUnknown,
    MeterExceeded,
    ProviderError,
    ToolError,
)
from agentkit.testing import ManualClock, make_context
from agentkit.tools import Tool, Toolbox, tool
from agentkit.tools.thread import WORKER_THREADS


async def invoked(made, arguments="{}", ctx=None):
    """Bind and invoke a tool as the chain does."""
    ctx = ctx or make_context()
    request = ToolRequest(made, ToolCall("c1", made.name, arguments), CallKey("r", "", 1, 0))
    return await made.invoke(made.bind(arguments), Call(ctx, request, "call-1"))


@tool
async def weather(city: str, days: int = 1) -> str:
    """Current weather in a city.

    Longer words that the model reads too.
    """
    return f"{city}: sun for {days}"


async def test_a_bare_decorator_makes_a_tool_that_stays_a_function():
    """The docstring is the description, the name is the function's, and calling it calls the plain function."""
    port: ToolPort = weather
    assert port.spec.name == "weather" and port.effect == "unknown" and port.resumable is False
    assert port.spec.description == "Current weather in a city.\n\nLonger words that the model reads too."
    assert port.spec.parameters["required"] == ["city"] and port.spec is weather.spec
    assert await weather("Paris", days=2) == "Paris: sun for 2"
    assert await invoked(weather, '{"city": "Oslo"}') == ToolResult("Oslo: sun for 1")


def test_every_option_reaches_the_tool():
    """Name, description, effect and the rest are what a run sees."""

    @tool(
        name="get-it", description="  Fetch it. ", effect="read", idempotent=True, requires_approval=True, timeout=2.5
    )
    def fetch(x: int) -> int:
        return x

    assert (fetch.name, fetch.description, fetch.spec.name) == ("get-it", "Fetch it.", "get-it")
    assert (fetch.effect, fetch.idempotent, fetch.requires_approval, fetch.timeout) == ("read", True, True, 2.5)
    assert fetch(3) == 3


def test_a_tool_cannot_be_changed():
    """What a run decided on stays so; another tool is made instead."""
    with pytest.raises(AttributeError, match="make another one"):
        weather.effect = "read"
    assert weather.effect == "unknown"


def plain(x: int) -> int:
    """Do it."""
    return x


def silent(x: int) -> int:
    return x


async def yields(x: int):
    """Do it."""
    yield x


def also_yields(x: int):
    """Do it."""
    yield x


class Silent:
    def __call__(self, x: int) -> int:
        return x


MISTAKES = [
    (plain, {"name": "my tool.v2"}, "pass name='my_tool_v2'"),
    (plain, {"name": "x" * 65}, "pass name='x{64}'"),
    (plain, {"name": ""}, "pass name='tool'"),
    (plain, {"name": "größe"}, "pass name='gr_e'"),
    (plain, {"effect": "harmless"}, "effect='harmless'; pass one of read, write, execute, external, unknown"),
    (plain, {"timeout": 0}, "timeout=0; pass seconds above 0"),
    (plain, {"timeout": float("nan")}, "timeout=nan"),
    (plain, {"max_result_chars": 0}, "max_result_chars=0; pass 1 or more"),
    (silent, {}, "'silent' has no description; write a docstring"),
    (Silent(), {}, "'Silent' has no description"),
    (functools.partial(silent, 1), {}, "'silent' has no description"),
    (yields, {}, "'yields' is a generator; return the whole result"),
    (also_yields, {}, "'also_yields' is a generator"),
    (lambda x: x, {"description": "d"}, "no annotation"),
    ("plain", {}, "is no function"),
]


@pytest.mark.parametrize(("function", "options", "reason"), MISTAKES, ids=lambda given: str(given)[:30])
def test_mistakes_are_told_at_decoration(function, options, reason):
    """ConfigurationError says what to write instead."""
    with pytest.raises(ConfigurationError, match=reason):
        Tool(function, **options)


async def test_the_context_is_injected():
    """A parameter annotated RunContext gets the call's own context."""

    @tool
    def who(ctx: RunContext, greeting: str) -> str:
        """Say who asks."""
        return f"{greeting} {ctx.scope.tenant}"

    assert (await invoked(who, '{"greeting": "hi"}')).content == "hi test"


async def test_methods_partials_and_objects():
    """Tools are made of whatever has a signature and a docstring."""

    class Store:
        def __init__(self) -> None:
            self.rows = {"a": 1}

        async def read(self, key: str) -> int:
            """Read a row."""
            return self.rows[key]

        async def __call__(self, key: str) -> int:
            """Read a row, too."""
            return self.rows[key]

    assert (await invoked(tool(Store().read), '{"key": "a"}')).content == "1"
    assert (await invoked(tool(Store()), '{"key": "a"}')).content == "1"
    assert (await invoked(tool(functools.partial(plain, 4)), "")).content == "4"
    assert tool(functools.partial(plain, 4)).description == "Do it."


@pytest.mark.parametrize(
    "error", [MeterExceeded("m"), DeadlineExceeded("d"), Cancelled("c"), EffectUnknown("e"), ConfigurationError("w")]
)
@pytest.mark.parametrize("grouped", [False, True])
async def test_what_ends_a_run_passes(error, grouped):
    """A ceiling, the deadline, a tripped token: raised as they are, also out of a tool's own task group."""

    async def fail() -> None:
        raise error

    @tool
    async def nested() -> None:
        """Call a model."""
        if not grouped:
            await fail()
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(type(error)) as raised:
        await invoked(nested)
    assert raised.value is error


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("broken pipe"), "ValueError: broken pipe"),
        (KeyError("x"), "KeyError: 'x'"),
        (OSError(), "OSError"),
        (StopIteration(3), "StopIteration|RuntimeError"),
        (SystemExit(2), "SystemExit: 2"),
        (ProviderError("nested call failed"), "ProviderError: nested call failed"),
        (Rude(), "Rude: its message cannot be read"),
        (ValueError("x\x00\udce9"), "ValueError: x\ufffd\ufffd"),
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_tool_raises_is_told(error, told, is_async):
    """Type and message reach the model as a ToolError; nothing of it ends the process or the loop."""

    def fails() -> None:
        """Fail."""
        raise error

    async def fails_later() -> None:
        """Fail."""
        raise error

    with pytest.raises(ToolError, match=told) as raised:
        await invoked(tool(fails_later if is_async else fails))
    assert raised.value.tool in ("fails", "fails_later") and raised.value.__cause__ is not None


async def test_a_tool_error_of_the_tool_keeps_its_hint():
    """A tool that raises ToolError speaks to the model itself."""

    @tool
    def pick() -> None:
        """Pick."""
        raise ToolError("No such row.", hint="Call list_rows first.")

    with pytest.raises(ToolError) as raised:
        await invoked(pick)
    assert (raised.value.message, raised.value.hint) == ("No such row.", "Call list_rows first.")


async def test_a_cancellation_inside_is_an_error_of_the_tool():
    """A task that the tool itself cancelled fails that call; a cancelled run cancels the tool."""
    begun = asyncio.Event()

    @tool
    async def own() -> None:
        """Cancel something."""
        task = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    @tool
    async def waits() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    with pytest.raises(ToolError, match="CancelledError"):
        await invoked(own)
    task = asyncio.create_task(invoked(waits))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")


async def test_synchronous_tools_run_side_by_side_beside_the_loop():
    """Two that wait for each other both finish, the loop goes on, and both see the caller's context variables."""
    meet = threading.Barrier(3, timeout=10)

    @tool
    def slow() -> str:
        """Wait for the others."""
        meet.wait()
        return f"{tenant.get()} {threading.current_thread() is threading.main_thread()}"

    tenant.set("acme")
    calls = [asyncio.create_task(invoked(slow)) for _ in range(2)]
    await asyncio.to_thread(meet.wait)
    assert [(await call).content for call in calls] == ["acme False", "acme False"]


async def test_a_cancelled_run_does_not_wait_for_its_thread_which_still_counts():
    """Stuck threads keep their places until they end: the next call waits, and runs once one has ended."""
    release, started = threading.Event(), threading.Semaphore(0)
    ran = []

    @tool
    def stuck() -> None:
        """Hang."""
        started.release()
        release.wait(30)

    @tool
    def quick() -> str:
        """Answer."""
        ran.append(1)
        return "done"

    stuck_calls = [asyncio.create_task(invoked(stuck)) for _ in range(WORKER_THREADS)]
    try:
        for _ in range(WORKER_THREADS):
            await asyncio.to_thread(started.acquire, timeout=10)
        began = time.monotonic()
        for call in stuck_calls:
            call.cancel()
        await asyncio.wait(stuck_calls)
        assert all(call.cancelled() for call in stuck_calls) and time.monotonic() - began < 5
        waiting = asyncio.create_task(invoked(quick))
        abandoned = asyncio.create_task(invoked(quick))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not ran and not waiting.done()
        abandoned.cancel()
        await asyncio.wait([abandoned])
    finally:
        release.set()
    assert (await asyncio.wait_for(waiting, 10)).content == "done" and ran == [1]
    assert [(await invoked(quick)).content for _ in range(3)] == ["done"] * 3


async def test_work_cancelled_before_it_began_gives_its_place_back():
    """However many calls are cancelled at once, afterwards as many threads run as before."""

    @tool
    def quick() -> str:
        """Answer."""
        return "done"

    for _ in range(3):
        calls = [asyncio.create_task(invoked(quick)) for _ in range(WORKER_THREADS * 2)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    meet = threading.Barrier(WORKER_THREADS, timeout=20)

    @tool
    def together() -> None:
        """Wait until every thread runs."""
        meet.wait()

    await asyncio.gather(*(invoked(together) for _ in range(WORKER_THREADS)))


def test_a_tool_works_on_several_loops():
    """Nothing of one event loop is left in a tool for the next."""

    @tool
    def quick() -> str:
        """Answer."""
        return "done"

    assert [asyncio.run(invoked(quick)).content for _ in range(2)] == ["done", "done"]


async def test_results_are_rendered_and_bounded():
    """What is returned is rendered, capped by max_result_chars."""

    @tool(max_result_chars=10)
    def long() -> str:
        """Talk."""
        return "0123456789" * 3

    @tool
    async def paints() -> bytes:
        """Paint."""
        return b"\x89PNG\r\n\x1a\n123"

    assert (await invoked(long)).content == "012345\n[... 20 characters left out ...]\n6789"
    assert (await invoked(paints)).content == (ImagePart(data=b"\x89PNG\r\n\x1a\n123", media_type="image/png"),)


async def test_a_deadline_reaches_into_a_waiting_tool():
    """The run's deadline ends a tool that waits, as the run's own error."""
    clock = ManualClock()
    ctx = make_context(clock=clock, deadline=5)

    @tool
    async def waits() -> None:
        """Wait."""
        await asyncio.Event().wait()

    request = ToolRequest(waits, ToolCall("c1", "waits"), CallKey("r", "", 1, 0))
    task = asyncio.create_task(ctx.invoker.invoke_tool(request, ctx))
    await clock.run_for(6)
    with pytest.raises(DeadlineExceeded):
        await task


def test_tools_are_wrapped_found_and_ordered():
    """Plain functions become tools; specs keep the given order and are made once."""
    box = Toolbox([weather, plain])
    assert [spec.name for spec in box.specs] == ["weather", "plain"] and len(box) == 2
    assert box.specs is box.specs and box.get("weather") is weather and box.get("nope") is None
    assert Toolbox().specs == () and Toolbox(iter([plain])).get("plain").function is plain


def test_an_unknown_name_is_answered_with_the_nearest_first():
    """The model reads which tools there are, the likely one first."""
    names = ["read_file", "list_rows", "write_file"]
    box = Toolbox([Tool(plain, name=name) for name in names])
    told = box.unknown("writefile")
    assert told == "There is no tool 'writefile'. Available: write_file, read_file, list_rows."
    assert box.unknown("zzz") == "There is no tool 'zzz'. Available: read_file, list_rows, write_file."
    assert Toolbox().unknown("x") == "There is no tool 'x', and no other one: answer without tools."


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        (
            [weather, Tool(plain, name="weather")],
            "Two tools are named 'weather': tool\\('weather'.*and tool\\('weather'",
        ),
        ([plain, 3], r"tools\[1\] is 3"),
        ([dict], r"tools\[0\] is <class 'dict'>"),
        ("weather", "pass a list"),
        (weather, "pass a list"),
        ({"a": plain}, "pass a list"),
        ([silent], "'silent' has no description"),
    ],
    ids=str,
)
def test_wrong_toolboxes_are_refused(tools, reason):
    """Two tools of one name and what is no tool are ConfigurationErrors that name them."""
    with pytest.raises(ConfigurationError, match=reason):
        Toolbox(tools)


def test_an_agent_refuses_two_tools_of_one_name():
    """The agent's own constructor says so, before anything runs."""
    with pytest.raises(ConfigurationError, match="Two tools are named 'plain'"):
        Agent("a", Binding("scripted:"), tools=[plain, Tool(plain)])
