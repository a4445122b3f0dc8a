"""Observers keep what they are told without slowing the run."""

from __future__ import annotations

import asyncio

import pytest

from agentkit.core.runtime.services import Services
from agentkit.errors import ConfigurationError
from agentkit.observe import CollectingObserver, QueueObserver
from agentkit.testing import make_context


async def test_a_collector_keeps_everything_in_order():
    """What a context emits arrives with run, kind and payload."""
    observer = CollectingObserver()
    ctx = make_context("x", services=Services(observer=observer))
    await ctx.emit("progress", "half", payload={"n": 1})
    await ctx.emit("result", "done")
    assert [seen.kind for seen in observer.observations] == ["progress", "result"]
    assert observer.of("progress")[0].payload == {"n": 1} and observer.of("result")[0].run_id == "test-run"


async def test_a_full_queue_drops_the_oldest_progress_and_never_a_result():
    """The bound holds for what may be lost; results and errors stay, and the loss is counted."""
    observer = QueueObserver(maxsize=2)
    ctx = make_context("x", services=Services(observer=observer))
    for number in range(4):
        await ctx.emit("progress", str(number))
        await ctx.emit("result", f"r{number}")
    observer.close()
    assert [seen.render async for seen in observer] == ["r0", "r1", "2", "r2", "3", "r3"]
    assert observer.dropped == 2


async def test_a_reader_waits_and_ends_with_close():
    """Reading begins before anything is told and ends when the observer closes; later observations are counted."""
    observer = QueueObserver()
    ctx = make_context("x", services=Services(observer=observer))

    async def read():
        return [seen.render async for seen in observer]

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    await ctx.emit("progress", "one")
    await asyncio.sleep(0)
    await ctx.emit("progress", "two")
    observer.close()
    assert await task == ["one", "two"]
    await ctx.emit("result", "late")
    assert observer.dropped == 1


def test_a_queue_without_places_is_refused():
    """Zero, negative and boolean sizes are named."""
    for size in (0, -1, True):
        with pytest.raises(ConfigurationError, match="maxsize"):
            QueueObserver(size)
