"""Observers that keep what a run tells."""

from __future__ import annotations

import asyncio
from collections import deque

from agentkit.core.runtime.checks import whole
from agentkit.core.runtime.telemetry.observation import Observation

__all__ = ["CollectingObserver", "QueueObserver"]

KEPT_KINDS = frozenset({"result", "error", "interrupt"})


class CollectingObserver:
    """Keeps every observation, in order."""

    __slots__ = ("observations",)

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    async def observe(self, observation: Observation, /) -> None:
        """Keep it."""
        self.observations.append(observation)

    def of(self, kind: str) -> list[Observation]:
        """Return the observations of one kind."""
        return [observation for observation in self.observations if observation.kind == kind]


class QueueObserver:
    """Hands observations to one reader, `async for observation in observer`, without ever slowing the run.

    At most `maxsize` wait; beyond that the oldest is dropped and counted in `dropped`. Results, errors and interrupts
    are never dropped and take no place. Reading ends after `close()`, once what waits is read. Belongs to one loop.
    """

    __slots__ = ("_closed", "_droppable", "_waiting", "_woken", "dropped", "maxsize")

    def __init__(self, maxsize: int = 256) -> None:
        self.maxsize = whole("QueueObserver", "maxsize", maxsize, 1)
        self.dropped = 0
        self._waiting: deque[Observation] = deque()
        self._droppable = 0
        self._woken = asyncio.Event()
        self._closed = False

    async def observe(self, observation: Observation, /) -> None:
        """Queue it; after `close()` it is dropped and counted."""
        if self._closed:
            self.dropped += 1
            return
        if observation.kind not in KEPT_KINDS:
            if self._droppable == self.maxsize:
                self._drop_oldest()
            self._droppable += 1
        self._waiting.append(observation)
        self._woken.set()

    def close(self) -> None:
        """End reading once what waits is read; may be called twice."""
        self._closed = True
        self._woken.set()

    def __aiter__(self) -> QueueObserver:
        return self

    async def __anext__(self) -> Observation:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._woken.clear()
            await self._woken.wait()
        observation = self._waiting.popleft()
        if observation.kind not in KEPT_KINDS:
            self._droppable -= 1
        return observation

    def _drop_oldest(self) -> None:
        for index, waiting in enumerate(self._waiting):
            if waiting.kind not in KEPT_KINDS:
                del self._waiting[index]
                self._droppable -= 1
                self.dropped += 1
                return
