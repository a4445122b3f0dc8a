"""Several processes, each with a whole runtime, under one ceiling and one quota; a third of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from money import worker
from money.gates import all_rows

import agentkit
from agentkit import Usage
from agentkit.core.contracts import CostQuery, SharedSpend
from agentkit.testing import ManualClock
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import Turn

CEILING = Decimal(worker.CEILING)
PER_TOKEN = Decimal("0.00001")
SOURCE = Path(agentkit.__file__).parent.parent


class Server:
    """Answers, counts and bills requests by worker; the doomed are killed inside their n-th request."""

    def __init__(self, doomed=()):
        self.doomed = dict(doomed)
        self.requests = Counter()
        self.billed = Counter()
        self.killed = Decimal(0)  # what the calls of the dead may have cost at most
        self.pids = {}

    def answer(self, received):
        """Return the next answer."""
        body = received.body
        name = body["messages"][-1]["content"]
        asked = body.get("max_completion_tokens") or body["max_tokens"]
        self.requests[name] += 1
        used = Usage(9, min(asked, 40 + 13 * (self.requests.total() % 7)))
        if name in self.doomed and self.requests[name] >= self.doomed[name]:
            os.kill(self.pids[name], signal.SIGKILL)
            self.killed += (used.input_tokens + asked) * PER_TOKEN
            return HttpAnswer(pieces=(), then="hang")
        self.billed[name] += used.total_tokens * PER_TOKEN
        return Turn(text="yes", usage=used)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server("postgres"))])
def where(request, tmp_path):
    """Return the address of a store and the schema there."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'runs.db'}", ""
    return request.getfixturevalue("postgres_url"), f"workers{os.getpid()}"


async def work(server, url, where, names, redis=""):
    """Start these workers, let them begin together, and return how each ended."""
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{Path(__file__).parent.parent}"}
    processes = {}
    for name in names:
        processes[name] = await asyncio.create_subprocess_exec(
            sys.executable,
            worker.__file__,
            *where,
            url,
            name,
            redis,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        server.pids[name] = processes[name].pid
    for process in processes.values():
        assert await process.stdout.readline() == b"ready\n"
    for process in processes.values():
        process.stdin.write(b"go\n")
    return {name: await process.wait() for name, process in processes.items()}


async def test_nobody_passes_the_ceiling_and_the_dead_give_back_what_they_held(where):
    """Four workers, two killed inside a call: no overshoot, each request has its row, and the rest can be spent."""
    server = Server({"w0": 2, "w1": 1})
    store = worker.opened(*where)
    await store.ledger.standing(worker.KEY)  # the tables are there
    async with LoopbackServer(server.answer) as loopback:
        ended = await work(server, loopback.url, where, ["w0", "w1", "w2", "w3"])
        assert ended == {"w0": -signal.SIGKILL, "w1": -signal.SIGKILL, "w2": 0, "w3": 0}
        settled = await look(server, store)
        await store.aclose()

        late = ManualClock()
        late.advance((datetime(2100, 1, 1, tzinfo=UTC) - late.wall()).total_seconds())
        store = worker.opened(*where, clock=late)
        assert await store.ledger.standing(worker.KEY) == SharedSpend(settled)
        await worker.spend(store, loopback.url, "heir")
        standing = await store.ledger.standing(worker.KEY)
    assert server.requests["heir"] >= 1
    assert standing.spent == settled + server.billed["heir"] <= CEILING
    assert standing.held == standing.uncertain == 0
    assert CEILING - standing.spent < 64 * PER_TOKEN + Decimal("0.01"), "something that fits was refused"
    await store.aclose()


async def look(server, store):
    """Compare the ledger with the server's own count; return the dollars that are settled."""
    rows = await all_rows(store.ledger, CostQuery(tenant=None))
    count = Counter(row.record.run_id.partition(":")[0] for row in rows)
    spent = Counter()
    for row in rows:
        spent[row.record.run_id.partition(":")[0]] += row.record.known_cost
    for name in ("w2", "w3"):
        assert count[name] == server.requests[name]
        assert spent[name] == server.billed[name]
    for name in server.doomed:
        assert count[name] >= server.requests[name]
        assert spent[name] <= server.billed[name]
    settled = sum((row.record.known_cost for row in rows if row.state == "settled"), Decimal(0))
    still = [row for row in rows if row.state == "open"]
    assert {row.record.run_id.partition(":")[0] for row in still} == set(server.doomed)
    standing = await store.ledger.standing(worker.KEY)
    assert standing.spent == settled
    assert standing.held > 0
    assert sum(server.billed.values()) + server.killed <= standing.spent + standing.held <= CEILING
    return settled


@pytest.mark.server("redis")
async def test_one_quota_in_redis_for_all_workers(redis_server, tmp_path):
    """Three workers may make eleven requests together: the server sees exactly so many."""
    server = Server()
    async with LoopbackServer(server.answer) as loopback:
        where = (f"sqlite:{tmp_path / 'runs.db'}", "")
        ended = await work(server, loopback.url, where, ["a", "b", "c"], redis_server.url)
    assert set(ended.values()) == {0}
    assert server.requests.total() == 11
