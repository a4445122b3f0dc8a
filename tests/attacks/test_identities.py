"""Ids are names of rows: two workers that share one lose each other's money."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentkit import CallRuntime, Scope
from agentkit.core.contracts import CostQuery
from agentkit.errors import ConfigurationError

WORKERS = """
import asyncio, os, sys
from agentkit import Binding, CallRuntime, Usage
from agentkit.testing import Reply, ScriptedModel

async def work():
    async with CallRuntime(store=sys.argv[1]) as calls:
        model = Binding(ScriptedModel([Reply("Yes.", usage=Usage(1000, 1000))]), price="1/1")
        await calls.ask(model, "Is it so?")

workers = []
for _ in range(3):
    worker = os.fork()
    if not worker:
        asyncio.run(work())
        os._exit(0)
    workers.append(worker)
sys.exit(max(os.waitpid(worker, 0)[1] for worker in workers))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows forks nothing")
async def test_forked_workers_make_up_runs_and_calls_of_their_own(tmp_path):
    """What workers forked from one process spend, as a server that loads the app before it forks has them, adds up."""
    store = f"sqlite:{tmp_path / 'ledger.db'}"
    subprocess.run([sys.executable, "-c", WORKERS, store], check=True, timeout=60)
    async with CallRuntime(store=store) as calls:
        (total,) = await calls.services.ledger.totals(CostQuery(tenant=None))
        rows = (await calls.services.ledger.entries(CostQuery(tenant=None))).entries
    assert (total.calls, total.input_tokens, str(total.cost)) == (3, 3000, "0.006000000000")
    assert len({row.record.run_id for row in rows}) == len({row.record.call_id for row in rows}) == 3


@pytest.mark.parametrize("name", ["acme\x00", "acme\ud800", "\udc00"])
def test_a_name_that_stores_would_change_is_refused(name):
    """Two tenants never become one because a store cannot hold their names as they are."""
    with pytest.raises(ConfigurationError, match="tenant="):
        Scope(tenant=name)
    with pytest.raises(ConfigurationError, match="user="):
        Scope(tenant="acme", user=name)
