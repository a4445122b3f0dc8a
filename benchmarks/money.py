"""What money costs in time and memory: python -m benchmarks.money

Each row is a ratio to the bare thing in the same run (a dictionary, an INSERT loop), and the absolute figure beside it.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import statistics
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from agentkit.core.contracts import (
    Call,
    ChatRequest,
    CostRecord,
    LedgerEntry,
    Quote,
    SharedCeiling,
    Usage,
    UserMessage,
    encode_data,
)
from agentkit.core.runtime import Budget, Quota, RunContext, Scope
from agentkit.stores import open_store

ROUNDS = 7
CALLS = 5_000
LEDGER_CALLS = 4_000
KEYS = 2_000
REQUEST = ChatRequest((UserMessage("hello"),))


def call(number: int, tenant: str = "acme") -> Call[ChatRequest]:
    ctx = RunContext(f"run-{number}", Scope(tenant))
    return Call(ctx, REQUEST, f"call-{number}", None, 1, "main", Quote(100, 50, Decimal("0.0030")))


def record(of: Call[ChatRequest]) -> CostRecord:
    return CostRecord(
        run_id=of.ctx.correlation_id,
        path="",
        call_id=of.id,
        attempt=1,
        purpose="main",
        provider="p",
        model="m",
        outcome="ok",
        usage=Usage(100, 40),
        cost=Decimal("0.0025"),
        known_cost=Decimal("0.0025"),
    )


async def budget_seconds(calls: list[Call[ChatRequest]], records: list[CostRecord]) -> float:
    budget = Budget("1000000")
    start = time.process_time()
    for each, row in zip(calls, records, strict=True):
        await budget.reserve(each)
        budget.settle(each, row)
    budget.spent()
    return (time.process_time() - start) / len(calls)


async def quota_seconds(calls: list[Call[ChatRequest]], records: list[CostRecord]) -> float:
    quota = Quota(max_rpm=10**9, max_tpm=10**9, max_usd="1000000")
    start = time.process_time()
    for each, row in zip(calls, records, strict=True):
        await quota.reserve(each)
        quota.settle(each, row)
    return (time.process_time() - start) / len(calls)


async def dict_seconds(calls: list[Call[ChatRequest]], records: list[CostRecord]) -> float:
    spent: dict[str, Decimal] = {}
    held: dict[str, Decimal] = {}

    async def reserve(each: Call[ChatRequest]) -> None:
        held[each.id] = each.quote.cost

    start = time.process_time()
    for each, row in zip(calls, records, strict=True):
        await reserve(each)
        del held[each.id]
        spent["acme"] = spent.get("acme", Decimal(0)) + row.cost
    return (time.process_time() - start) / len(calls)


async def ledger_rate(folder: Path, *, shared: bool) -> float:
    """Calls a second: each begins and ends, 200 at a time, as a service makes them."""
    store = open_store(folder / f"ledger-{time.monotonic_ns()}.db")
    ceilings = [SharedCeiling("acme", Decimal(10**9))] if shared else []
    numbers = iter(range(LEDGER_CALLS))

    async def work() -> None:
        for number in numbers:
            row = record(call(number))
            opened = LedgerEntry(tenant="acme", record=row, at=datetime.now(UTC), state="open")
            await store.ledger.begin(opened, hold=Decimal("0.003"), ceilings=ceilings)
            await store.ledger.settle([LedgerEntry(tenant="acme", record=row, at=opened.at)])

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(200)))
    seconds = time.perf_counter() - start
    await store.aclose()
    return LEDGER_CALLS / seconds


def insert_rate(folder: Path) -> float:
    """Rows a second of a bare loop that inserts the same bytes, one transaction each."""
    db = sqlite3.connect(folder / f"bare-{time.monotonic_ns()}.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, entry BLOB NOT NULL)")
    entry = encode_data("ledger_entry", LedgerEntry(tenant="acme", record=record(call(1)), at=datetime.now(UTC)))
    start = time.perf_counter()
    for _ in range(LEDGER_CALLS):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (entry) VALUES (?)", (entry,))
        db.execute("COMMIT")
    seconds = time.perf_counter() - start
    db.close()
    return LEDGER_CALLS / seconds


async def key_bytes() -> tuple[float, int]:
    """Bytes of an active tenant's key with one attempt behind it, and the keys left a window later."""
    now = [0.0]
    quota = Quota(max_rpm=100, max_tpm=10**6, max_usd="10", clock=lambda: now[0])
    calls = [call(number, f"tenant-{number}") for number in range(KEYS)]
    rows = [record(each) for each in calls]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for each, row in zip(calls, rows, strict=True):
        await quota.guard(each)
        quota.settle(each, row)
    gc.collect()
    used = (tracemalloc.get_traced_memory()[0] - before) / KEYS
    tracemalloc.stop()
    now[0] += 130
    return used, len(quota.keys())


async def main() -> None:
    calls = [call(number) for number in range(CALLS)]
    records = [record(each) for each in calls]
    budget, quota, bare = [], [], []
    for _ in range(ROUNDS):
        budget.append(await budget_seconds(calls, records))
        quota.append(await quota_seconds(calls, records))
        bare.append(await dict_seconds(calls, records))
    middle = statistics.median
    print(
        f"reserve + settle, budget   {middle(budget) * 1e6:6.2f} us   {middle(budget) / middle(bare):5.1f} x a dictionary"
    )
    print(
        f"reserve + settle, quota    {middle(quota) * 1e6:6.2f} us   {middle(quota) / middle(bare):5.1f} x a dictionary"
    )
    with tempfile.TemporaryDirectory() as folder:
        plain, shared, inserts = [], [], []
        for _ in range(3):
            plain.append(await ledger_rate(Path(folder), shared=False))
            shared.append(await ledger_rate(Path(folder), shared=True))
            inserts.append(insert_rate(Path(folder)))
    bare_rate = middle(inserts)
    print(
        f"ledger, begin and end      {middle(plain):6.0f} calls/s   {middle(plain) / bare_rate:5.2f} of a bare INSERT loop"
    )
    print(
        f"  under a shared ceiling   {middle(shared):6.0f} calls/s   {middle(shared) / bare_rate:5.2f} of a bare INSERT loop"
    )
    used, left = await key_bytes()
    print(f"an active key of a quota   {used:6.0f} bytes; keys left a window later: {left}")


if __name__ == "__main__":
    asyncio.run(main())
