"""Programs for a world: lists of steps, which shrink to the few that show a fault."""

from __future__ import annotations

from hypothesis import strategies as st
from money.gates import ANSWERS, ENDS
from money.world import Setup

KINDS = ("ask", "number", "lead", "lead", "run", "slice", "slice", "bare", "peek", 3, 9)
ceilings = st.sampled_from([None, None, None, "6", "20", "60"])


def setups_with(**more):
    """Return worlds under some limits, but for what is given."""
    parts = {
        "strict": st.booleans(),
        "life": ceilings,
        "group": ceilings,
        "shared": ceilings,
        "own": ceilings,
        "quota": ceilings,
        "quota_waits": st.booleans(),
        "on_exceeded": st.sampled_from(["raise", "stop"]),
        "max_wait": st.sampled_from([0.0, 30.0]),
        "midstream": st.booleans(),
        "max_calls": st.sampled_from([None, None, 3]),
        "hedge": st.sampled_from([None, "same", "fallback"]),
        "slow_ledger": st.sampled_from([False, False, True]),
        "unlisted": st.sampled_from([False, False, True]),
        "slow_host": st.sampled_from([False, False, True]),
    }
    return st.builds(Setup, **{**parts, **more})


setups = setups_with()
shared_setups = setups_with(strict=st.just(True), shared=st.sampled_from(["6", "20"]))
indices = st.integers(0, 7)
jobs = st.tuples(st.just("job"), st.sampled_from(KINDS), indices)
answers = st.tuples(
    st.just("answer"),
    indices,
    st.sampled_from((*ANSWERS, "child", "child", "tool", "odd")),
    st.sampled_from([True, True, False]),
)
writes = st.tuples(st.just("write"), indices, st.sampled_from(ENDS))
lets = st.tuples(st.just("let"), indices)
ticks = st.tuples(st.just("tick"), st.sampled_from([2, 6, 31]))
cuts = st.tuples(st.sampled_from(["cancel", "trip"]), indices)
rises = st.tuples(st.just("more"), st.sampled_from([1, 10]))
steps = st.one_of(jobs, answers, answers, answers, answers, answers, writes, writes, lets, lets, ticks, cuts, rises)
programs = st.tuples(jobs, jobs, jobs, st.lists(steps, min_size=12, max_size=40)).map(
    lambda some: [*some[:3], *some[3]]
)

poor_setups = setups_with(
    on_exceeded=st.just("stop"), max_calls=st.integers(1, 4), own=st.none(), slow_host=st.just(False)
)
going = st.tuples(st.just("answer"), indices, st.sampled_from(["tool", "child", "plain", "odd"]), st.just(True))
leads = st.tuples(st.just("job"), st.just("lead"), st.sampled_from([0, 1, 4]))
suspensions = st.tuples(leads, leads, st.lists(st.one_of(going, going, lets), min_size=4, max_size=16)).map(
    lambda some: [*some[:2], *some[2]]
)
