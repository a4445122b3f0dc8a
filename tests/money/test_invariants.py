"""Whole runtimes under random interleavings, cuts and faults: at every step the money adds up."""

from __future__ import annotations

import asyncio

from hypothesis import Phase, given, settings
from money.programs import programs, setups
from money.referee import check, check_end
from money.world import World


def played(setup, program):
    """Play a program and return its world, all of whose checks held."""

    async def play():
        world = World(setup)
        await world.play(program, check)
        await check_end(world)
        return world

    return asyncio.run(play())


@settings(max_examples=150, phases=[Phase.explicit, Phase.generate], deadline=None, derandomize=True, database=None)
@given(setups, programs)
def test_the_money_adds_up_at_every_step(setup, program):
    """Counters are what is settled and reserved, strict ceilings hold, and each request has one row, to the end."""
    played(setup, program)
