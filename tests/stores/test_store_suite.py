"""Memory, SQLite and PostgreSQL hold the same suite, which also finds what a store does wrong."""

from __future__ import annotations

import itertools
import os
from contextlib import asynccontextmanager

import pytest

from agentkit.stores import (
    MemoryRunLog,
    PostgresKeyValueStore,
    PostgresLedgerStore,
    PostgresPlace,
    PostgresRunLog,
    Store,
    open_store,
)
from agentkit.testing import ManualClock
from agentkit.testing.ledger_suite import LEDGER_CHECKS, check_ledger_store
from agentkit.testing.store_suite import (
    KEY_VALUE_CHECKS,
    RUN_LOG_CHECKS,
    check_key_value_store,
    check_run_log,
)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.server("postgres"))])
def place(request, tmp_path):
    """Return what opens a new, empty store over a clock."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return lambda clock: postgres_store(PostgresPlace(url, schema=f"t{next(NUMBERS)}", clock=clock))
    where = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    return lambda clock: open_store(where, clock=clock)


def postgres_store(place):
    """Return the stores over a schema of their own."""
    return Store(PostgresRunLog(place), PostgresKeyValueStore(place), PostgresLedgerStore(place), durable=True)


NUMBERS = itertools.count(os.getpid() * 10_000)


CHECKS = [
    pytest.param(part, check, id=check.__name__)
    for part, checks in (("run_log", RUN_LOG_CHECKS), ("kv", KEY_VALUE_CHECKS), ("ledger", LEDGER_CHECKS))
    for check in checks
]


@pytest.mark.parametrize(("part", "check"), CHECKS)
async def test_embedded_store(place, part, check):
    """The run log, the cache and the ledger hold each rule of their suite."""
    clock = ManualClock()
    store = place(clock)
    try:
        await check(getattr(store, part), clock)
    finally:
        await store.aclose()


def opener(tmp_path, part):
    """Return what opens a new file for every check."""
    numbers = iter(range(100))

    @asynccontextmanager
    async def make(clock):
        store = open_store(tmp_path / f"{next(numbers)}.db", clock=clock, durability="normal")
        try:
            yield getattr(store, part)
        finally:
            await store.aclose()

    return make


async def test_the_public_entries_run_every_check(tmp_path):
    """A store of somebody else's is held by one call a port."""
    await check_run_log(opener(tmp_path, "run_log"))
    await check_key_value_store(opener(tmp_path, "kv"))
    await check_ledger_store(opener(tmp_path, "ledger"))


class Forgetful(MemoryRunLog):
    """Leaves a refused append's records behind."""

    async def append(self, slot, expected_revision, records, *, status, fence=None):
        summary, _ = await self.read(slot)
        revision = summary.revision if summary else 0
        return await super().append(slot, revision, records, status=status, fence=fence)


class Unfenced(MemoryRunLog):
    """Does not look at the fence."""

    async def append(self, slot, expected_revision, records, *, status, fence=None):
        return await super().append(slot, expected_revision, records, status=status)


class Shared(MemoryRunLog):
    """Lists everybody's runs."""

    async def slots(self, tenant, run_id=None, *, status=None):
        everybody = [await MemoryRunLog.slots(self, owner, run_id, status=status) for owner in ("acme", "a", tenant)]
        return [found for tenants in everybody for found in tenants]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Forgetful, "an append to a revision that never was was not refused"),
        (Unfenced, "a write under a lost lease was not refused"),
        (Shared, "another tenant's runs were listed"),
    ],
)
async def test_the_suite_finds_what_is_broken(broken, complaint):
    """A log without compare-and-set, without fences, or without tenants does not pass."""

    @asynccontextmanager
    async def make(clock):
        yield broken(clock=clock)

    with pytest.raises(AssertionError, match=complaint):
        await check_run_log(make)
