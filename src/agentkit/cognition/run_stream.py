"""The events of a run, read while it goes on; a slow reader slows the run down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from agentkit.core.contracts import AgentResult, EventSink, RunEvent
from agentkit.errors import AgentkitError

__all__ = ["RunStream"]

T = TypeVar("T")

_BOUND = 256


class EventQueue:
    """A bounded queue between one run and one reader, both on the same loop."""

    __slots__ = ("_events", "_reader", "_seq", "_writers", "over")

    def __init__(self) -> None:
        self._events: deque[RunEvent] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._seq = -1
        self.over = False

    def next_seq(self) -> int:
        """Return the next number, from 0."""
        self._seq += 1
        return self._seq

    async def put(self, event: RunEvent, /) -> None:
        """Hand over an event at once, so that order is that of the numbers, then wait while the queue is too full."""
        self._events.append(event)
        self.wake()
        while len(self._events) > _BOUND and not self.over:
            turn = asyncio.get_running_loop().create_future()
            self._writers.append(turn)
            await turn

    def wake(self) -> None:
        """Let the reader look again."""
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def get(self) -> RunEvent | None:
        """Return the next event, None when there is none and will be none."""
        while not self._events:
            if self.over:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
            self._reader = None
        event = self._events.popleft()
        while self._writers and len(self._events) <= _BOUND:
            turn = self._writers.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        return event


class RunStream(Generic[T]):
    """An async context manager and iterator over a run's events; `result` is there after the last one.

    Leaving the block early cancels the run and waits until it has settled. An error of the run is raised where the
    next event would have been; a run that ends well ends with RunEnded.
    """

    __slots__ = ("_begin", "_queue", "_result", "_task")

    def __init__(self, begin: Callable[[EventSink], Coroutine[object, object, AgentResult[T]]]) -> None:
        self._begin = begin
        self._queue = EventQueue()
        self._task: asyncio.Task[AgentResult[T]] | None = None
        self._result: AgentResult[T] | None = None

    @property
    def result(self) -> AgentResult[T]:
        """Return what the run came to; raises AgentkitError before the last event was read."""
        if self._result is None:
            raise AgentkitError("The run has no result yet; read its events to the end first.")
        return self._result

    async def __aenter__(self) -> RunStream[T]:
        if self._task is not None:
            raise AgentkitError("This stream was opened before; make a new one for another run.")
        self._task = asyncio.ensure_future(self._begin(self._queue))
        self._task.add_done_callback(self._finish)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> RunStream[T]:
        return self

    async def __anext__(self) -> RunEvent:
        if self._task is None:
            raise AgentkitError("Open the stream first: async with agent.stream(...) as events.")
        event = await self._queue.get()
        if event is not None:
            return event
        if self._task.cancelled():
            raise StopAsyncIteration
        self._result = self._task.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the run if it still goes on, and wait until nothing of it is left."""
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        if not task.done():
            task.cancel()
        self._queue.over = True
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    def _finish(self, task: asyncio.Task[AgentResult[T]]) -> None:
        if not task.cancelled():
            task.exception()  # a reader that leaves early does not ask for it
        self._queue.over = True
        self._queue.wake()
