"""Bounded fan-out: lazy, ordered, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from decimal import Decimal

import pytest

from agentkit.core.contracts import Scope, Usage
from agentkit.core.runtime.agents_fanout import run_agents
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.fanout import Failure, gather_best_effort, gather_bounded
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.signals import SignalChannel
from agentkit.core.runtime.sync import close_with_loop, run_sync
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, MeterExceeded, Overloaded

VAR = contextvars.ContextVar("VAR", default="unset")


async def turns(count=10):
    """Let the other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gauge:
    """Counts jobs that exist and run."""

    def __init__(self):
        self.made = self.done = self.running = self.peak = self.ahead = 0

    async def job(self, value):
        """Return the value after a few turns."""
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await turns(value % 3 + 1)
        finally:
            self.running -= 1
            self.done += 1
        return value

    def jobs(self, count):
        """Make jobs one by one, noting how far ahead of the finished ones the making is."""
        for number in range(count):
            self.made += 1
            self.ahead = max(self.ahead, self.made - self.done)
            yield self.job(number)

    async def async_jobs(self, count):
        """The same from an async generator."""
        for job in self.jobs(count):
            await asyncio.sleep(0)
            yield job


@pytest.mark.parametrize("kind", ["jobs", "async_jobs"])
async def test_ten_thousand_items_never_exist_at_once(kind):
    """10 000 jobs under 8 slots: at most 9 were made and not done, at most 8 ran, input order is kept."""
    gauge = Gauge()
    count = 10_000 if kind == "jobs" else 500
    before = len(asyncio.all_tasks())
    results = await gather_bounded(getattr(gauge, kind)(count), sem=asyncio.Semaphore(8))
    assert results == list(range(count))
    assert gauge.peak <= 8 and gauge.ahead <= 9 and (kind == "async_jobs" or gauge.peak == 8)
    assert len(asyncio.all_tasks()) == before


async def fail(error, after=1):
    """Fail after some turns."""
    await turns(after)
    raise error


async def test_a_failure_cancels_and_awaits_the_others():
    """The first failure surfaces as a group, siblings have ended before it does, later jobs never start."""
    ended, started = [], []

    async def slow(name):
        started.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            await turns(5)
            ended.append(name)

    sem = asyncio.Semaphore(3)
    with pytest.raises(ExceptionGroup) as caught:
        await gather_bounded([slow("a"), slow("b"), fail(ValueError("no")), slow("c"), slow("d")], sem=sem)
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert sorted(ended) == ["a", "b"] == sorted(started)
    assert not sem.locked() and sem._value == 3, "every slot came back"


async def test_several_failures_are_all_told():
    """Siblings that fail while they are cancelled appear in the group too."""

    async def stubborn():
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("while ending")

    with pytest.raises(ExceptionGroup) as caught:
        await gather_bounded([stubborn(), fail(ValueError("no"))], sem=asyncio.Semaphore(2))
    assert {type(error) for error in caught.value.exceptions} == {ValueError, KeyError}


async def test_a_sibling_that_swallows_cancellation_does_not_wedge_the_caller():
    """After the grace the caller goes on, though a job ignores its cancellation (fault 24)."""
    release = asyncio.Event()
    finished = asyncio.Event()

    async def deaf():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        finished.set()

    with pytest.raises(ExceptionGroup):
        await gather_bounded([deaf(), fail(ValueError("no"))], sem=asyncio.Semaphore(2), grace=0.01)
    assert not finished.is_set()
    release.set()
    await finished.wait()


@pytest.mark.parametrize("steps", range(1, 15))
async def test_cancelling_the_caller_at_any_turn_leaves_nothing(steps):
    """Cancel after any number of loop turns: all jobs have ended, slots are back, no coroutine is left unawaited."""
    gauge = Gauge()
    sem = asyncio.Semaphore(2)
    task = asyncio.create_task(gather_bounded([gauge.job(n) for n in range(6)], sem=sem))
    await turns(steps)
    task.cancel()
    await asyncio.wait([task])
    assert gauge.running == 0
    assert sem._value == 2
    assert task.cancelled() or task.result() == list(range(6))


async def test_a_job_cancelled_from_elsewhere_cancels_the_whole():
    """CancelledError is never lost or isolated: the caller gets it, and siblings end (fault 23)."""
    ended = []

    async def cancelled():
        raise asyncio.CancelledError

    async def slow():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    for gather in (gather_bounded, gather_best_effort):
        with pytest.raises(asyncio.CancelledError):
            await gather([slow(), cancelled()], sem=asyncio.Semaphore(2))
    assert ended == [1, 1]


