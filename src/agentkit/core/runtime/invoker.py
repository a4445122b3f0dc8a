"""The narrow place: every model call and tool call of a run goes through one Invoker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    ChatEnd,
    ChatEvent,
    ChatMiddleware,
    ChatRequest,
    ChatResponse,
    CostRecord,
    LLMPort,
    Purpose,
    Route,
    ToolEnded,
    ToolMiddleware,
    ToolRequest,
    ToolResult,
    ToolStarted,
    ToolUpdate,
)
from agentkit.core.runtime.abort import Abort
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.identity import new_id
from agentkit.core.runtime.layers import chain
from agentkit.core.runtime.stream import EventStream
from agentkit.core.runtime.tool_stream import ToolStream, ToolWatcher, result_of
from agentkit.errors import AgentkitError, ConfigurationError, StreamBroken

__all__ = ["Invoker"]

ChatWatcher = Callable[[ChatEvent], Awaitable[None]]


class Invoker:
    """Folds its layers once and runs calls through them; safe to share between runs, tasks and event loops.

    `llm` answers calls that bring no route of their own. Both chains read back as tuples, outermost first.
    Raises TypeError naming the index of anything in them that is not a middleware.
    """

    __slots__ = ("_chat", "_tool", "chat_middleware", "llm", "tool_middleware")

    def __init__(
        self,
        *,
        llm: LLMPort | None = None,
        chat_middleware: Sequence[ChatMiddleware] = (),
        tool_middleware: Sequence[ToolMiddleware] = (),
    ) -> None:
        self.llm = llm
        self.chat_middleware = tuple(chat_middleware)
        self.tool_middleware = tuple(tool_middleware)
        self._chat = chain(self.chat_middleware, self._to_model)
        self._tool = chain(self.tool_middleware, _to_tool)

    def stream(
        self, request: ChatRequest, ctx: RunContext, /, *, purpose: Purpose = "main", route: Route | None = None
    ) -> EventStream[ChatEvent]:
        """Open one call; use it as `async with invoker.stream(...) as events`.

        Leaving the block in any way closes the provider's stream and settles the meters before control returns.
        """
        return EventStream(self._chat(self._call(request, ctx, purpose, route)), ctx)

    async def chat(
        self,
        request: ChatRequest,
        ctx: RunContext,
        /,
        *,
        purpose: Purpose = "main",
        route: Route | None = None,
        watch: ChatWatcher | None = None,
        answered: Callable[[ChatResponse], None] | None = None,
    ) -> ChatResponse:
        """Return the whole answer, with the priced rows of all its attempts; `watch` is awaited with each event.

        `answered` gets the answer as soon as it is whole and paid for, also when the call is cancelled after that.
        """
        call = self._call(request, ctx, purpose, route)
        try:
            if ctx.deadline is None and ctx.cancel is None:
                return await self._collect(call, watch, answered)
            abort = Abort(ctx.deadline, ctx.cancel)
            abort.arm()
            try:
                with abort:
                    return await self._collect(call, watch, answered)
            finally:
                abort.disarm()
        except AgentkitError as error:
            ctx.describe(error)
            raise

    async def invoke_tool(
        self, request: ToolRequest, ctx: RunContext, /, *, watch: ToolWatcher | None = None
    ) -> ToolResult:
        """Return the result of one tool call; `watch` is awaited with each tool event."""
        call = Call(ctx, request, new_id())
        try:
            if ctx.deadline is None and ctx.cancel is None:
                return await result_of(self._tool(call), watch)
            abort = Abort(ctx.deadline, ctx.cancel)
            abort.arm()
            try:
                with abort:
                    return await result_of(self._tool(call), watch)
            finally:
                abort.disarm()
        except AgentkitError as error:
            ctx.describe(error)
            raise

    async def _collect(
        self,
        call: Call[ChatRequest],
        watch: ChatWatcher | None,
        answered: Callable[[ChatResponse], None] | None,
    ) -> ChatResponse:
        response: ChatResponse | None = None
        attempts: list[CostRecord] = []
        events = self._chat(call)
        try:
            async for event in events:
                if type(event) is AttemptEnded:
                    attempts.append(event.record)
                elif type(event) is ChatEnd:
                    response = event.response
                    if answered is not None:
                        answered(response)
                if watch is not None:
                    await watch(event)
        except BaseException:
            await events.aclose()
            raise
        if response is None:
            raise StreamBroken("The chain ended without a ChatEnd event; a middleware dropped it.", retryable=False)
        return replace(response, attempts=tuple(attempts)) if attempts else response

    def _call(self, request: ChatRequest, ctx: RunContext, purpose: Purpose, route: Route | None) -> Call[ChatRequest]:
        return Call(ctx, request, new_id(), route, 1, purpose)

    def _to_model(self, call: Call[ChatRequest]) -> AsyncGenerator[ChatEvent, None]:
        port = self.llm if call.route is None else call.route.port
        if port is None:
            raise ConfigurationError("No model for this call: pass a route, or build the Invoker with llm=...")
        return port.stream(call)


def _to_tool(call: Call[ToolRequest]) -> ToolStream:
    return ToolStream(partial(_result, call), partial(_events, call))


def _result(call: Call[ToolRequest]) -> Awaitable[ToolResult]:
    request = call.request
    bound = request.tool.bind(request.call.arguments) if request.bound is None else request.bound
    return request.tool.invoke(bound, call)


async def _events(call: Call[ToolRequest]) -> AsyncGenerator[ToolUpdate, None]:
    yield ToolStarted(call.request.call)
    yield ToolEnded(call.request.call, await _result(call))
