"""Reservations under concurrency: nothing is overspent, nothing leaks, and waiting is fair."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import Scope, Usage
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import MeterExceeded


async def turns(count=20):
    """Let the other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def books(budget):
    """Return settled spend plus live reservations."""
    return budget.spent() + budget.held()


async def test_at_most_three_of_eight_run(make, clock):
    """8 tasks of 0.30 under 1.00 behind a barrier: 3 run at once and 3 in all; the rest are refused (B62)."""
    budget = Budget("1.00", clock=clock)
    barrier = asyncio.Barrier(8)
    running = peak = 0

    async def task():
        nonlocal running, peak
        call = make.call()
        await barrier.wait()
        await budget.guard(call)
        running += 1
        peak = max(peak, running)
        assert books(budget) <= Decimal("1.00")
        await turns(3)
        running -= 1
        budget.settle(call, make.row(call))

    results = await asyncio.gather(*(task() for _ in range(8)), return_exceptions=True)
    assert peak == 3
    assert sum(result is None for result in results) == 3
    assert all(isinstance(result, MeterExceeded) for result in results if result is not None)
    assert budget.spent() == Decimal("0.90") and budget.held() == 0 and budget.calls == 3


def test_threads_never_overspend_either(make):
    """The arithmetic is safe between threads, each with a loop of its own."""
    budget = Budget("1.00", max_wait=0)
    start = threading.Barrier(8)
    passed = []

    def work():
        async def one():
            for _ in range(20):
                call = make.call("0.03")
                try:
                    await budget.guard(call)
                except MeterExceeded:
                    continue
                passed.append(1)
                assert books(budget) <= Decimal("1.00")
                budget.settle(call, make.row(call, "0.03"))

        start.wait()
        asyncio.run(one())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.spent() == Decimal("0.03") * len(passed) <= Decimal("1.00")
    assert budget.held() == 0


