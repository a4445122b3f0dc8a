"""Functions as tools: what is checked when they are made, and what happens when a run calls them."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from dataclasses import dataclass

import pytest

from agentkit import RunContext, tool
from agentkit.core.contracts import Call, CallKey, ToolCall, ToolRequest
from agentkit.errors import (
    AgentkitError,
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    EffectUnknown,
    MeterExceeded,
    ToolError,
)
from agentkit.testing import make_context
from agentkit.tools import Tool
from agentkit.tools.thread import WORKER_THREADS

PATIENCE = 30  # seconds until a test that would hang fails instead
TENANT = contextvars.ContextVar("tenant", default="nobody")


async def invoke(made: Tool, arguments: str = "{}", ctx: RunContext | None = None) -> str:
    """Call a tool the way a run does, from the model's text, and return the text of its result."""
    request = ToolRequest(made, ToolCall("c1", made.name, arguments), CallKey("run", "", 1, 0))
    result = await made.invoke(made.bind(arguments), Call(ctx or make_context(), request, "call-1"))
    return result.content


def test_bare_and_with_options() -> None:
    """Bare, a function is the most dangerous kind of tool; options say what it is and are all kept."""

    @tool
    def plain(city: str) -> str:
        """Say the weather.

        In a city.
        """
        return f"sunny in {city}"

    @tool(
        name="send-mail",
        description=" Send a mail. ",
        effect="external",
        idempotent=True,
        requires_approval=True,
        timeout=2.5,
        max_result_chars=10,
    )
    async def send(to: str) -> str:
        return to

    assert plain("Oslo") == "sunny in Oslo"
    assert (plain.name, plain.effect, plain.idempotent, plain.requires_approval) == ("plain", "unknown", False, False)
    assert plain.description == "Say the weather.\n\nIn a city."
    assert (plain.timeout, plain.is_async, plain.resumable) == (None, False, False)
    assert (send.name, send.description, send.effect) == ("send-mail", "Send a mail.", "external")
    assert (send.idempotent, send.requires_approval, send.timeout, send.is_async) == (True, True, 2.5, True)
    assert send.spec.name == "send-mail"
    assert send.spec.parameters["required"] == ["to"]
    assert send.spec is send.spec


def test_methods_partials_and_callable_objects() -> None:
    """What has a function inside can be a tool; self and what a partial fixed are not asked of the model."""

    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        def sell(self, item: str) -> str:
            """Sell an item."""
            return f"{self.name} sells {item}"

        def __call__(self, item: str) -> str:
            """Say whether an item is there."""
            return f"{self.name} has {item}"

    def pay(amount: int, currency: str) -> str:
        """Pay."""
        return f"{amount} {currency}"

    sell, has, euros = tool(Shop("Ada").sell), tool(Shop("Bob")), tool(functools.partial(pay, currency="EUR"))
    assert [asyncio.run(invoke(made, '{"item": "tea"}')) for made in (sell, has)] == ["Ada sells tea", "Bob has tea"]
    assert list(sell.spec.parameters["properties"]) == ["item"]
    assert has.name == "Shop"
    assert euros.name == "pay"
    assert asyncio.run(invoke(euros, '{"amount": 5}')) == "5 EUR"


def bare() -> None:
    """Do nothing."""


