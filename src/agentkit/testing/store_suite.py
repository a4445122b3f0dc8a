"""What every store has to hold, as checks that a test of your own store runs.

`make` opens a new, empty store over the clock it is given, as an async context manager:

async def test_mine(): await check_run_log(lambda clock: my_empty_log(clock))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from agentkit.core.contracts import KeyValueStore, LogRecord, RunLog, Slot
from agentkit.core.runtime.clock import Clock
from agentkit.errors import RunConflict
from agentkit.testing.clock import ManualClock

__all__ = [
    "KEY_VALUE_CHECKS",
    "RUN_LOG_CHECKS",
    "check_key_value_store",
    "check_run_log",
]

_SLOT = Slot("acme", "run-1")
_STRANGE = ("a:b/c", "a", "b/c", "", "ü\U0001f600", "%", "a' OR '1'='1")


async def check_run_log(make: Callable[[Clock], AbstractAsyncContextManager[RunLog]]) -> None:
    """Raise AssertionError naming what a run log does wrong; every check gets a new log."""
    for check in RUN_LOG_CHECKS:
        clock = ManualClock()
        async with make(clock) as log:
            await check(log, clock)


async def check_key_value_store(make: Callable[[Clock], AbstractAsyncContextManager[KeyValueStore]]) -> None:
    """Raise AssertionError naming what a key-value store does wrong; every check gets a new store."""
    for check in KEY_VALUE_CHECKS:
        clock = ManualClock()
        async with make(clock) as store:
            await check(store, clock)


def _checkpoint(revision: int, data: bytes = b"{}") -> LogRecord:
    return LogRecord("checkpoint", str(revision), data)


async def _refused(step: Awaitable[object], what: str) -> None:
    try:
        await step
    except RunConflict:
        return
    raise AssertionError(f"{what} was not refused with RunConflict")


async def keeps_what_was_written(log: RunLog, clock: ManualClock) -> None:
    """Records come back in order, by kind and after a revision, byte for byte; nothing there is None, not an error."""
    assert await log.read(_SLOT) == (None, []), "a log that is empty has something to read"
    first = (_checkpoint(1, bytes(range(256))), LogRecord("journal", "1.0", b"intent"))
    second = (LogRecord("journal", "1.1", b""), LogRecord("approval", "1.1", b"yes"), _checkpoint(2))
    assert await log.append(_SLOT, 0, first, status="running") == 1, "the first append does not make revision 1"
    clock.advance(5)
    assert await log.append(_SLOT, 1, second, status="suspended") == 2, "the second append does not make revision 2"
    summary, records = await log.read(_SLOT)
    assert records == [*first, *second], "records came back in another order, or changed"
    assert summary is not None, "a slot that was written has no summary"
    assert (summary.slot, summary.status, summary.revision) == (_SLOT, "suspended", 2), f"wrong summary {summary!r}"
    assert summary.updated_at == clock.wall(), "the summary does not carry the time of the last append"
    assert (await log.read(_SLOT, after=1))[1] == list(second), "after= does not leave out earlier revisions"
    journal = (await log.read(_SLOT, kinds=("journal",)))[1]
    assert [record.key for record in journal] == ["1.0", "1.1"], "kinds= does not choose"
    assert await log.read(_SLOT, kinds=()) == (summary, []), "no kinds must give the summary alone"
    assert await log.append(_SLOT, 2, (), status="done") == 3, "an append without records cannot set the status"


async def compares_and_sets(log: RunLog, _clock: ManualClock) -> None:
    """Of many writers at one revision exactly one wins, and the others leave nothing."""
    await _refused(log.append(_SLOT, 1, (_checkpoint(2),), status="running"), "an append to a revision that never was")
    writers = [log.append(_SLOT, 0, (_checkpoint(1, bytes([n])),), status="running") for n in range(8)]
    results = await asyncio.gather(*writers, return_exceptions=True)
    assert results.count(1) == 1, f"one of eight writers must win: {results!r}"
    assert sum(isinstance(result, RunConflict) for result in results) == 7, f"the losers must conflict: {results!r}"
    summary, records = await log.read(_SLOT)
    winner = bytes([results.index(1)])
    assert [record.data for record in records] == [winner], "a loser left its record, or replaced the winner's"
    assert summary is not None, "the winner left no summary"
    assert summary.revision == 1, "a loser moved the revision"


async def writes_all_or_none(log: RunLog, clock: ManualClock) -> None:
    """A journal position is written once; an append that repeats one changes nothing at all."""
    await log.append(_SLOT, 0, (LogRecord("journal", "1.0", b"a"),), status="running")
    before = await log.read(_SLOT)
    clock.advance(1)
    again = (_checkpoint(2), LogRecord("journal", "1.1", b"b"), LogRecord("journal", "1.0", b"c"))
    await _refused(log.append(_SLOT, 1, again, status="done"), "a second write of a journal position")
    twice = (LogRecord("journal", "1.2", b"b"), LogRecord("journal", "1.2", b"c"))
    await _refused(log.append(_SLOT, 1, twice, status="done"), "one position twice in an append")
    assert await log.read(_SLOT) == before, "a refused append left part of itself"
    free = (LogRecord("journal", "1.1", b"b"), LogRecord("checkpoint", "1.0", b""), LogRecord("approval", "1.0", b""))
    assert await log.append(_SLOT, 1, free, status="running") == 2, "positions of a refused append must stay free"
    other = Slot("acme", "run-1", "lead/helper@1.0")
    assert await log.append(other, 0, (LogRecord("journal", "1.0", b"a"),), status="running") == 1, (
        "the same position in another slot of the run is another position"
    )


async def keeps_tenants_apart(log: RunLog, _clock: ManualClock) -> None:
    """No spelling of tenant, run and path reaches another's slot; another tenant's run is not there."""
    slots = [Slot(tenant, run, path) for tenant in _STRANGE for run in _STRANGE[:3] for path in ("", "b/c")]
    for number, slot in enumerate(slots):
        data = str(number).encode()
        assert await log.append(slot, 0, (_checkpoint(1, data),), status="running") == 1, f"{slot!r} was taken already"
    for number, slot in enumerate(slots):
        _, records = await log.read(slot)
        assert [record.data for record in records] == [str(number).encode()], f"{slot!r} holds another slot's record"
    assert await log.read(Slot("stranger", "a")) == (None, []), "another tenant's run was found"
    assert await log.slots("stranger") == [], "another tenant's runs were listed"
    await log.acquire(Slot("a", "a"), "one", ttl=10)
    await log.acquire(Slot("a:b/c", "a"), "two", ttl=10)
    await log.delete("a", "a")
    assert (await log.read(Slot("a:b/c", "a")))[0] is not None, "deleting one tenant's run took another's"
    assert len(await log.slots("a")) == 4, "deleting one run took another run of the tenant"


async def lists_by_status(log: RunLog, clock: ManualClock) -> None:
    """Slots are listed newest first, of one run or all, by status as it is now."""
    for number, status in enumerate(("running", "suspended", "done", "failed", "suspended")):
        clock.advance(0.5)
        await log.append(Slot("acme", f"run-{number}"), 0, (), status=status)  # type: ignore[arg-type]
    clock.advance(1)
    await log.append(Slot("acme", "run-1", "child"), 0, (), status="suspended")
    every = [(summary.slot.run_id, summary.slot.path) for summary in await log.slots("acme")]
    assert every[:2] == [("run-1", "child"), ("run-4", "")], f"not newest first: {every!r}"
    assert len(every) == 6, f"all slots are not all: {every!r}"
    suspended = await log.slots("acme", status="suspended")
    assert [summary.slot.run_id for summary in suspended] == ["run-1", "run-4", "run-1"], "status= does not choose"
    assert {summary.slot.path for summary in await log.slots("acme", "run-1")} == {"", "child"}, "run_id= misses a slot"
    clock.advance(1)
    await log.append(Slot("acme", "run-4"), 1, (), status="done")
    assert len(await log.slots("acme", status="suspended")) == 2, "a slot is listed under a status it left"
    assert (await log.slots("acme"))[0].slot.run_id == "run-4", "an append does not make its slot the newest"


async def deletes_a_run_whole(log: RunLog, _clock: ManualClock) -> None:
    """Deleting takes every slot with its records; the same positions can be written again; absent is fine."""
    child = Slot("acme", "run-1", "child")
    for slot in (_SLOT, child):
        await log.append(slot, 0, (LogRecord("journal", "1.0", b"a"),), status="done")
    await log.delete("acme", "run-1")
    assert await log.read(_SLOT) == (None, []), "a deleted slot is still there"
    assert await log.slots("acme") == [], "a deleted run is still listed"
    assert await log.append(child, 0, (LogRecord("journal", "1.0", b"b"),), status="running") == 1, "not gone wholly"
    await log.delete("acme", "never-was")


async def leases_to_one(log: RunLog, clock: ManualClock) -> None:
    """One owner holds a slot until the lease expires or is given back; renewing keeps it."""
    lease = await log.acquire(_SLOT, "one", ttl=10)
    assert lease.expires_at == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC), f"wrong end {lease.expires_at}"
    assert await log.read(_SLOT) == (None, []), "taking a lease made a run"
    assert await log.slots("acme") == [], "taking a lease made a run"
    clock.advance(9)
    await _refused(log.acquire(_SLOT, "two", ttl=10), "a second owner")
    lease = await log.renew(lease, ttl=10)
    clock.advance(9)
    await _refused(log.acquire(_SLOT, "two", ttl=10), "a second owner after a renewal")
    await log.acquire(Slot("acme", "run-1", "child"), "two", ttl=10)
    await log.acquire(Slot("other", "run-1"), "two", ttl=10)
    await log.release(lease)
    await log.release(lease)
    later = await log.acquire(_SLOT, "two", ttl=10)
    assert later.fence > lease.fence, "the fence did not grow with the holder"
    await log.release(lease)
    await _refused(log.acquire(_SLOT, "three", ttl=10), "an owner after a former holder's release")
    tries = [log.acquire(Slot("acme", "fresh"), f"w{n}", ttl=10) for n in range(6)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, RunConflict) for result in results) == 5, f"one of six must get it: {results!r}"


async def fences_off_a_lost_lease(log: RunLog, clock: ManualClock) -> None:
    """Whoever lost the lease, by expiry, by release or by the run's deletion, can neither write nor renew."""
    old = await log.acquire(_SLOT, "one", ttl=10)
    assert await log.append(_SLOT, 0, (_checkpoint(1),), status="running", fence=old.fence) == 1, "the holder may write"
    clock.advance(10)
    new = await log.acquire(_SLOT, "two", ttl=10)
    await _refused(
        log.append(_SLOT, 1, (_checkpoint(2),), status="done", fence=old.fence), "a write under a lost lease"
    )
    await _refused(log.renew(old, ttl=10), "a renewal of a lost lease")
    assert await log.append(_SLOT, 1, (_checkpoint(2),), status="running", fence=new.fence) == 2, "the holder may write"
    summary, _ = await log.read(_SLOT)
    assert summary is not None, "a slot that was written has no summary"
    assert summary.status == "running", "a refused write changed the status"
    await log.release(new)
    await _refused(log.append(_SLOT, 2, (), status="done", fence=new.fence), "a write after giving the lease back")
    await _refused(log.renew(new, ttl=10), "a renewal after giving the lease back")
    held = await log.acquire(_SLOT, "two", ttl=10)
    again = await log.acquire(_SLOT, "two", ttl=10)
    await _refused(log.append(_SLOT, 2, (), status="done", fence=held.fence), "a write under an owner's former lease")
    await log.delete("acme", "run-1")
    await _refused(log.append(_SLOT, 0, (), status="running", fence=again.fence), "a write of a deleted run's holder")
    last = await log.acquire(_SLOT, "three", ttl=10)
    assert last.fence > again.fence, "deleting the run let the fence start again"
    await _refused(log.append(_SLOT, 0, (), status="running", fence=again.fence), "a write under a deleted run's fence")
    assert await log.append(_SLOT, 0, (), status="running", fence=last.fence) == 1, "the last holder may write"


