"""A tool call whose events are made only where somebody reads them."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from agentkit.core.contracts import (
    Call,
    CallKey,
    ToolCall,
    ToolEnded,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStarted,
)
from agentkit.core.runtime.layers import chain
from agentkit.core.runtime.tool_stream import ToolStream
from agentkit.middleware.policy import policy
from agentkit.middleware.retry import retry_tools
from agentkit.middleware.timeout import timeout
from agentkit.middleware.trace import trace_tools
from agentkit.testing import make_context


class Read:
    """A tool that fails once in passing, then answers with how often it ran."""

    effect = "read"
    idempotent = requires_approval = resumable = False
    timeout = None
    spec = ToolSpec("read", "", {"type": "object"})

    def __init__(self, failures: int = 1) -> None:
        self.runs, self.failures = 0, failures

    def bind(self, arguments):
        return arguments

    async def invoke(self, bound, call):
        self.runs += 1
        if self.runs <= self.failures:
            raise ConnectionError("gone")
        return ToolResult(f"{bound} after {self.runs}, attempt {call.attempt}")


def a_request(tool) -> ToolRequest:
    return ToolRequest(tool, ToolCall("c", "read", "{}"), CallKey("r", "", 1, 0))


def default_layers():
    return [trace_tools(), policy(), retry_tools(random=lambda: 0.0), timeout()]


@pytest.mark.parametrize("place", [None, 0, 2, 3, 4], ids=lambda place: f"looking layer at {place}")
@pytest.mark.parametrize("watched", [False, True])
async def test_a_call_is_the_same_with_and_without_its_events(place, watched):
    """Whoever looks, or nobody: one result, the same runs and attempts; a layer sees start and end of what is inside."""
    seen, told, passed = [], [], 0

    def passing(call, call_next):
        nonlocal passed
        passed += 1
        return call_next(call)

    async def looking(call, call_next):
        async with aclosing(call_next(call)) as events:
            async for event in events:
                seen.append(type(event))
                yield event

    async def watch(event):
        told.append(type(event))

    layers = [*default_layers(), passing]
    if place is not None:
        layers.insert(place, looking)
    tool = Read()
    ctx = make_context(tool_middleware=layers)
    result = await ctx.invoker.invoke_tool(a_request(tool), ctx, watch=watch if watched else None)
    assert result == ToolResult("{} after 2, attempt 2")
    assert passed == tool.runs == 2
    assert told == ([ToolStarted, ToolEnded] if watched else [])
    inside_retry = place is not None and place > 2
    assert seen == [] if place is None else seen == [ToolStarted, *([ToolStarted] if inside_retry else []), ToolEnded]


def a_stream(layers, tool) -> ToolStream:
    """Return what the layers make of a call, with the Invoker's own innermost step."""
    ctx = make_context(tool_middleware=layers)
    return ctx.invoker._tool(Call(ctx, a_request(tool), "1"))


async def test_the_stream_of_a_call_is_read_thrown_into_and_closed_like_any_other():
    """It starts with the first event asked for, and closing it before that runs nothing."""
    tool = Read(failures=0)
    events = a_stream(default_layers(), tool)
    assert type(events) is ToolStream
    await events.aclose()
    assert tool.runs == 0

    events = a_stream([], tool)
    assert type(await anext(events)) is ToolStarted and tool.runs == 0
    assert type(await events.asend(None)) is ToolEnded and tool.runs == 1
    with pytest.raises(StopAsyncIteration):
        await anext(events)

    for thrown in (KeyError("x"), KeyError):
        events = a_stream([], tool)
        await anext(events)
        with pytest.raises(KeyError):
            await events.athrow(thrown)
    events = a_stream([], tool)
    await anext(events)
    await events.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    assert tool.runs == 1


async def test_a_chain_of_our_own_around_a_plain_generator_works_too():
    """The retry layer repeats over an innermost step that is an ordinary generator."""
    tool, ctx = Read(), make_context()

    async def plain(call):
        yield ToolStarted(call.request.call)
        yield ToolEnded(call.request.call, await tool.invoke("{}", call))

    events = chain([retry_tools(random=lambda: 0.0)], plain)(Call(ctx, a_request(tool), "1"))
    assert [type(event) async for event in events] == [ToolStarted, ToolEnded] and tool.runs == 2
