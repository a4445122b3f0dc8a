"""Whole runtimes under random interleavings, cuts and faults: at every step the money adds up."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from money.programs import poor_setups, programs, setups, shared_setups, suspensions
from money.referee import check, check_end
from money.world import Setup, World

from agentkit.stores import SqliteFile, SqliteLedgerStore

pytestmark = pytest.mark.timeout(300)  # a failure takes a while to shrink
PLAIN = settings(deadline=None, derandomize=True, database=None)


async def played(setup, program, file=None):
    """Play a program and return its world, all of whose checks held."""
    world = World(setup, None if file is None else SqliteLedgerStore(file))
    await world.play(program, check)
    await check_end(world)
    return world


@settings(PLAIN, max_examples=150)
@given(setups, programs)
@example(Setup(shared="60"), [("job", "ask", 1), ("answer", 0, "odd", True)])
@example(Setup(), [("job", "slice", 0), ("answer", 0, "long", True)])
@example(
    Setup(life="60", group="60", midstream=True),
    [("job", "ask", 0), ("answer", 0, "long", False), ("write", 0, None), ("write", 0, None), ("cancel", 0)],
)
def test_the_money_adds_up_at_every_step(setup, program):
    """Counters are what is settled and reserved, strict ceilings hold, and each request has one row, to the end."""
    asyncio.run(played(setup, program))


@settings(PLAIN, max_examples=30)
@given(poor_setups, suspensions)
def test_runs_that_were_suspended_go_on_and_pay_once(setup, program):
    """Trees of agents that ran out of calls or money, and went on under higher ceilings, add up as any other."""
    asyncio.run(played(setup, program))


@settings(PLAIN, max_examples=25)
@given(shared_setups, programs)
def test_a_shared_ceiling_in_a_file_adds_up_at_every_step(setup, program):
    """The same with the ledger in SQLite, where a cut caller leaves while its row is being written."""

    async def play(path):
        file = SqliteFile(path, durability="normal")
        try:
            await played(setup, program, file)
        finally:
            await file.aclose()

    with tempfile.TemporaryDirectory() as place:
        asyncio.run(play(Path(place) / "ledger.db"))