ends = st.sampled_from(["ok", "less", "more", "unaccepted", "unpriced", "released", "cancelled", "left"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(st.tuples(st.integers(1, 30), ends), min_size=1, max_size=40), ceiling=st.integers(0, 100))
def test_the_counter_is_settled_spend_plus_live_reservations(make, plan, ceiling):
    """Whatever the ends of the attempts, counter == ledger + live holds after every step, and nothing leaks (B63)."""

    async def check():
        budget = Budget(Decimal(ceiling) / 10, max_wait=0, on_exceeded="stop")
        ledger = held = uncertain = Decimal(0)
        live = []
        for tenths, end in plan:
            cost = Decimal(tenths) / 10
            call = make.call(cost)
            bound_fits = ledger + held + uncertain + cost <= Decimal(ceiling) / 10
            over = ledger + uncertain > Decimal(ceiling) / 10
            charge = await budget.guard(call)
            assert charge.ok == (bound_fits and not over)
            if not charge.ok:
                continue
            held += cost
            if end == "left":
                live.append((call, cost))
            elif end in ("released", "cancelled"):
                budget.release(call)
                budget.release(call)
                held -= cost
            else:
                actual = {"less": cost / 2, "more": cost * 2, "unaccepted": Decimal(0), "unpriced": None}.get(end, cost)
                budget.settle(call, make.row(call, actual, accepted=end != "unaccepted"))
                held -= cost
                ledger += actual or 0
                uncertain += cost if actual is None else 0
            assert budget.held() == held
            assert budget.spent() == ledger
        for call, cost in live:
            budget.settle(call, make.row(call, cost))
            ledger += cost
        assert budget.held() == 0 and budget.spent() == ledger

    asyncio.run(check())


async def test_waiting_is_first_come_first_served(make, clock):
    """Those who wait for attempts in flight go in the order they came, also when a later one would fit sooner."""
    budget = Budget("1.00", clock=clock)
    holder = make.call("0.90")
    await asyncio.create_task(budget.guard(holder))
    order = []

    async def waiter(name, cost):
        call = make.call(cost)
        await budget.guard(call)
        order.append(name)
        budget.settle(call, make.row(call, "0"))

    tasks = [asyncio.create_task(waiter("large", "0.80"))]
    await turns()
    tasks += [asyncio.create_task(waiter(f"small-{n}", "0.05")) for n in range(3)]
    await turns()
    assert order == []
    budget.settle(holder, make.row(holder, "0.10"))
    await asyncio.gather(*tasks)
    assert order == ["large", "small-0", "small-1", "small-2"]


async def test_a_newcomer_queues_behind_waiters_that_are_about_to_go(make, clock):
    """Between the settling and the waiter's turn nobody jumps the queue, and nobody is refused for it."""
    budget = Budget("1.00", clock=clock)
    holder = make.call("1.00")
    await asyncio.create_task(budget.guard(holder))
    first_call, second_call = make.call("0.60"), make.call("0.30")
    first = asyncio.create_task(budget.guard(first_call))
    await turns()
    budget.settle(holder, make.row(holder, "0"))
    second = asyncio.create_task(budget.guard(second_call))
    charges = await asyncio.gather(first, second)
    assert all(charge.ok for charge in charges)
    assert budget.held() == Decimal("0.90")


async def test_after_max_wait_the_refusal_names_the_holders(make, clock):
    """A wait ends after `max_wait` with MeterExceeded that names who holds the reservations."""
    budget = Budget("1.00", clock=clock, max_wait=5)
    ctx = RunContext("big-run", Scope("t")).child(name="researcher")
    await asyncio.create_task(budget.guard(make.call("0.90", ctx=ctx)))
    waiting = asyncio.create_task(budget.guard(make.call("0.20")))
    await clock.run_for(4.9)
    assert not waiting.done()
    await clock.run_for(0.2)
    with pytest.raises(MeterExceeded, match="held by big-run/researcher") as caught:
        await waiting
    assert caught.value.axis == "cost"
    assert budget.held() == Decimal("0.90")


async def test_a_wait_ends_at_the_deadline(make, clock):
    """The run's deadline bounds the wait when it is earlier than `max_wait`."""
    budget = Budget("1.00", clock=clock)
    await asyncio.create_task(budget.guard(make.call("0.90")))
    from agentkit.core.runtime.deadline import Deadline

    ctx = RunContext("r", Scope("t"), deadline=Deadline.after(2, clock))
    waiting = asyncio.create_task(budget.guard(make.call("0.20", ctx=ctx)))
    await clock.run_for(2.1)
    with pytest.raises(MeterExceeded):
        await waiting


async def test_ones_own_open_call_is_not_waited_for(make, clock):
    """A second call of the task that holds the reservation is refused at once: nobody else could end it."""
    budget = Budget("1.00", clock=clock)
    await budget.guard(make.call("0.90"))
    with pytest.raises(MeterExceeded, match="held by"):
        await budget.guard(make.call("0.20"))
    assert (await budget.guard(make.call("0.10"))).ok, "what fits beside one's own open stream goes"


async def test_an_ancestors_open_call_is_not_waited_for(make, clock):
    """A child never waits for a stream its parent holds open, in whatever task it runs."""
    budget = Budget("1.00", clock=clock)
    parent = RunContext("r", Scope("t"), budget)
    await budget.guard(make.call("0.90", ctx=parent))
    child = parent.child(name="sub")
    with pytest.raises(MeterExceeded):
        await asyncio.create_task(budget.guard(make.call("0.20", ctx=child)))


async def test_a_task_with_an_open_call_may_go_ahead_of_the_queue(make, clock):
    """Who holds what the queue waits for must be able to finish: its own small call passes the waiters."""
    budget = Budget("1.00", clock=clock)
    mine = make.call("0.50")
    await budget.guard(mine)
    waiting = asyncio.create_task(budget.guard(make.call("0.60")))
    await turns()
    inner = make.call("0.20")
    assert (await budget.guard(inner)).ok
    budget.settle(inner, make.row(inner, "0"))
    budget.settle(mine, make.row(mine, "0"))
    assert (await waiting).ok


async def test_a_bound_that_can_never_fit_does_not_wait(make, clock):
    """A call beyond what is left without any reservation is refused at once, though others are in flight."""
    budget = Budget("1.00", clock=clock)
    await asyncio.create_task(budget.guard(make.call("0.10")))
    with pytest.raises(MeterExceeded, match="1.1"):
        await asyncio.create_task(budget.guard(make.call("1.10")))


async def test_guard_without_a_call_never_waits(make, clock):
    """A look at the budget answers at once while everything is reserved."""
    budget = Budget("1.00", clock=clock)
    await asyncio.create_task(budget.guard(make.call("1.00")))
    assert (await budget.guard()).ok


@pytest.mark.parametrize("steps", range(12))
async def test_a_wait_cancelled_at_any_step_leaks_nothing(make, clock, steps):
    """Cancel a waiter after any number of loop turns: its place and hold are gone and the next one goes on."""
    budget = Budget("1.00", clock=clock)
    holder = make.call("0.90")
    await asyncio.create_task(budget.guard(holder))
    cancelled = asyncio.create_task(budget.guard(make.call("0.50")))
    await turns(1)
    behind_call = make.call("0.40")
    behind = asyncio.create_task(budget.guard(behind_call))
    await turns(steps // 3)
    if steps % 2:
        budget.settle(holder, make.row(holder, "0.10"))
    await turns(steps % 3)
    got_it = cancelled.done()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    if not steps % 2:
        budget.settle(holder, make.row(holder, "0.10"))
    assert (await behind).ok
    assert budget.held() == Decimal("0.40") + (Decimal("0.50") if got_it else 0)
    assert clock.pending == 0, "no timer is left behind"


async def test_raising_the_ceiling_wakes_who_waits(make, clock):
    """An assigned ceiling lets waiters in without anybody settling."""
    budget = Budget("1.00", clock=clock)
    await asyncio.create_task(budget.guard(make.call("0.90")))
    waiting = asyncio.create_task(budget.guard(make.call("0.50")))
    await turns()
    budget.max_cost_usd = 2
    assert (await waiting).ok


def test_one_budget_serves_two_event_loops_in_turn(make):
    """The same budget, its semaphores too, works in a second loop after the first one is closed."""
    budget = Budget("1.00", max_concurrency=1)

    async def once():
        async with budget.semaphore(0):
            call = make.call("0.20")
            holder = asyncio.create_task(budget.guard(call))
            await holder
            waiting_call = make.call("0.90")
            waiting = asyncio.create_task(budget.guard(waiting_call))
            await turns()
            budget.settle(call, make.row(call, "0"))
            assert (await waiting).ok
            budget.settle(waiting_call, make.row(waiting_call, "0"))
        return budget.semaphore(0)

    first, second = asyncio.run(once()), asyncio.run(once())
    assert first is not second
    assert budget.held() == 0


async def test_pools_are_by_depth(make):
    """Each depth has a pool of its own, as wide as max_concurrency (fault 22)."""
    budget = Budget(max_concurrency=2)
    assert budget.semaphore(0) is budget.semaphore(0)
    assert budget.semaphore(0) is not budget.semaphore(1)
    async with budget.semaphore(1), budget.semaphore(1):
        assert budget.semaphore(1).locked() and not budget.semaphore(0).locked()


async def test_settled_usage_of_a_cut_stream_counts(make):
    """A stream that ended early is charged for what arrived, its call counted; one that never began is not (fault 16)."""
    budget = Budget("1.00")
    call = make.call()
    await budget.guard(call)
    budget.settle(call, make.row(call, "0.05", usage=Usage(10, 2, estimated=True), outcome="closed"))
    assert (budget.spent(), budget.calls, budget.usage.estimated) == (Decimal("0.05"), 1, True)
    call = make.call()
    await budget.guard(call)
    budget.settle(call, make.row(call, "0", usage=Usage(), outcome="error", accepted=False))
    assert (budget.spent(), budget.calls) == (Decimal("0.05"), 1)


async def test_a_child_passes_those_who_wait_for_its_parents_stream(make, clock):
    """What fits beside an ancestor's open call goes ahead of who waits for that call: it could not end otherwise."""
    budget = Budget("1.00", clock=clock)
    parent = RunContext("r", Scope("t"), budget)
    await asyncio.create_task(budget.guard(make.call("0.80", ctx=parent)))
    waiting = asyncio.create_task(budget.guard(make.call("0.50")))
    await turns()
    child = make.call("0.10", ctx=parent.child(name="sub"))
    assert (await asyncio.create_task(budget.guard(child))).ok
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_waiting_in_vain_is_refused_at_once(make, clock):
    """Beside one's own open call it would not fit even if all others ended: no wait."""
    budget = Budget("1.00", clock=clock)
    await asyncio.create_task(budget.guard(make.call("0.20")))
    await budget.guard(make.call("0.70"))
    with pytest.raises(MeterExceeded):
        await budget.guard(make.call("0.40"))


async def test_a_released_reservation_lets_the_next_one_in(make, clock):
    """Giving a bound back untouched wakes who waits for it."""
    budget = Budget("1.00", clock=clock)
    holder = make.call("0.90")
    await asyncio.create_task(budget.guard(holder))
    waiting = asyncio.create_task(budget.guard(make.call("0.50")))
    await turns()
    budget.release(holder)
    await turns()
    assert waiting.done() and (await waiting).ok
    assert budget.calls == 0 and budget.spent() == 0


async def test_calls_in_flight_count_toward_max_calls(make, clock):
    """With one of one call in flight a second one waits, goes when the first was not accepted, else is refused."""
    budget = Budget(max_calls=1, clock=clock)
    first = make.call(None)
    await asyncio.create_task(budget.guard(first))
    second_call = make.call(None)
    second = asyncio.create_task(budget.guard(second_call))
    await turns()
    assert not second.done()
    budget.settle(first, make.row(first, "0", accepted=False))
    assert (await second).ok
    third = asyncio.create_task(budget.guard(make.call(None)))
    await turns()
    budget.settle(second_call, make.row(second_call, "0"))
    with pytest.raises(MeterExceeded, match="calls 2 > 1"):
        await third
