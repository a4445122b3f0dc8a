"""What every middleware has to hold, as checks that a test of your own layer runs.

async def test_mine(): await check_chat_middleware(lambda: MyLayer())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import copy_context

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    CallKey,
    ChatEvent,
    ChatMiddleware,
    ChatRequest,
    ChatStart,
    Effect,
    TextDelta,
    ToolCall,
    ToolEnded,
    ToolMiddleware,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolUpdate,
    UserMessage,
)
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.layers import chain
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import BadRequest, ToolError
from agentkit.providers.scripted import Fault, Hang, Reply, Script, ScriptedModel
from agentkit.testing.context import make_context

__all__ = ["check_chat_middleware", "check_tool_middleware"]

_REQUEST = ChatRequest((UserMessage("What is 6 * 7?"),))
_REPLY = Reply("It is forty two.", reasoning="Six sevens.", tool_calls=(ToolCall("c1", "add", '{"a": 1}'),))


async def check_chat_middleware(
    make: Callable[[], ChatMiddleware], ctx: Callable[[], RunContext] | None = None
) -> None:
    """Raise AssertionError naming what a chat layer does wrong; `make` returns a new one, `ctx` a context for it.

    Streamed it passes the model's events on unchanged (it may add AttemptEnded); leaving early, from any task, closes
    the model before control returns; cancelling reaches the model and comes back as CancelledError; an error comes
    back as it is; the consumer's context variables never change; the budget holds nothing afterwards.
    """
    context = ctx or (lambda: make_context("unused", budget=Budget("1.00")))
    await _passes_on(make, context())
    await _closes_when_left(make, context())
    await _closes_from_another_task(make, context())
    await _cancels(make, context())
    await _lets_errors_through(make, context())


async def check_tool_middleware(
    make: Callable[[], ToolMiddleware], ctx: Callable[[], RunContext] | None = None
) -> None:
    """Raise AssertionError naming what a tool layer does wrong; it is held to the same rules as a chat layer."""
    context = ctx or (lambda: make_context("unused"))
    for effect in ("read", "write"):
        tool = _Echo(effect)
        stream = chain((make(),), _run_tool)
        events = [event async for event in stream(_tool_call(context(), tool))]
        last = events[-1]
        assert isinstance(last, ToolEnded), f"the last tool event is {last!r}, not ToolEnded"
        assert last.result == ToolResult("hello"), f"the tool said 'hello', the layer told {last.result!r}"
        assert tool.running == 0, "the tool still runs after the last event"
        await _closes_tool_when_left(make, context(), effect)
        await _cancels_tool(make, context(), effect)


def _folded(
    make: Callable[[], ChatMiddleware], script: Script
) -> tuple[ScriptedModel, Callable[[Call[ChatRequest]], AsyncGenerator[ChatEvent, None]]]:
    model = ScriptedModel([script])
    return model, chain((make(),), model.stream)


def _chat_call(ctx: RunContext) -> Call[ChatRequest]:
    ctx.services = ctx.services.replace(invoker=make_context("unused").services.invoker)
    return Call(ctx, _REQUEST, "call-1")


async def _passes_on(make: Callable[[], ChatMiddleware], ctx: RunContext) -> None:
    bare = ScriptedModel([_REPLY])
    expected = [event async for event in bare.stream(_chat_call(make_context("unused")))]
    model, stream = _folded(make, _REPLY)
    got: list[ChatEvent] = []
    before = dict(copy_context())
    async with aclosing(stream(_chat_call(ctx))) as events:
        async for event in events:
            assert dict(copy_context()) == before, f"a context variable changed for the consumer at {event!r}"
            got.append(event)
    assert dict(copy_context()) == before, "a context variable stayed changed after the stream"
    passed = [event for event in got if not isinstance(event, AttemptEnded)]
    assert passed == expected, f"the events changed on their way: {passed!r} instead of {expected!r}"
    _nothing_left(model, ctx)


async def _closes_when_left(make: Callable[[], ChatMiddleware], ctx: RunContext) -> None:
    model, stream = _folded(make, Hang(after=3))
    async with aclosing(stream(_chat_call(ctx))) as events:
        async for event in events:
            assert isinstance(event, (ChatStart, TextDelta)), f"the first event is {event!r}"
            break
    _nothing_left(model, ctx)


async def _closes_from_another_task(make: Callable[[], ChatMiddleware], ctx: RunContext) -> None:
    model, stream = _folded(make, Hang(after=3))
    events = stream(_chat_call(ctx))
    await anext(events)
    await asyncio.create_task(events.aclose(), name="closer")
    _nothing_left(model, ctx)


async def _cancels(make: Callable[[], ChatMiddleware], ctx: RunContext) -> None:
    model, stream = _folded(make, Hang(after=2))
    task = asyncio.create_task(_exhaust(stream(_chat_call(ctx))))
    await _turns()
    assert model.open_streams == 1, "the layer did not reach the model"
    task.cancel()
    done, _ = await asyncio.wait([task])
    assert done, "the cancelled call did not end"
    assert task.cancelled(), "a cancelled call has to end as cancelled; the layer swallowed or replaced it"
    _nothing_left(model, ctx)


async def _lets_errors_through(make: Callable[[], ChatMiddleware], ctx: RunContext) -> None:
    wrong = BadRequest("no", accepted=False)
    model, stream = _folded(make, Fault(wrong))
    (raised,) = await asyncio.gather(_exhaust(stream(_chat_call(ctx))), return_exceptions=True)
    assert raised is wrong, f"the model raised {wrong!r}, the layer {raised!r}"
    _nothing_left(model, ctx)
    assert not ctx.budget.spent(), "what the provider refused was charged"


def _nothing_left(model: ScriptedModel, ctx: RunContext) -> None:
    assert model.open_streams == 0, "the model's stream is still open after control returned; consume under aclosing"
    assert not ctx.budget.held(), "the budget still holds a reservation after control returned"


async def _exhaust(events: AsyncGenerator[object, None]) -> None:
    async with aclosing(events) as stream:
        async for _ in stream:
            pass


async def _turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class _Echo:
    """A tool that says hello, or hangs until it is stopped."""

    idempotent = False
    requires_approval = False
    timeout: float | None = None
    resumable = False

    def __init__(self, effect: Effect, *, hangs: bool = False) -> None:
        self.effect: Effect = effect
        self.spec = ToolSpec("echo", "Says hello.", {"type": "object"})
        self.running = 0
        self._hangs = hangs

    def bind(self, arguments: str, /) -> object:
        """Return the text itself; raises ToolError without braces."""
        if not arguments.startswith("{"):
            raise ToolError(f"{arguments!r} is no JSON object.", tool="echo", hint="Pass {}.")
        return arguments

    async def invoke(self, _bound: object, _call: Call[ToolRequest], /) -> ToolResult:
        """Return hello."""
        self.running += 1
        try:
            if self._hangs:
                await asyncio.get_running_loop().create_future()
            return ToolResult("hello")
        finally:
            self.running -= 1


async def _run_tool(call: Call[ToolRequest]) -> AsyncGenerator[ToolUpdate, None]:
    request = call.request
    yield ToolEnded(request.call, await request.tool.invoke(request.bound, call))


def _tool_call(ctx: RunContext, tool: _Echo) -> Call[ToolRequest]:
    request = ToolRequest(tool, ToolCall("c1", "echo", "{}"), CallKey(ctx.correlation_id, "", 1, 0))
    return Call(ctx, request, "call-1")


async def _closes_tool_when_left(make: Callable[[], ToolMiddleware], ctx: RunContext, effect: Effect) -> None:
    closed = False

    async def progress(call: Call[ToolRequest]) -> AsyncGenerator[ToolUpdate, None]:
        nonlocal closed
        try:
            for _ in range(2):
                yield ToolEnded(call.request.call, ToolResult("hello"))
        finally:
            closed = True

    async with aclosing(chain((make(),), progress)(_tool_call(ctx, _Echo(effect)))) as events:
        async for _ in events:
            break
    assert closed, "the tool's stream is still open after control returned; consume under aclosing"


async def _cancels_tool(make: Callable[[], ToolMiddleware], ctx: RunContext, effect: Effect) -> None:
    tool = _Echo(effect, hangs=True)
    task = asyncio.create_task(_exhaust(chain((make(),), _run_tool)(_tool_call(ctx, tool))))
    await _turns()
    assert tool.running == 1, "the layer did not reach the tool"
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "a cancelled tool call has to end as cancelled; the layer swallowed or replaced it"
    assert tool.running == 0, "the tool still runs after its call was cancelled"
