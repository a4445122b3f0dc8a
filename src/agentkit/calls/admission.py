"""Letting one attempt through: the host's own admission, and the limit on command-line programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing

from agentkit.core.contracts import Call, CallNext, ChatEvent, ChatRequest, Mode
from agentkit.core.runtime.checks import whole
from agentkit.core.runtime.metering.ending import unsent
from agentkit.core.runtime.slots import SlotPools

__all__ = ["Acquire", "Admission"]

_API = Mode.API

Acquire = Callable[[Mode], AbstractAsyncContextManager[object]]


class Admission:
    """The innermost chat layer: holds `acquire(mode)` and, for a CLI mode, one of `max_concurrent_cli` places.

    Both belong to one attempt: they are given back when it ends in any way, and before a retry backs off. What ends
    while it waits for them was never sent and costs nothing.
    """

    __slots__ = ("_acquire", "_places", "max_concurrent_cli")

    def __init__(self, acquire: Acquire | None = None, max_concurrent_cli: int = 8) -> None:
        self._acquire = acquire
        self.max_concurrent_cli = whole("CallRuntime", "max_concurrent_cli", max_concurrent_cli, 1)
        self._places = SlotPools()

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there is nothing to hold."""
        route = call.route
        mode = _API if route is None else getattr(route.port, "mode", _API)
        if mode is _API and self._acquire is None:
            return call_next(call)
        return self._admitted(call, call_next, mode)

    async def _admitted(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], mode: Mode
    ) -> AsyncGenerator[ChatEvent, None]:
        held = AsyncExitStack()
        try:
            try:
                await self._enter(held, mode)
            except BaseException as error:
                unsent(error)
                raise
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    yield event
        finally:
            await held.aclose()

    async def _enter(self, held: AsyncExitStack, mode: Mode) -> None:
        if self._acquire is not None:
            await held.enter_async_context(self._acquire(mode))
        if mode is Mode.CLI:
            place = self._places.at(0, self.max_concurrent_cli)
            await place.acquire()
            held.callback(place.release)