async def caches_by_tenant(store: KeyValueStore, _clock: ManualClock) -> None:
    """A value is its tenant's alone, the last write wins, deleting is exact and absent is fine."""
    pairs = [(tenant, key) for tenant in _STRANGE for key in _STRANGE]
    for number, (tenant, key) in enumerate(pairs):
        await store.set(tenant, key, b"old")
        await store.set(tenant, key, bytes([number, 0]))
    for number, (tenant, key) in enumerate(pairs):
        assert await store.get(tenant, key) == bytes([number, 0]), f"{tenant!r} {key!r} holds another value"
    await store.delete("a", "a")
    await store.delete("a", "a")
    assert await store.get("a", "a") is None, "a deleted value is still there"
    assert await store.get("a", "a:b/c") is not None, "deleting one key took another"


async def forgets_in_time(store: KeyValueStore, clock: ManualClock) -> None:
    """A value lives its seconds to the moment; without a time to live it stays; writing again starts anew."""
    await store.set("t", "short", b"1", ttl=10)
    await store.set("t", "again", b"1", ttl=10)
    await store.set("t", "kept", b"1")
    await store.set("t", "kept-now", b"1", ttl=10)
    clock.advance(9.5)
    assert await store.get("t", "short") == b"1", "a value went before its time"
    await store.set("t", "again", b"2", ttl=10)
    await store.set("t", "kept-now", b"2")
    clock.advance(0.5)
    assert await store.get("t", "short") is None, "a value outlived its time"
    assert await store.get("t", "again") == b"2", "writing again does not start the time anew"
    clock.advance(1e6)
    assert await store.get("t", "again") is None, "a value outlived its time"
    assert await store.get("t", "kept") == b"1", "a value without a time to live went"
    assert await store.get("t", "kept-now") == b"2", "the time to live of an earlier write stayed"


RUN_LOG_CHECKS: tuple[Callable[[RunLog, ManualClock], Awaitable[None]], ...] = (
    keeps_what_was_written,
    compares_and_sets,
    writes_all_or_none,
    keeps_tenants_apart,
    lists_by_status,
    deletes_a_run_whole,
    leases_to_one,
    fences_off_a_lost_lease,
)
KEY_VALUE_CHECKS: tuple[Callable[[KeyValueStore, ManualClock], Awaitable[None]], ...] = (
    caches_by_tenant,
    forgets_in_time,
)