async def test_best_effort_isolates_failures_but_not_the_runs_end():
    """A failed job leaves a Failure in its place; Cancelled and DeadlineExceeded end everything (fault 23)."""
    gauge = Gauge()
    jobs = [gauge.job(0), fail(Overloaded("busy")), gauge.job(2), fail(ValueError())]
    results = await gather_best_effort(jobs, sem=asyncio.Semaphore(2))
    assert (results[0], results[2]) == (0, 2)
    assert isinstance(results[1], Failure)
    assert (results[1].source, results[1].message, results[1].retryable) == ("gather_best_effort[1]", "busy", True)
    assert results[3].message == "ValueError" and not results[3].retryable
    for error in (Cancelled("stop"), DeadlineExceeded("late")):
        with pytest.raises(type(error)):
            await gather_best_effort([gauge.job(0), fail(error)], sem=asyncio.Semaphore(2))


async def test_context_variables_travel_and_stay_inside():
    """Each job sees the caller's variables and cannot change them for others."""
    VAR.set("outer")

    async def job(value):
        seen = VAR.get()
        VAR.set(value)
        await turns(2)
        return seen, VAR.get()

    assert await gather_bounded([job("a"), job("b")], sem=asyncio.Semaphore(2)) == [("outer", "a"), ("outer", "b")]
    assert VAR.get() == "outer"


async def test_sources_are_closed_and_wrong_items_named():
    """A generator left early is closed; an item that is no awaitable is named."""
    closed = []

    def source():
        try:
            yield fail(ValueError("no"))
            while True:
                yield turns(1)
        finally:
            closed.append("sync")

    async def async_source():
        try:
            for job in source():
                yield job
        finally:
            closed.append("async")

    for make in (source, async_source):
        with pytest.raises(ExceptionGroup):
            await gather_bounded(make(), sem=asyncio.Semaphore(1))
    assert closed[0] == "sync" and "async" in closed
    with pytest.raises(ExceptionGroup) as caught:
        await gather_bounded([turns], sem=asyncio.Semaphore(1))
    assert isinstance(caught.value.exceptions[0], ConfigurationError)
    assert await gather_bounded([], sem=asyncio.Semaphore(1)) == []


async def test_a_job_cancelled_before_its_first_step_is_closed_and_its_slot_comes_back():
    """The input fails right after a job was started: the job never ran, and neither it nor its slot is left."""
    gauge, sem = Gauge(), asyncio.Semaphore(3)
    job = gauge.job(0)
    with pytest.raises(ExceptionGroup):
        await gather_bounded([job, turns], sem=sem)
    assert gauge.peak == 0 and sem._value == 3
    assert inspect.getcoroutinestate(job) == inspect.CORO_CLOSED


class Worker:
    """Stands for an agent: runs a function of its task and context."""

    def __init__(self, name, work):
        self.name = name
        self.work = work

    async def run(self, task, ctx):
        """Run it."""
        return await self.work(task, ctx)


def context(**changes):
    """Return a context."""
    return RunContext("r", Scope("t"), **changes)


async def path_of(task, ctx):
    """Return where it runs."""
    await asyncio.sleep(0)
    return ctx.path, ctx.depth, task


async def test_agents_run_on_children_in_order():
    """Each pair runs on its own child; children of one name are numbered; results are in input order."""
    ctx = context()
    pairs = [(Worker("a", path_of), 1), (Worker("b", path_of), 2), (Worker("a", path_of), 3)]
    assert await run_agents(pairs, ctx) == [("a", 1, 1), ("b", 1, 2), ("a#2", 1, 3)]

    async def stream():
        for pair in pairs:
            yield pair

    assert await run_agents(stream(), context()) == [("a", 1, 1), ("b", 1, 2), ("a#2", 1, 3)]


@pytest.mark.parametrize("best_effort", [False, True])
async def test_nested_fan_out_over_three_levels_completes(best_effort):
    """At max_concurrency=2 with more agents than slots on every level, three levels deep, nothing hangs (fault 22)."""
    ctx = context(budget=Budget(max_concurrency=2, max_depth=3))
    leaves = []

    async def level(task, ctx):
        if ctx.depth == 3:
            await turns(2)
            leaves.append(ctx.path)
            return 1
        results = await run_agents([(Worker("w", level), n) for n in range(4)], ctx, best_effort)
        return sum(results)

    async with asyncio.timeout(10):
        assert await level(0, ctx) == 64
    assert len(set(leaves)) == 64


async def test_one_failure_surfaces_as_itself_and_several_as_a_group():
    """A lone ceiling is not wrapped; a genuine multi-failure group is not unwrapped; a trip is one cause (fault 30)."""

    async def over(task, ctx):
        raise MeterExceeded("cost", axis="cost")

    async def broken(task, ctx):
        raise ValueError(task)

    async def idle(task, ctx):
        await asyncio.Event().wait()

    with pytest.raises(MeterExceeded):
        await run_agents([(Worker("idle", idle), 0), (Worker("over", over), 0)], context())
    with pytest.raises(MeterExceeded):
        await run_agents([(Worker("over", over), n) for n in range(3)], context())
    with pytest.raises(ExceptionGroup) as caught:
        await run_agents([(Worker("broken", broken), n) for n in range(2)], context())
    assert len(caught.value.exceptions) == 2
    token = CancellationToken()
    token.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        await run_agents([(Worker("idle", idle), 0)], context(cancel=token))
    with pytest.raises(MeterExceeded) as depth:
        await run_agents([(Worker("idle", idle), 0)], context(budget=Budget(max_depth=0)))
    assert depth.value.axis == "depth"


