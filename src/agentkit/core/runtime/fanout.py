"""Bounded fan-out: many jobs side by side, pulled as slots get free, none left behind."""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from inspect import iscoroutine, isgenerator
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, ProviderError

__all__ = ["SIBLING_CLEANUP_GRACE_S", "Failure", "Jobs", "gather_best_effort", "gather_bounded"]

T = TypeVar("T")
Jobs: TypeAlias = "Iterable[Awaitable[T]] | AsyncIterable[Awaitable[T]]"

SIBLING_CLEANUP_GRACE_S = 5.0
ENDS_THE_RUN = (Cancelled, DeadlineExceeded)


class Failure(Struct, frozen=True):
    """One job of a best-effort fan-out that failed: where, why, and whether trying again may help."""

    source: str
    message: str
    retryable: bool
    cause: Exception


class _AbortedError(Exception):
    """Carries out of a task group what would get lost in it: a job that was cancelled from elsewhere."""


async def gather_bounded(coros: Jobs[T], *, sem: Semaphore, grace: float = SIBLING_CLEANUP_GRACE_S) -> list[T]:
    """Return the results in order of the input, at most the free slots of `sem` running at once.

    Jobs are pulled from any iterable, also an async one, only as slots get free. The first failure cancels the others
    and waits for them, at most `grace` seconds for one that swallows it, and surfaces as an ExceptionGroup. A job
    that was cancelled from elsewhere cancels the whole.
    """
    return await _Crew[T](sem, grace).run(coros)


async def gather_best_effort(
    coros: Jobs[T], *, sem: Semaphore, grace: float = SIBLING_CLEANUP_GRACE_S
) -> list[T | Failure]:
    """Return a result or a Failure for each job, in order of the input.

    Cancellation, the run's own too, and its deadline are never isolated: they end the whole.
    """
    crew = _Crew[T | Failure](sem, grace, isolate=True)
    try:
        return await crew.run(coros)
    except ExceptionGroup as group:
        ended, _ = group.split(ENDS_THE_RUN)
        if ended is None:
            raise
        raise first_of(ended) from None


class _Crew(Generic[T]):
    __slots__ = ("_grace", "_isolate", "_results", "_sem", "_unstarted")

    def __init__(self, sem: Semaphore, grace: float, *, isolate: bool = False) -> None:
        self._sem = sem
        self._grace = grace
        self._isolate = isolate
        self._results: dict[int, T] = {}
        self._unstarted: dict[int, Awaitable[T]] = {}

    async def run(self, coros: Jobs[T]) -> list[T]:
        try:
            async with aclosing(_pull(coros)) as jobs, asyncio.TaskGroup() as group:
                index = 0
                async for job in jobs:
                    await self._slot(job)
                    self._unstarted[index] = job
                    self._start(group, index)
                    index += 1
        except BaseExceptionGroup as failed:
            if failed.subgroup(_AbortedError) is not None:
                raise asyncio.CancelledError from failed
            raise
        return [self._results[index] for index in range(len(self._results))]

    async def _slot(self, job: Awaitable[T]) -> None:
        try:
            await self._sem.acquire()
        except BaseException:
            _discard(job)
            raise

    def _start(self, group: asyncio.TaskGroup, index: int) -> None:
        work = self._work(index)
        try:
            task = group.create_task(work)
        except BaseException:
            work.close()
            self._leave(index)
            raise
        task.add_done_callback(lambda _: self._leave(index))

    def _leave(self, index: int) -> None:
        job = self._unstarted.pop(index, None)
        if job is not None:  # cancelled before its first step
            _discard(job)
        self._sem.release()

    async def _work(self, index: int) -> None:
        task = asyncio.ensure_future(self._unstarted.pop(index))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            await self._end(task)
            raise
        if task.cancelled():
            raise _AbortedError
        self._results[index] = self._result(index, task)

    async def _end(self, task: asyncio.Future[T]) -> None:
        task.cancel()
        await asyncio.wait((task,), timeout=self._grace)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _result(self, index: int, task: asyncio.Future[T]) -> T:
        error = task.exception()
        if error is None:
            return task.result()
        if not self._isolate or not isinstance(error, Exception) or isinstance(error, ENDS_THE_RUN):
            raise error
        retryable = isinstance(error, ProviderError) and error.retryable
        text = str(error) or type(error).__name__
        return Failure(f"gather_best_effort[{index}]", text, retryable, error)  # type: ignore[return-value]


async def _pull(coros: Jobs[T]) -> AsyncGenerator[Awaitable[T], None]:
    async with aclosing(each(coros, _discard)) as jobs:
        async for job in jobs:
            if not isinstance(job, Awaitable):
                raise ConfigurationError(f"A fan-out takes coroutines or other awaitables; {job!r} is none. Call it.")
            yield job


async def each(
    source: Iterable[T] | AsyncIterable[T], discard: Callable[[T], None] | None = None
) -> AsyncGenerator[T, None]:
    """Yield the items of either kind of iterable; left early, close a generator and discard the rest of a list."""
    if isinstance(source, AsyncIterable):
        iterator = aiter(source)
        try:
            async for item in iterator:
                yield item
        finally:
            if isinstance(iterator, AsyncGenerator):
                await iterator.aclose()
        return
    items = iter(source)
    try:
        for item in items:
            yield item
    finally:
        if isgenerator(items):
            items.close()
        elif discard is not None:
            for item in items:
                discard(item)


def _discard(job: object) -> None:
    if iscoroutine(job):
        job.close()
    elif isinstance(job, asyncio.Future):
        job.cancel()


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single error inside nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
