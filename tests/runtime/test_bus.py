"""The lossy, replayable bus."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from agentkit.core.runtime.bus import EventBus, Versioned
from agentkit.errors import ConfigurationError


async def all_of(subscription):
    """Return everything until the stream ends."""
    return [(item.version, item.event) async for item in subscription]


async def test_versions_replay_and_end():
    """Events are numbered from 1, a late reader gets the kept ones after `from_version`, and closing ends it."""
    bus = EventBus()
    assert [bus.publish("a", event) for event in "xyz"] == [1, 2, 3]
    everything, later, new = bus.subscribe("a"), bus.subscribe("a", from_version=2), bus.subscribe("a", replay=False)
    assert bus.publish("a", "w") == 4
    bus.close_stream("a")
    assert await all_of(everything) == [(1, "x"), (2, "y"), (3, "z"), (4, "w")]
    assert await all_of(later) == [(3, "z"), (4, "w")]
    assert await all_of(new) == [(4, "w")]


async def test_the_ring_is_bounded():
    """Only the last `ring_size` events are replayed; the numbers show the gap."""
    bus = EventBus(ring_size=3)
    for number in range(10):
        bus.publish("a", number)
    reader = bus.subscribe("a")
    bus.close_stream("a")
    assert await all_of(reader) == [(8, 7), (9, 8), (10, 9)]


async def test_a_slow_reader_loses_events_and_the_publisher_never_waits(caplog):
    """Beyond `queue_size` unread events the newest are dropped for that reader, counted and logged once."""
    bus = EventBus(queue_size=2)
    slow, fast = bus.subscribe("a", "slow"), bus.subscribe("a", "fast")
    with caplog.at_level(logging.WARNING, "agentkit.bus"):
        for number in range(1, 6):
            bus.publish("a", number)
            assert (await anext(fast)).event == number
    bus.close_stream("a")
    assert await all_of(slow) == [(1, 1), (2, 2)]
    assert (slow.dropped, fast.dropped) == (3, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "subscriber 'slow' is too slow; events are dropped for it"
    ]


async def test_closing_reaches_readers_that_wait_and_full_ones():
    """A reader that waits, and one whose queue is full, both end (fault 115)."""
    bus = EventBus(queue_size=1)
    waiting, full = bus.subscribe("a"), bus.subscribe("b")
    task = asyncio.create_task(all_of(waiting))
    await asyncio.sleep(0)
    for number in range(3):
        bus.publish("b", number)
    bus.close_stream("a")
    bus.close_stream("b")
    assert await task == []
    assert await all_of(full) == [(1, 0)]


async def test_a_closed_id_ends_late_readers_and_publishing_reopens_it():
    """Subscribing to a closed id ends at once and does not reopen it; publishing does, and its numbers go on."""
    bus = EventBus()
    bus.publish("a", "x")
    bus.close_stream("a")
    assert await all_of(bus.subscribe("a")) == []
    assert bus.publish("a", "y") == 2
    reader = bus.subscribe("a")
    bus.close_stream("a")
    assert await all_of(reader) == [(2, "y")]


async def test_tombstones_are_bounded_and_not_evicted_by_closing_again():
    """The memory of closed ids holds `closed_size` of them; re-closing one id evicts no other (fault 115)."""
    bus = EventBus(closed_size=2)
    for name in ("a", "b", "b", "b", "b"):
        bus.close_stream(name)
    assert await all_of(bus.subscribe("a")) == []
    bus.close_stream("c")
    open_again = bus.subscribe("a")
    bus.publish("a", 1)
    assert (await anext(open_again)).event == 1


async def test_publishing_from_threads_loses_nothing():
    """Publishers in threads and a reader that attaches meanwhile: each number once, none missing."""
    bus = EventBus(ring_size=100_000, queue_size=100_000)

    def work():
        for number in range(500):
            bus.publish("a", number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    reader = bus.subscribe("a")
    reading = asyncio.create_task(all_of(reader))
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    bus.close_stream("a")
    assert [version for version, _ in await reading] == list(range(1, 2001))


async def test_leaving_detaches():
    """`async with`, `close` and forgetting the reader detach it; a reader that waits ends."""
    bus = EventBus()
    async with bus.subscribe("a") as reader:
        bus.publish("a", 1)
    assert await all_of(reader) == []
    waiting = bus.subscribe("a", replay=False)
    task = asyncio.create_task(all_of(waiting))
    await asyncio.sleep(0)
    waiting.close()
    assert await task == []
    bus.subscribe("a")
    del reader, waiting, task
    gc.collect()
    assert len(bus._streams["a"].readers) == 0


async def test_shutdown_ends_everything():
    """After `shutdown` every reader ends and later events are dropped."""
    bus = EventBus()
    readers = [bus.subscribe("a"), bus.subscribe("b")]
    bus.shutdown()
    assert [await all_of(reader) for reader in readers] == [[], []]
    assert bus.publish("a", 1) == 0
    assert await all_of(bus.subscribe("new")) == []
    assert Versioned(1, "x") == Versioned(1, "x")


@pytest.mark.parametrize("name", ["ring_size", "queue_size", "closed_size"])
def test_sizes_are_checked(name):
    """A size below 1 is refused by name."""
    with pytest.raises(ConfigurationError, match=name):
        EventBus(**{name: 0})