def generated():
    """Yield."""
    yield 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "writes"}, "'writes'; pass one of read, write"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": -1.0}, "timeout=-1.0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"max_result_chars": 0}, "max_result_chars=0"),
        ({"name": "send mail!"}, "name='send_mail'"),
        ({"name": ""}, "name='tool'"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": "a.b"}, "name='a_b'"),
        ({"name": "d\u00e9j\u00e0"}, "name='d_j"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict, said: str) -> None:
    """Effects, limits and names are checked when the tool is made, with what to write."""
    with pytest.raises(ConfigurationError) as caught:
        tool(**options)(bare)
    assert said in str(caught.value)


def test_a_function_that_cannot_be_a_tool_is_refused() -> None:
    """A missing description, a generator, a class's own method and what is no function are named with the remedy."""

    def mute(city: str) -> str:
        return city

    class Silent:
        def __call__(self, city: str) -> str:
            return city

        def method(self, city: str) -> str:
            """Say."""
            return city

    for given, said in [
        (mute, "'mute' has no description"),
        (Silent(), "'Silent' has no description"),
        (generated, "is a generator"),
        (Silent.method, "from an object"),
        (7, "no function"),
    ]:
        with pytest.raises(ConfigurationError) as caught:
            tool(given)
        assert said in str(caught.value)


def test_a_tool_cannot_be_changed() -> None:
    """What was resolved once stays, so a tool shared by agents is the same for all of them."""
    made = tool(bare)
    with pytest.raises(AttributeError, match="bare"):
        made.effect = "read"


async def test_the_context_is_given_and_hidden() -> None:
    """A parameter for the run's context is filled in by the run; the model neither sees nor can give it."""

    @tool
    async def who(ctx: RunContext, greeting: str = "hello") -> str:
        """Greet the tenant."""
        return f"{greeting} {ctx.scope.tenant}"

    assert list(who.spec.parameters["properties"]) == ["greeting"]
    assert await invoke(who) == "hello test"
    with pytest.raises(ToolError, match="ctx: unexpected"):
        who.bind('{"ctx": {}}')


async def test_a_synchronous_tool_does_not_stop_the_loop_and_keeps_context_variables() -> None:
    """Two of them run at once in threads, wait for the loop, and see the caller's variables (B89)."""
    meeting = threading.Barrier(2)
    loop_went_on = threading.Event()
    running = asyncio.Event()
    loop = asyncio.get_running_loop()
    threads = set()

    @tool
    def wait(name: str) -> str:
        """Meet the other one, then wait for the event loop."""
        threads.add(threading.get_ident())
        meeting.wait(PATIENCE)
        loop.call_soon_threadsafe(running.set)
        assert loop_went_on.wait(PATIENCE)
        return f"{name} for {TENANT.get()}"

    async def heartbeat() -> None:
        await running.wait()
        loop_went_on.set()

    TENANT.set("acme")
    beating = asyncio.create_task(heartbeat())
    results = await asyncio.gather(invoke(wait, '{"name": "a"}'), invoke(wait, '{"name": "b"}'))
    await beating
    assert results == ["a for acme", "b for acme"]
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_cancelled_run_does_not_wait_for_a_thread_which_still_counts() -> None:
    """Cancelling leaves the thread to itself at once; until it ends it keeps one of the bounded places."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    lock = threading.Lock()
    running = most = 0
    full = asyncio.Event()

    @tool
    def stuck() -> str:
        """Wait until released."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == WORKER_THREADS:
                loop.call_soon_threadsafe(full.set)
        assert release.wait(PATIENCE)
        with lock:
            running -= 1
        return "done"

    calls = [asyncio.create_task(invoke(stuck)) for _ in range(WORKER_THREADS)]
    await full.wait()
    for call in calls[:5]:
        call.cancel()
    ended = await asyncio.gather(*calls[:5], return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
    assert not release.is_set()
    more = [asyncio.create_task(invoke(stuck)) for _ in range(5)]
    await asyncio.wait(more, timeout=0)
    release.set()
    assert await asyncio.gather(*calls[5:], *more) == ["done"] * WORKER_THREADS
    assert most == WORKER_THREADS


async def test_a_call_cancelled_while_it_waits_for_a_thread_never_runs() -> None:
    """A waiter that is cancelled leaves the queue, and its place goes to the next one."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    started: list[str] = []
    full = asyncio.Event()

    @tool
    def slow(name: str) -> str:
        """Wait until released."""
        started.append(name)
        if len(started) == WORKER_THREADS:
            loop.call_soon_threadsafe(full.set)
        assert release.wait(PATIENCE)
        return name

    holders = [asyncio.create_task(invoke(slow, '{"name": "holder"}')) for _ in range(WORKER_THREADS)]
    await full.wait()
    late, last = (asyncio.create_task(invoke(slow, f'{{"name": "{name}"}}')) for name in ("late", "last"))
    await asyncio.wait([late, last], timeout=0)
    late.cancel()
    await asyncio.wait([late])
    release.set()
    assert await last == "last"
    await asyncio.gather(*holders)
    assert late.cancelled()
    assert "late" not in started


async def test_what_is_cancelled_inside_a_tool_is_its_error_alone() -> None:
    """A tool that cancels a task of its own fails as one call; cancelling the run stays a cancellation (B80)."""
    begun = asyncio.Event()

    @tool
    async def clumsy() -> str:
        """Cancel a task of its own and wait for it."""
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner
        return "never"

    @tool
    async def patient() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(ToolError, match="cancelled") as caught:
        await invoke(clumsy)
    assert caught.value.tool == "clumsy"
    running = asyncio.create_task(invoke(patient))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


ENDING = [
    ToolError("try Oslo", hint="a city"),
    MeterExceeded("too much", axis="cost"),
    DeadlineExceeded("too late"),
    Cancelled("stopped"),
    EffectUnknown("perhaps sent"),
    ConfigurationError("no database"),
]


@pytest.mark.parametrize("error", ENDING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async", "sync", "group"])
async def test_what_ends_a_run_passes_through(error: AgentkitError, kind: str) -> None:
    """A ceiling, the deadline, a cancel, an unknown effect, wrong wiring and a ToolError stay the same object."""

    async def later() -> str:
        raise error

    def now() -> str:
        raise error

    async def together() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(later())
        return "never"

    function = {"async": later, "sync": now, "group": together}[kind]
    with pytest.raises(type(error)) as caught:
        await invoke(tool(description="Fail.")(function))
    assert caught.value is error


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError("Oslo"), "KeyError: 'Oslo'"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("two", [ValueError("a"), OSError("b")]), "ExceptionGroup: two"),
        (ValueError("half \ud83d and \x00"), "ValueError: half \ufffd and \ufffd"),
        (StopIteration("over"), "StopIteration"),
        (TimeoutError("slow"), "TimeoutError: slow"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_anything_else_is_told_to_the_model(raised: BaseException, said: str, kind: str) -> None:
    """What a tool raises becomes a ToolError with type and message, clean, and with its cause."""

    async def later() -> str:
        raise raised

    def now() -> str:
        raise raised

    with pytest.raises(ToolError) as caught:
        await invoke(tool(description="Fail.")(later if kind == "async" else now))
    assert said in caught.value.message
    assert caught.value.__cause__ is not None


async def test_a_long_or_broken_message_is_bounded() -> None:
    """An error message is capped like a result, and one that cannot be made is said to be so."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @tool(max_result_chars=40)
    async def loud() -> str:
        """Fail at length."""
        raise ValueError("x" * 1000)

    @tool
    async def mute() -> str:
        """Fail without words."""
        raise Broken

    with pytest.raises(ToolError) as caught:
        await invoke(loud)
    assert "characters left out" in caught.value.message
    assert len(caught.value.message) < 120
    with pytest.raises(ToolError, match="Broken: its message cannot be read"):
        await invoke(mute)


async def test_an_interrupt_is_not_a_tools_error() -> None:
    """What stops the whole process is not told to a model."""

    class Stop(BaseException):
        pass

    @tool
    async def stop() -> str:
        """Stop everything."""
        raise Stop

    with pytest.raises(Stop):
        await invoke(stop)


async def test_a_synchronous_function_may_return_an_awaitable() -> None:
    """A wrapper around an async function is awaited on the loop."""

    async def answer() -> str:
        return "42"

    assert await invoke(Tool(lambda: answer(), name="answer", description="Answer.")) == "42"


async def test_results_are_rendered_within_the_tools_limit() -> None:
    """What is returned is data for the model, as short as the tool says."""

    @dataclass
    class Row:
        city: str
        degrees: float

    @tool
    async def rows() -> list[Row]:
        """List rows."""
        return [Row("Oslo", 1.5)]

    @tool(max_result_chars=10)
    async def long() -> str:
        """Say much."""
        return "0123456789" * 10

    assert await invoke(rows) == '[{"city":"Oslo","degrees":1.5}]'
    assert (await invoke(long)).startswith("012345\n[... 90 characters left out ...]\n")
