"""How tools end: out of task groups, on several loops, before they began, at the deadline."""

from __future__ import annotations

import asyncio
import threading

import pytest
from anyio import CapacityLimiter

from agentkit.core.contracts import Call, CallKey, ToolCall, ToolRequest
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, EffectUnknown, MeterExceeded
from agentkit.testing import ManualClock, make_context
from agentkit.tools import tool
from agentkit.tools.thread import WORKER_THREADS, _Job


async def invoked(made, arguments="{}", ctx=None):
    """Bind and invoke a tool as the chain does."""
    ctx = ctx or make_context()
    request = ToolRequest(made, ToolCall("c1", made.name, arguments), CallKey("r", "", 1, 0))
    return await made.invoke(made.bind(arguments), Call(ctx, request, "call-1"))


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


@pytest.mark.parametrize("turns", range(8))
async def test_work_cancelled_on_its_way_to_a_thread_gives_its_place_back(turns):
    """At whatever await calls are cancelled, afterwards as many threads run as before."""

    @tool
    def quick() -> str:
        """Answer."""
        return "done"

    calls = [asyncio.create_task(invoked(quick)) for _ in range(WORKER_THREADS)]
    for _ in range(turns):
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


async def test_work_given_up_before_its_thread_came_never_runs():
    """The thread and the caller that gives up cannot both have the work: who claims first has it, and its place."""
    ran = []
    slots = CapacityLimiter(1)
    late = _Job(lambda: ran.append("late"), slots, asyncio.get_running_loop())
    assert late.claim()
    with pytest.raises(RuntimeError, match="cancelled before"):
        await asyncio.to_thread(late.run)
    prompt = _Job(lambda: ran.append("prompt"), slots, asyncio.get_running_loop())
    slots.acquire_on_behalf_of_nowait(prompt)
    await asyncio.to_thread(prompt.run)
    assert not prompt.claim() and ran == ["prompt"] and slots.borrowed_tokens == 0
