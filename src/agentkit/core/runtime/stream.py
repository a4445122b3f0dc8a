"""The handle of one open call: iterate it, leave it any way you like, it is closed and settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, NoReturn, TypeVar

from agentkit.core.contracts import ChatEnd
from agentkit.core.runtime.abort import Abort
from agentkit.core.runtime.context import RunContext
from agentkit.errors import AgentkitError, ConfigurationError

__all__ = ["EventStream"]

Ev = TypeVar("Ev")


class EventStream(Generic[Ev]):
    """An async context manager and iterator over one call's events.

    It holds no task group and no cancel scope, so it may live inside a generator that another task closes. A passed
    deadline or a tripped token closes the provider's stream at once; the next step raises DeadlineExceeded or
    Cancelled. `aclose` is idempotent and safe while another task waits for the next event.
    """

    __slots__ = ("_abort", "_closed_by", "_closing", "_ctx", "_entered", "_events", "_left")

    def __init__(self, events: AsyncGenerator[Ev, None], ctx: RunContext) -> None:
        self._events = events
        self._ctx = ctx
        self._abort = Abort(ctx.deadline, ctx.cancel, self._close_soon)
        self._closing: asyncio.Task[None] | None = None
        self._left: asyncio.Future[None] | None = None
        self._closed_by: asyncio.Future[None] | None = None
        self._entered = False

    async def __aenter__(self) -> EventStream[Ev]:
        try:
            self._abort.arm()
        except AgentkitError as error:
            self._ctx.describe(error)
            raise
        self._entered = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> EventStream[Ev]:
        return self

    async def __anext__(self) -> Ev:
        if self._abort.fired is not None:
            await self._ended()
        if not self._entered:
            raise ConfigurationError("A stream is used as `async with invoker.stream(...) as events`.")
        try:
            with self._abort:
                event = await self._events.__anext__()
            if type(event) is ChatEnd:  # a finished answer is not lost to a deadline that passes while it is read
                self._abort.disarm()
            return event
        except AgentkitError as error:
            self._ctx.describe(error)
            raise
        finally:
            if self._left is not None and not self._left.done():
                self._left.set_result(None)

    async def aclose(self) -> None:
        """Close the provider's stream and settle the meters; returns when that is done."""
        abort = self._abort
        abort.disarm()
        reader = abort.inside
        if reader is not None and reader is not asyncio.current_task():
            if self._left is None or self._left.done():
                self._left = asyncio.get_running_loop().create_future()
            abort.interrupt(StopAsyncIteration())
            await asyncio.shield(self._left)
        if self._closing is not None:
            await asyncio.wait([self._closing])
        await self._close_once()

    async def _close_once(self) -> None:
        """Close the events; whoever comes meanwhile waits, and closes them if that was cut short."""
        while self._closed_by is not None:
            await asyncio.wait([self._closed_by])
        closed = self._closed_by = asyncio.get_running_loop().create_future()
        try:
            await self._events.aclose()
        finally:
            self._closed_by = None
            closed.set_result(None)

    async def _ended(self) -> NoReturn:
        reason = self._abort.fired or StopAsyncIteration()
        await self.aclose()
        if isinstance(reason, AgentkitError):
            self._ctx.describe(reason)
        raise reason

    def _close_soon(self) -> None:
        self._closing = asyncio.ensure_future(self._close_behind())

    async def _close_behind(self) -> None:
        """Close while the reader is busy elsewhere; what fails in it is told with the reason the reader gets."""
        try:
            await self._close_once()
        except Exception as error:
            if self._abort.fired is not None:
                self._abort.fired.__cause__ = error