async def test_shares_of_the_actor_budget():
    """Children get equal exact shares, what they leave comes back, also when one fails (faults 25, 27, 29)."""
    parent = ActorBudget(max_tokens=300, max_cost_usd="1.00", max_steps=9)
    seen = []

    async def work(task, ctx):
        seen.append((ctx.actor_budget.max_tokens, ctx.actor_budget.max_cost(), ctx.actor_budget.max_steps))
        ctx.actor_budget.charge(Usage(10, 10), "0.10")
        if task == "fail":
            raise ValueError(task)
        await turns(1)

    ctx = context(actor_budget=parent)
    await run_agents([(Worker("w", work), n) for n in range(3)], ctx)
    assert set(seen) == {(100, Decimal("0.333333333333"), 3)}
    assert (parent.used_tokens, parent.used_cost(), parent.used_steps) == (60, Decimal("0.30"), 3)
    assert parent.reserved_cost() == 0
    with pytest.raises(ValueError, match="fail"):
        await run_agents([(Worker("w", work), "fail"), (Worker("w", work), 2)], ctx)
    assert parent.reserved_cost() == 0 and parent.used_cost() >= Decimal("0.40")


@pytest.mark.parametrize(
    ("limits", "axis"),
    [({"max_tokens": 2}, "tokens"), ({"max_steps": 2}, "steps"), ({"max_cost_usd": "0.000000000002"}, "cost")],
)
async def test_a_share_of_nothing_is_refused_before_anything_starts(limits, axis):
    """Three agents against two units: MeterExceeded names the axis and nothing was started or reserved (fault 25)."""
    parent = ActorBudget(**limits)
    started = []

    async def work(task, ctx):
        started.append(task)

    with pytest.raises(MeterExceeded) as caught:
        await run_agents(((Worker("w", work), n) for n in range(3)), context(actor_budget=parent))
    assert caught.value.axis == axis and started == [] and parent.reserved_cost() == 0
    parent.charge(Usage(9, 9), 1, steps=9)
    with pytest.raises(MeterExceeded):
        await run_agents([(Worker("w", work), 0)], context(actor_budget=parent))
    assert await run_agents([], context(actor_budget=ActorBudget(max_steps=1))) == []


async def test_width_is_refused_before_anything_starts():
    """More pairs than max_width: refused for lists and for endless generators, only recorded in observe mode."""
    started = []

    async def work(task, ctx):
        started.append(task)

    def endless():
        number = 0
        while True:
            yield Worker("w", work), number
            number += 1

    for pairs in ([(Worker("w", work), n) for n in range(4)], endless()):
        with pytest.raises(MeterExceeded, match="width") as caught:
            await run_agents(pairs, context(budget=Budget(max_width=3)))
        assert caught.value.axis == "width"
    assert started == []
    await run_agents(((Worker("w", work), n) for n in range(3)), context(budget=Budget(max_width=3)))
    await run_agents([(Worker("w", work), n) for n in range(4)], context(budget=Budget(max_width=3, mode="observe")))
    assert len(started) == 7


async def test_children_signal_under_their_names():
    """A coordinator's channel gets each child's signals with its name."""
    channel = SignalChannel()

    async def work(task, ctx):
        await ctx.signal_channel.emit("done", task)

    await run_agents([(Worker("left", work), 1), (Worker("right", work), 2)], context(signal_channel=channel))
    got = [await channel.receive(), await channel.receive()]
    assert {(signal.sender, signal.payload) for signal in got} == {("left", 1), ("right", 2)}


def test_run_sync_runs_again_and_again():
    """A script may call it twice; each call has a loop of its own, which is closed with its clients."""
    closed = []

    async def once(value):
        loop = asyncio.get_running_loop()

        async def close():
            assert asyncio.get_running_loop() is loop
            closed.append(value)

        close_with_loop(close)
        return value, VAR.get()

    VAR.set("script")
    assert run_sync(once(1)) == (1, "script")
    assert run_sync(once(2)) == (2, "script")
    assert closed == [1, 2]
    with pytest.raises(ValueError, match="no"):
        run_sync(fail(ValueError("no")))


async def test_run_sync_works_where_a_loop_runs():
    """In a notebook it runs in a worker thread, with the caller's context variables, twice."""
    outer = asyncio.get_running_loop()
    VAR.set("notebook")

    async def once():
        return asyncio.get_running_loop() is not outer, VAR.get()

    assert run_sync(once()) == (True, "notebook")
    assert run_sync(once()) == (True, "notebook")


def test_run_sync_names_what_it_needs():
    """A function or a value instead of a coroutine is refused with the way to call it."""
    with pytest.raises(ConfigurationError, match="pass a coroutine"):
        run_sync(turns)
