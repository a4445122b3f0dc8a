"""The timeout layer: a tool that takes too long is stopped and told about."""

from __future__ import annotations

import asyncio

import pytest

from agentkit.core.contracts import Call, CallKey, ToolCall, ToolEnded, ToolRequest, ToolResult, ToolSpec
from agentkit.errors import ConfigurationError, DeadlineExceeded
from agentkit.middleware.timeout import timeout
from agentkit.testing import ManualClock, make_context


class Slow:
    """A tool that sleeps on a clock."""

    idempotent = False
    requires_approval = False
    resumable = False

    def __init__(self, clock, seconds, effect="write", own=None) -> None:
        self.clock, self.seconds, self.effect, self.timeout = clock, seconds, effect, own
        self.spec = ToolSpec("slow", "", {"type": "object"})
        self.running = self.stopped = 0

    def bind(self, arguments):
        return arguments

    async def invoke(self, bound, call):
        self.running += 1
        try:
            await self.clock.sleep(self.seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.stopped += 1
            raise
        finally:
            self.running -= 1
        return ToolResult("done")


async def called(clock, tool, default=None, seconds=100, **fields):
    ctx = make_context(tool_middleware=[timeout(default)], clock=clock, **fields)
    request = ToolRequest(tool, ToolCall("c1", "slow"), CallKey("r", "", 1, 0))
    task = asyncio.create_task(ctx.invoker.invoke_tool(request, ctx))
    await clock.run_for(seconds)
    await asyncio.wait([task], timeout=5)
    return task


@pytest.mark.parametrize(("effect", "outcome"), [("write", "unknown"), ("unknown", "unknown"), ("read", "error")])
async def test_a_tool_that_takes_too_long_is_stopped_and_awaited(effect, outcome):
    """The model is told; the outcome of anything but a read is unknown; nothing still runs."""
    clock = ManualClock()
    tool = Slow(clock, 60, effect, own=10)
    result = (await called(clock, tool)).result()
    assert result.outcome == outcome and "slow took longer than 10 s" in result.content
    assert (tool.running, tool.stopped) == (0, 1)


async def test_the_tools_own_limit_beats_the_default():
    """A longer limit of the tool's own lets it finish; without one the default holds; without both none does."""
    clock = ManualClock()
    assert (await called(clock, Slow(clock, 60, own=90), default=10)).result() == ToolResult("done")
    assert (await called(clock, Slow(clock, 60), default=10)).result().outcome == "unknown"
    assert (await called(clock, Slow(clock, 60))).result() == ToolResult("done")


async def test_cancelling_the_run_is_not_a_timeout():
    """A cancelled call ends as cancelled, with the tool stopped."""
    clock = ManualClock()
    tool = Slow(clock, 60, own=50)
    ctx = make_context(tool_middleware=[timeout()], clock=clock)
    request = ToolRequest(tool, ToolCall("c1", "slow"), CallKey("r", "", 1, 0))
    task = asyncio.create_task(ctx.invoker.invoke_tool(request, ctx))
    await clock.run_for(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and tool.stopped == 1 and clock.pending == 0


async def test_the_runs_deadline_ends_the_run_not_the_tool_alone():
    """A deadline before the tool's limit raises DeadlineExceeded."""
    clock = ManualClock()
    tool = Slow(clock, 60, own=50)
    task = await called(clock, tool, deadline=5)
    assert isinstance(task.exception(), DeadlineExceeded) and tool.stopped == 1


async def test_a_timer_does_not_outlive_its_call():
    """After a call that was quick enough nothing is planned any more."""
    clock = ManualClock()
    assert (await called(clock, Slow(clock, 1, own=50), seconds=2)).result() == ToolResult("done")
    assert clock.pending == 0


async def test_a_result_that_is_there_is_not_replaced_while_its_reader_is_slow():
    """The limit passing after the tool's end adds no second result."""
    clock = ManualClock()
    ctx = make_context(clock=clock)
    request = ToolRequest(Slow(clock, 0, own=5), ToolCall("c1", "slow"), CallKey("r", "", 1, 0))

    async def tool(call):
        yield ToolEnded(call.request.call, await call.request.tool.invoke(None, call))

    results = []
    async for event in timeout()(Call(ctx, request, "1"), tool):
        results.append(event.result)
        clock.advance(60)
    assert results == [ToolResult("done")]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_default_that_cannot_mean_anything_is_refused(seconds):
    """Zero, negative and NaN seconds are named."""
    with pytest.raises(ConfigurationError, match="default="):
        timeout(seconds)
