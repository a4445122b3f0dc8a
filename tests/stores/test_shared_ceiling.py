"""One ceiling over several real processes: never passed, also when a third of them is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import agentkit
from agentkit.core.contracts import CostQuery, SharedSpend
from agentkit.stores import (
    PostgresKeyValueStore,
    PostgresLedgerStore,
    PostgresPlace,
    PostgresRunLog,
    Store,
    open_store,
)
from agentkit.testing import ManualClock

CEILING = Decimal("1.00")
WORKERS = 6

WORKER = """
import asyncio, random, sys
from datetime import UTC, datetime
from decimal import Decimal
from agentkit.core.contracts import CostQuery, LedgerEntry, SharedCeiling
from agentkit.stores import (
    PostgresKeyValueStore,
    PostgresLedgerStore,
    PostgresPlace,
    PostgresRunLog,
    Store,
    open_store,
)
from agentkit.testing.ledger_suite import entry
from agentkit.core.runtime.clock import SYSTEM_CLOCK

async def main(url, schema, name):
    if schema:
        ledger = PostgresLedgerStore(PostgresPlace(url, schema=schema))
    else:
        ledger = open_store(url, durability="normal").ledger
    ceiling = SharedCeiling("acme", Decimal("1.00"))
    pick = random.Random(name)
    number = 0
    while True:
        number += 1
        call = f"{name}-{number}"
        opened = entry(SYSTEM_CLOCK, call, state="open")
        refusal = await ledger.begin(opened, hold=Decimal("0.03"), ceilings=[ceiling], lease=3600)
        if refusal is not None:
            if not refusal.in_flight:
                print("full", flush=True)
                return
            continue
        print("began", call, flush=True)
        cost = f"{pick.randrange(4)}e-2"
        await ledger.settle([entry(SYSTEM_CLOCK, call, cost)])
        print("ended", call, cost, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server("postgres"))])
def shared(request, tmp_path):
    """Return the arguments of a worker, and what opens the same ledger here over a clock."""
    if request.param == "sqlite":
        where = f"sqlite:{tmp_path / 'runs.db'}"
        return (where, ""), lambda clock: open_store(where, clock=clock)
    url, schema = request.getfixturevalue("postgres_url"), f"shared{os.getpid()}"

    def opened(clock):
        place = PostgresPlace(url, schema=schema, clock=clock)
        return Store(PostgresRunLog(place), PostgresKeyValueStore(place), PostgresLedgerStore(place), durable=True)

    return (url, schema), opened


def started(tmp_path: Path, arguments: tuple[str, str], name: str) -> subprocess.Popen[str]:
    """Start a worker."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    source = str(Path(agentkit.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, str(script), *arguments, name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


async def test_killed_workers_leave_no_hold_and_nobody_passes_the_ceiling(shared, tmp_path):
    """Spent, held and uncertain stay within the ceiling at every look; what the dead held is free after its lease."""
    arguments, opened = shared
    store = opened(ManualClock())
    ledger = store.ledger
    await ledger.standing("acme")
    workers = [started(tmp_path, arguments, f"w{number}") for number in range(WORKERS)]
    doomed = workers[: WORKERS // 3]
    pick = random.Random(7)
    told: list[str] = []

    async def read(worker: subprocess.Popen[str]) -> None:
        lives = pick.randrange(2, 9)
        while line := await asyncio.to_thread(worker.stdout.readline):
            told.append(line)
            lives -= 1
            if worker in doomed and lives == 0:
                worker.send_signal(signal.SIGKILL)

    reading = asyncio.gather(*(read(worker) for worker in workers))
    looks: list[SharedSpend] = []
    while not reading.done():
        looks.append(await ledger.standing("acme"))
        await asyncio.wait([reading], timeout=0.01)
        if len(looks) > 30 and not any(worker.poll() is None for worker in workers if worker not in doomed):
            break
        if looks[-1].held and looks[-1].spent + looks[-1].held > Decimal("0.97") and not _moving(looks):
            break
    await _finish(workers, reading)
    assert all(look.spent + look.held + look.uncertain <= CEILING for look in looks)
    ended = {line.split()[1]: Decimal(line.split()[2]) for line in told if line.startswith("ended")}
    rows = {}
    after = 0
    while after is not None:
        page = await ledger.entries(CostQuery(tenant="acme"), after=after)
        rows |= {row.record.call_id: row for row in page.entries}
        after = page.next
    assert set(ended) <= {call for call, row in rows.items() if row.state == "settled"}
    standing = await ledger.standing("acme")
    settled = sum((row.record.known_cost for row in rows.values()), Decimal(0))
    open_rows = [row for row in rows.values() if row.state == "open"]
    assert standing == SharedSpend(settled, Decimal("0.03") * len(open_rows))
    assert settled <= CEILING
    later = ManualClock()
    later.advance((datetime(2100, 1, 1, tzinfo=UTC) - later.wall()).total_seconds())
    await store.aclose()
    store = opened(later)
    late = store.ledger
    assert await late.standing("acme") == SharedSpend(settled), "the dead still hold something"
    (total,) = await late.totals(CostQuery(tenant="acme"))
    assert (total.known_cost, total.incomplete) == (settled, len(open_rows))
    await store.aclose()


def _moving(looks: list[SharedSpend]) -> bool:
    return len(set(looks[-60:])) > 1 or len(looks) < 60


async def _finish(workers: list[subprocess.Popen[str]], reading: asyncio.Future[list[None]]) -> None:
    for worker in workers:
        worker.kill()
    await reading
    for worker in workers:
        worker.wait()
        worker.stdout.close()
