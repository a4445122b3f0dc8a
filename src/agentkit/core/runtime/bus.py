"""A lossy fan-out of events to any number of readers: numbered, replayable, and never waiting for a slow one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar
from weakref import WeakSet

from msgspec import Struct

from agentkit.core.runtime.checks import whole

__all__ = ["EventBus", "Subscription", "Versioned"]

E = TypeVar("E")
_log = logging.getLogger("agentkit.bus")


class Versioned(Struct, Generic[E], frozen=True):
    """An event with its number in the stream, from 1; a gap means that events were dropped."""

    version: int
    event: E


class Subscription(Generic[E]):
    """One reader: iterate it; it ends when its stream is closed. `dropped` counts what it was too slow for.

    Leaving `async with`, `close()`, or forgetting the object detaches it.
    """

    __slots__ = ("__weakref__", "_detached", "_ended", "_lock", "_queue", "_size", "_waiters", "dropped", "name")

    def __init__(self, name: str, size: int, backlog: deque[Versioned[E]], lock: threading.Lock) -> None:
        self.name = name
        self.dropped = 0
        self._queue = backlog
        self._size = size + len(backlog)
        self._ended = False
        self._detached = False
        self._lock = lock
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __aiter__(self) -> Subscription[E]:
        return self

    async def __aenter__(self) -> Subscription[E]:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def __anext__(self) -> Versioned[E]:
        while True:
            with self._lock:
                if self._detached:
                    raise StopAsyncIteration
                if self._queue:
                    return self._queue.popleft()
                if self._ended:
                    raise StopAsyncIteration
                loop = asyncio.get_running_loop()
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.append((loop, waiter))
            await waiter

    def close(self) -> None:
        """Detach; a reader that waits ends. A second call does nothing."""
        with self._lock:
            self._detached = True
            self._queue.clear()
            self._wake()

    def _offer(self, item: Versioned[E]) -> None:
        if self._detached:
            return
        if len(self._queue) >= self._size:
            if not self.dropped:
                _log.warning("subscriber %r is too slow; events are dropped for it", self.name)
            self.dropped += 1
            return
        self._queue.append(item)
        self._wake()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Stream(Generic[E]):
    __slots__ = ("readers", "ring", "version")

    def __init__(self, version: int, ring_size: int) -> None:
        self.version = version
        self.ring: deque[Versioned[E]] = deque(maxlen=ring_size)
        self.readers: WeakSet[Subscription[E]] = WeakSet()


class EventBus(Generic[E]):
    """Streams of events by id; publishing never waits, from any thread.

    A stream keeps its last `ring_size` events for replay; a reader holds `queue_size` unread ones and then loses the
    newest. A closed id is remembered, `closed_size` of them: subscribing to it ends at once, publishing reopens it
    and its numbers go on. Raises ConfigurationError for sizes below 1.
    """

    def __init__(self, ring_size: int = 1024, queue_size: int = 256, closed_size: int = 1024) -> None:
        self._ring_size = whole("EventBus", "ring_size", ring_size, 1)
        self._queue_size = whole("EventBus", "queue_size", queue_size, 1)
        self._closed_size = whole("EventBus", "closed_size", closed_size, 1)
        self._streams: dict[str, _Stream[E]] = {}
        self._closed: OrderedDict[str, int] = OrderedDict()
        self._down = False
        self._lock = threading.Lock()

    def publish(self, stream_id: str, event: E) -> int:
        """Number the event, keep it and hand it to every reader; returns its number, 0 after `shutdown`."""
        with self._lock:
            if self._down:
                return 0
            stream = self._open(stream_id)
            stream.version += 1
            item = Versioned(stream.version, event)
            stream.ring.append(item)
            for reader in stream.readers:
                reader._offer(item)
            return stream.version

    def subscribe(self, stream_id: str, name: str = "", from_version: int = 0, replay: bool = True) -> Subscription[E]:
        """Attach a reader now: it misses nothing from here on and sees nothing twice.

        With `replay` it first gets the kept events after `from_version`. A closed stream ends at once.
        """
        with self._lock:
            if self._down or stream_id in self._closed:
                reader: Subscription[E] = Subscription(name, self._queue_size, deque(), self._lock)
                reader._end()
                return reader
            stream = self._open(stream_id)
            kept = deque(item for item in stream.ring if item.version > from_version) if replay else deque()
            reader = Subscription(name, self._queue_size, kept, self._lock)
            stream.readers.add(reader)
            return reader

    def close_stream(self, stream_id: str) -> None:
        """End the stream for its readers, full queues too, and drop what it kept; a second call does nothing."""
        with self._lock:
            self._close(stream_id)

    def shutdown(self) -> None:
        """Close every stream for good; later events are dropped."""
        with self._lock:
            self._down = True
            for stream_id in list(self._streams):
                self._close(stream_id)

    def _open(self, stream_id: str) -> _Stream[E]:
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = _Stream(self._closed.pop(stream_id, 0), self._ring_size)
        return stream

    def _close(self, stream_id: str) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            self._closed.setdefault(stream_id, 0)
        else:
            self._closed[stream_id] = stream.version
            for reader in stream.readers:
                reader._end()
        while len(self._closed) > self._closed_size:
            self._closed.popitem(last=False)
