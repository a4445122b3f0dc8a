"""The events of a tool call, which need not be made where only its result is wanted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TypeAlias, final

from agentkit.core.contracts import ToolEnded, ToolResult, ToolUpdate
from agentkit.errors import ToolError

__all__ = ["ToolStream", "ToolWatcher", "result_of"]

ToolWatcher: TypeAlias = Callable[[ToolUpdate], Awaitable[None]]


@final
class ToolStream(AsyncGenerator[ToolUpdate, None]):
    """A tool call that is run either for its `events`, read one by one, or for its `result` alone; once.

    A layer that looks at events reads them from it as from any stream; one that does not passes it on as it is.
    """

    __slots__ = ("_events", "_open", "result")

    def __init__(
        self, result: Callable[[], Awaitable[ToolResult]], events: Callable[[], AsyncGenerator[ToolUpdate, None]]
    ) -> None:
        self.result = result
        self._events = events
        self._open: AsyncGenerator[ToolUpdate, None] | None = None

    def __anext__(self) -> Coroutine[object, object, ToolUpdate]:
        return self._opened().__anext__()

    def asend(self, value: None, /) -> Coroutine[object, object, ToolUpdate]:
        """Return the next event."""
        return self._opened().asend(value)

    def athrow(
        self, kind: type[BaseException] | BaseException, value: object = None, trace: TracebackType | None = None, /
    ) -> Coroutine[object, object, ToolUpdate]:
        """Raise an error where the events are."""
        return self._opened().athrow(value if isinstance(value, BaseException) else kind)

    async def aclose(self) -> None:
        """Close the events; what was never begun has nothing to close."""
        if self._open is not None:
            await self._open.aclose()

    def _opened(self) -> AsyncGenerator[ToolUpdate, None]:
        if self._open is None:
            self._open = self._events()
        return self._open


def result_of(events: AsyncGenerator[ToolUpdate, None], watch: ToolWatcher | None = None) -> Awaitable[ToolResult]:
    """Return the result that a call's events end with; they are read where someone watches or a layer looks at them."""
    return events.result() if watch is None and type(events) is ToolStream else _read(events, watch)


async def _read(events: AsyncGenerator[ToolUpdate, None], watch: ToolWatcher | None) -> ToolResult:
    result: ToolResult | None = None
    try:
        async for event in events:
            if type(event) is ToolEnded:
                result = event.result
            if watch is not None:
                await watch(event)
    except BaseException:
        await events.aclose()
        raise
    if result is None:
        raise ToolError("The chain ended without a ToolEnded event; a middleware dropped it.")
    return result
