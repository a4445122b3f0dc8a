"""The handle of one open call: iterate it, leave it any way you like, it is closed and settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from agentkit.core.runtime.abort import Abort
from agentkit.core.runtime.context import RunContext
from agentkit.errors import AgentkitError

__all__ = ["EventStream"]

Ev = TypeVar("Ev")


class EventStream(Generic[Ev]):
    """An async context manager and iterator over one call's events.

    It holds no task group and no cancel scope, so it may live inside a generator that another task closes. A passed
    deadline or a tripped token closes the provider's stream at once; the next step raises DeadlineExceeded or
    Cancelled. `aclose` is idempotent and safe while another task waits for the next event.
    """

    __slots__ = ("_abort", "_closing", "_ctx", "_events", "_left")

    def __init__(self, events: AsyncGenerator[Ev, None], ctx: RunContext) -> None:
        self._events = events
        self._ctx = ctx
        self._abort = Abort(ctx.deadline, ctx.cancel, self._close_soon)
        self._closing: asyncio.Task[None] | None = None
        self._left: asyncio.Future[None] | None = None

    async def __aenter__(self) -> EventStream[Ev]:
        self._abort.arm()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> EventStream[Ev]:
        return self

    async def __anext__(self) -> Ev:
        if self._abort.fired is not None:
            await self.aclose()
            raise self._abort.fired
        try:
            with self._abort:
                return await self._events.__anext__()
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
            self._left = asyncio.get_running_loop().create_future()
            abort.interrupt(StopAsyncIteration())
            await self._left
        if self._closing is not None:
            await asyncio.wait([self._closing])
        await self._events.aclose()

    def _close_soon(self) -> None:
        self._closing = asyncio.ensure_future(self._events.aclose())
