"""PostgreSQL: errors that say so without secrets, several loops, cancelled callers, and two workers at once."""

from __future__ import annotations

import asyncio
import itertools
import os

import pytest

from agentkit.core.contracts import LogRecord, Slot
from agentkit.errors import ConfigurationError, RunConflict, StoreError
from agentkit.stores import PostgresKeyValueStore, PostgresPlace, PostgresRunLog, open_store

pytestmark = pytest.mark.server("postgres")
NUMBERS = itertools.count(os.getpid() * 10_000)
SLOT = Slot("acme", "run")


def new_place(url: str) -> PostgresPlace:
    """Return a place with a schema of its own."""
    return PostgresPlace(url, schema=f"p{next(NUMBERS)}")


async def test_no_error_shows_the_password():
    """A server that cannot be reached is a StoreError that names the host and nothing secret."""
    store = open_store("postgresql://app:hunter2-secret@127.0.0.1:1/agents")
    with pytest.raises(StoreError, match="PostgreSQL at 127.0.0.1/agents") as caught:
        await store.kv.get("acme", "k")
    told = "".join(map(str, (caught.value, repr(caught.value), caught.value.__cause__, store.kv._place)))
    assert "hunter2" not in told
    await store.aclose()
    with pytest.raises(ConfigurationError) as refused:
        open_store("mysql://app:hunter2-secret@127.0.0.1/agents")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="schema='Robert; DROP'"):
        PostgresPlace("postgresql://127.0.0.1/x", schema="Robert; DROP")


def test_one_place_serves_successive_loops(postgres_url):
    """Each loop has its own connections, and what one wrote the next one reads."""
    place = new_place(postgres_url)

    async def write(value: bytes) -> bytes | None:
        store = PostgresKeyValueStore(place)
        before = await store.get("acme", "k")
        await store.set("acme", "k", value)
        return before

    assert [asyncio.run(write(b"one")), asyncio.run(write(b"two")), asyncio.run(write(b"three"))] == [
        None,
        b"one",
        b"two",
    ]


async def test_a_closed_place_says_so(postgres_url):
    """After aclose every use is an error; closing twice is none."""
    place = new_place(postgres_url)
    await PostgresKeyValueStore(place).set("acme", "k", b"v")
    await place.aclose()
    await place.aclose()
    with pytest.raises(StoreError, match="closed"):
        await PostgresKeyValueStore(place).get("acme", "k")


async def test_many_make_the_tables_at_once(postgres_url):
    """Workers that start together on an empty database all find their tables."""
    schema = f"p{next(NUMBERS)}"
    places = [PostgresPlace(postgres_url, schema=schema) for _ in range(5)]
    await asyncio.gather(*(PostgresKeyValueStore(place).set("t", "k", b"v") for place in places))
    await asyncio.gather(*(place.aclose() for place in places))


async def test_of_two_writers_one_wins(postgres_url):
    """Ten writers of one revision, over two places: one append is kept, nine are conflicts."""
    schema = f"p{next(NUMBERS)}"
    places = [PostgresPlace(postgres_url, schema=schema) for _ in range(2)]
    logs = [PostgresRunLog(places[number % 2]) for number in range(10)]
    for revision in range(3):
        outcomes = await asyncio.gather(
            *(
                log.append(SLOT, revision, [LogRecord("checkpoint", str(revision), b"x")], status="running")
                for log in logs
            ),
            return_exceptions=True,
        )
        assert [outcome for outcome in outcomes if not isinstance(outcome, RunConflict)] == [revision + 1]
    _, records = await logs[0].read(SLOT)
    assert len(records) == 3
    await asyncio.gather(*(place.aclose() for place in places))


async def test_a_cancelled_caller_leaves_all_or_nothing(postgres_url):
    """Wherever an append is cancelled, its records are all there or none is, and the pool goes on serving."""
    place = new_place(postgres_url)
    log = PostgresRunLog(place)
    await log.slots("acme")
    for steps in range(12):
        slot = Slot("acme", f"run-{steps}")
        records = [LogRecord("journal", str(number), b"x" * 100) for number in range(3)]
        task = asyncio.ensure_future(log.append(slot, 0, records, status="running"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        _, kept = await log.read(slot)
        assert len(kept) in (0, 3)
    await place.aclose()
