"""The one bridge from code without an event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

from agentkit.errors import ConfigurationError

__all__ = ["close_with_loop", "run_sync"]

T = TypeVar("T")
_closers: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], Awaitable[None]]]] = WeakKeyDictionary()


def run_sync(coro: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end on a loop of its own and return its result.

    Where a loop is running already (a notebook), it runs in a worker thread, with the caller's context variables,
    while the caller waits. Clients that were opened for that loop are closed with it. Raises ConfigurationError for
    anything but a coroutine.
    """
    if not isinstance(coro, Coroutine):
        raise ConfigurationError(f"run_sync({coro!r}): pass a coroutine, such as run_sync(ask(binding, 'Hello')).")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_and_close(coro))
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="agentkit-run-sync") as pool:
        return pool.submit(context.run, asyncio.run, _and_close(coro)).result()


def close_with_loop(aclose: Callable[[], Awaitable[None]]) -> None:
    """Have `run_sync` await this before it closes the running loop; on a loop of the host's own this does nothing."""
    _closers.setdefault(asyncio.get_running_loop(), []).append(aclose)


async def _and_close(coro: Coroutine[object, object, T]) -> T:
    try:
        return await coro
    finally:
        for aclose in reversed(_closers.pop(asyncio.get_running_loop(), [])):
            await aclose()
