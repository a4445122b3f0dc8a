"""What a tenant may use in a sliding window."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import QuotaStanding, RateLimit, Scope, Usage
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import Deadline
from agentkit.core.runtime.metering.quota import Quota
from agentkit.errors import ConfigurationError, MeterExceeded
from agentkit.testing import ManualClock

KEY = Scope("acme").key()


async def turns(count=20):
    """Let the other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_requests_a_minute(make, clock):
    """The third of two is refused, a refused one does not count, and after the window there is room again."""
    quota = Quota(max_rpm=2, clock=clock)
    for _ in range(2):
        assert (await quota.guard(make.call())).ok
    for _ in range(3):
        with pytest.raises(MeterExceeded, match="requests 3 > 2 in 60 s") as caught:
            await quota.guard(make.call())
    assert caught.value.axis == "requests"
    clock.advance(59.9)
    with pytest.raises(MeterExceeded):
        await quota.guard(make.call())
    clock.advance(1.2)
    assert (await quota.guard(make.call())).ok


async def test_tenants_do_not_share(make, clock):
    """Each scope has a window of its own: tenant, user and session apart."""
    quota = Quota(max_rpm=1, clock=clock)
    for scope in (Scope("a"), Scope("b"), Scope("a", "u"), Scope("a", "u", "s")):
        ctx = RunContext("r", scope)
        assert (await quota.guard(make.call(ctx=ctx))).ok
        with pytest.raises(MeterExceeded):
            await quota.guard(make.call(ctx=ctx))


async def test_tokens_reserve_their_bound_and_settle(make, clock):
    """The bound counts while the attempt runs, what was used afterwards."""
    quota = Quota(max_tpm=100, clock=clock)
    assert quota.needs_quotes
    first = make.call(tokens=(40, 20))
    await quota.guard(first)
    with pytest.raises(MeterExceeded, match="tokens up to 110 > 100") as caught:
        await quota.guard(make.call(tokens=(40, 10)))
    assert caught.value.axis == "tokens"
    quota.settle(first, make.row(first, usage=Usage(30, 10)))
    second = make.call(tokens=(40, 20))
    await quota.guard(second)
    quota.settle(second, make.row(second, usage=Usage(None, 5)))
    with pytest.raises(MeterExceeded, match="tokens up to 101"):
        await quota.guard(make.call(tokens=(1, 0)))


async def test_without_a_quote_the_request_is_weighed(make, clock):
    """A call that brings no bound is estimated from its messages."""
    quota = Quota(max_tpm=5, clock=clock)
    with pytest.raises(MeterExceeded, match="tokens up to 6 > 5"):
        await quota.guard(make.call(quoted=False))


async def test_money_in_the_window(make, clock):
    """Money is reserved and settled exactly; landing on the ceiling passes; an unknown bound needs something left."""
    quota = Quota(max_usd="1.00", clock=clock)
    for cost in ("0.70", "0.30"):
        call = make.call(cost)
        await quota.guard(call)
        quota.settle(call, make.row(call, cost))
    assert quota.spent_in_window(KEY) == Decimal("1.00")
    with pytest.raises(MeterExceeded) as caught:
        await quota.guard(make.call("0.01"))
    assert caught.value.axis == "cost"
    with pytest.raises(MeterExceeded):
        await quota.guard(make.call(None))
    assert (await quota.guard(make.call("0"))).ok, "what is free fits"


async def test_assigning_the_ceiling_counts(make, clock):
    """max_usd is re-derived on assignment, rounded and not refused (fault 9)."""
    quota = Quota(max_usd=1, clock=clock, on_exceeded="stop")
    assert not (await quota.guard(make.call("1.50"))).ok
    quota.max_usd = 0.1 + 0.2 + 1e-17
    assert quota.ceiling() == quota.max_usd == Decimal("0.3")
    quota.max_usd = 2
    assert (await quota.guard(make.call("1.50"))).ok
    quota.max_usd = None
    assert not quota.needs_quotes and (await quota.guard(make.call("9"))).ok


async def test_release_gives_tokens_and_money_back_but_never_the_request(make, clock):
    """Proven non-acceptance frees the bound; the request stays counted; a second release does nothing."""
    quota = Quota(max_rpm=2, max_tpm=100, max_usd=1, clock=clock, on_exceeded="stop")
    call = make.call("1.00", tokens=(50, 50))
    await quota.guard(call)
    quota.release(call)
    quota.release(call)
    again = make.call("1.00", tokens=(50, 50))
    assert (await quota.guard(again)).ok
    charge = await quota.guard(make.call("0"))
    assert not charge.ok and charge.axis == "requests" and charge.calls == 2


async def test_charge_and_stop(make, clock):
    """Charge always says ok; with "stop" a refused guard returns a verdict; usage of a quota is empty."""
    quota = Quota(max_usd="0.10", clock=clock, on_exceeded="stop")
    call = make.call("0.05")
    charge = await quota.charge(call, Usage(1, 1), cost="0.20")
    assert charge.ok and charge.spent == Decimal("0.20") and charge.remaining == 0 and charge.usage == Usage()
    refused = await quota.guard(call)
    assert not refused.ok and refused.axis == "cost"
    assert (await quota.guard(None)).ok and (await quota.charge(None, Usage())).ok


async def test_completeness_describes_the_window(make, clock):
    """An unpriced entry makes the window a lower bound until it has aged out; its bound stays held that long."""
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="stop")
    call = make.call("0.60")
    await quota.guard(call)
    quota.settle(call, make.row(call, None))
    charge = await quota.guard(make.call("0.50"))
    assert not charge.ok and not charge.cost_complete
    assert charge.spent == 0 and charge.remaining == Decimal("0.40")
    clock.advance(61.5)
    later = await quota.guard(make.call("0.50"))
    assert later.ok and later.cost_complete


async def test_reading_creates_no_key_and_quiet_keys_are_deleted(make, clock):
    """An unknown key reads exactly zero; five thousand quiet tenants hold nothing a window later (fault 15)."""
    quota = Quota(max_rpm=5, clock=clock)
    assert quota.spent_in_window("nobody") == Decimal(0)
    assert quota.keys() == ()
    for number in range(5000):
        call = make.call(tenant=f"tenant-{number}")
        await quota.guard(call)
        quota.settle(call, make.row(call, "0"))
    assert len(quota.keys()) == 5000
    clock.advance(62)
    await quota.guard(make.call())
    assert quota.keys() == (KEY,)


async def test_an_attempt_longer_than_the_window_stays_held(make, clock):
    """A key with an attempt in flight survives the sweep, and its bound keeps counting."""
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="stop")
    call = make.call("0.90")
    await quota.guard(call)
    clock.advance(300)
    await quota.guard(make.call(tenant="other"))
    assert not (await quota.guard(make.call("0.20"))).ok
    quota.settle(call, make.row(call, "0.10"))
    assert (await quota.guard(make.call("0.20"))).ok


async def test_standing_counts_attempts_in_flight_at_their_bound(make, clock):
    """What is reserved counts, what was used replaces it, and asking makes no key."""
    quota = Quota(max_usd="1.00", clock=clock)
    assert await quota.standing(KEY) == QuotaStanding()
    assert quota.keys() == ()
    call = make.call("0.90")
    await quota.guard(call)
    standing = await quota.standing(KEY)
    bound = call.quote.input_tokens + call.quote.output_tokens
    assert (standing.requests, standing.tokens, standing.dollars) == (1, bound, Decimal("0.90"))
    quota.settle(call, make.row(call, "0.10"))
    assert (await quota.standing(KEY)).dollars == Decimal("0.10") == quota.spent_in_window(KEY)
    clock.advance(62)
    assert await quota.standing(KEY) == QuotaStanding()


async def test_memory_a_key_is_constant(make, clock):
    """A hundred thousand seconds of traffic keep at most sixty-one slices."""
    quota = Quota(max_rpm=10**9, clock=clock)
    for _ in range(500):
        await quota.charge(make.call(), Usage(1, 1), cost="0.01")
        clock.advance(0.7)
    assert len(quota._local._windows[KEY]._slices) <= 61


events = st.lists(st.tuples(st.floats(0, 40, allow_nan=False), st.integers(1, 9)), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=events)
def test_the_window_errs_high_by_at_most_a_slice(make, plan):
    """The window's sum is never less than the exact one and never more than one slice's length too long."""

    async def check():
        clock = ManualClock()
        quota = Quota(max_usd=1000, clock=clock)
        log = []
        for gap, cents in plan:
            clock.advance(gap)
            await quota.charge(make.call(), Usage(1, 1), cost=Decimal(cents) / 100)
            log.append((clock.now(), Decimal(cents) / 100))
            now, shown = clock.now(), quota.spent_in_window(KEY)
            exact = sum(amount for at, amount in log if at > now - 60)
            longest = sum(amount for at, amount in log if at > now - 61.001)
            assert exact <= shown <= longest

    asyncio.run(check())


async def test_waiting_is_fair_within_a_tenant_and_free_between_tenants(make, clock):
    """on_exceeded="wait": in order within a tenant, and another tenant is not behind them."""
    quota = Quota(max_rpm=1, clock=clock, on_exceeded="wait")
    await quota.guard(make.call())
    order = []

    async def go(name, tenant="acme"):
        await quota.guard(make.call(tenant=tenant))
        order.append(name)

    tasks = [asyncio.create_task(go(n)) for n in range(3)]
    await turns()
    other = asyncio.create_task(go("other", "b"))
    await turns()
    assert order == ["other"]
    for expected in (["other", 0], ["other", 0, 1], ["other", 0, 1, 2]):
        await clock.run_for(62)
        assert order == expected
    await asyncio.gather(other, *tasks)
    assert clock.pending == 0


async def test_waiting_ends_when_an_attempt_settles(make, clock):
    """A wait for money in flight ends with the settling, without time passing."""
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="wait")
    holder = make.call("0.90")
    await asyncio.create_task(quota.guard(holder))
    waiting = asyncio.create_task(quota.guard(make.call("0.50")))
    await turns()
    assert not waiting.done()
    quota.settle(holder, make.row(holder, "0.10"))
    assert (await waiting).ok


async def test_waiting_stops_at_the_deadline_and_for_what_can_never_fit(make, clock):
    """A wait ends at the run's deadline; a bound above the ceiling, or one's own open call, does not wait at all."""
    quota = Quota(max_rpm=1, max_usd="1.00", clock=clock, on_exceeded="wait")
    await quota.guard(make.call("0.10"))
    late = RunContext("r", Scope("acme"), deadline=Deadline.after(5, clock))
    waiting = asyncio.create_task(quota.guard(make.call("0.10", ctx=late)))
    await clock.run_for(5.1)
    with pytest.raises(MeterExceeded):
        await waiting
    with pytest.raises(MeterExceeded, match=r"cost up to \$2 "):
        await quota.guard(make.call("2.00"))
    own = Quota(max_usd="1.00", clock=clock, on_exceeded="wait")
    await own.guard(make.call("0.90"))
    with pytest.raises(MeterExceeded):
        await own.guard(make.call("0.20"))


async def test_a_cancelled_wait_leaves_nothing_behind(make, clock):
    """Cancelling the first waiter lets the next one take its place."""
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="wait")
    holder = make.call("1.00")
    await asyncio.create_task(quota.guard(holder))
    first = asyncio.create_task(quota.guard(make.call("0.50")))
    await turns()
    second = asyncio.create_task(quota.guard(make.call("0.60")))
    await turns()
    first.cancel()
    await asyncio.wait([first])
    quota.settle(holder, make.row(holder, "0.40"))
    assert (await second).ok
    assert clock.pending == 0


async def test_the_window_and_a_function_as_clock(make):
    """`window` is seconds, and the clock may be a plain function such as time.monotonic."""
    now = [0.0]
    quota = Quota(max_rpm=1, window=6, clock=lambda: now[0], on_exceeded="stop")
    assert (await quota.guard(make.call())).ok
    now[0] = 5.9
    assert not (await quota.guard(make.call())).ok
    now[0] = 6.2
    assert (await quota.guard(make.call())).ok


def test_one_quota_serves_two_event_loops(make):
    """The same quota waits in one loop and, after that loop is gone, in another."""
    clock = ManualClock()
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="wait")

    async def once():
        holder = make.call("0.90")
        await asyncio.create_task(quota.guard(holder))
        waiter_call = make.call("0.50")
        waiting = asyncio.create_task(quota.guard(waiter_call))
        await turns()
        quota.settle(holder, make.row(holder, "0"))
        assert (await waiting).ok
        quota.settle(waiter_call, make.row(waiter_call, "0"))

    asyncio.run(once())
    asyncio.run(once())
    assert quota.spent_in_window(KEY) == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_rpm": -1}, "max_rpm"),
        ({"max_rpm": True}, "max_rpm"),
        ({"max_tpm": 0.5}, "max_tpm"),
        ({"max_usd": "-1"}, "max_usd"),
        ({"window": 0}, "window"),
        ({"window": float("inf")}, "window"),
        ({"on_exceeded": "sleep"}, "on_exceeded"),
    ],
)
def test_a_limit_that_means_nothing_is_refused_by_name(changes, named):
    """Bad limits are refused at construction, by name."""
    with pytest.raises(ConfigurationError, match=named):
        Quota(**changes)


async def test_a_small_call_does_not_jump_the_queue(make, clock):
    """Within a tenant a call that would fit waits behind a larger one that came before it."""
    quota = Quota(max_usd="1.00", clock=clock, on_exceeded="wait")
    holder = make.call("0.90")
    await asyncio.create_task(quota.guard(holder))
    order = []

    async def go(name, cost):
        await quota.guard(make.call(cost))
        order.append(name)

    tasks = [asyncio.create_task(go("large", "0.80"))]
    await turns()
    tasks.append(asyncio.create_task(go("small", "0.05")))
    await turns()
    assert order == []
    quota.settle(holder, make.row(holder, "0"))
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]


async def test_tenants_under_one_key_are_let_in_by_turns(make, clock):
    """Five waiting calls of one tenant do not keep another's first one waiting; a lower priority number goes first."""
    ranks = {"urgent": 0}
    quota = Quota(
        max_rpm=1,
        on_exceeded="wait",
        clock=clock,
        by=lambda _: "provider",
        priority=lambda call: ranks.get(call.ctx.scope.tenant, 1),
    )
    await quota.guard(make.call(tenant="first"))
    order = []

    async def one(tenant):
        await quota.guard(make.call(tenant=tenant))
        order.append(tenant)

    tasks = [asyncio.ensure_future(one(tenant)) for tenant in ["greedy"] * 5 + ["modest", "modest", "urgent"]]
    for _ in range(len(tasks)):
        await turns()
        clock.advance(61.1)
        await turns()
    await asyncio.gather(*tasks)
    assert order == ["urgent", "greedy", "modest", "greedy", "modest", "greedy", "greedy", "greedy"]


async def test_what_a_provider_says_is_heeded_for_as_long_as_it_holds(make, clock):
    """After a 429 nothing goes out under the key until its hint has passed; few tokens left admit small calls only."""
    quota = Quota(clock=clock, by=lambda call: call.ctx.scope.tenant)
    call = make.call()
    await quota.guard(call)
    quota.learn(call, RateLimit(retry_after=20))
    with pytest.raises(MeterExceeded, match=r"takes nothing for 20\.0 s more") as caught:
        await quota.guard(make.call())
    assert caught.value.axis == "provider"
    assert (await quota.guard(make.call(tenant="another"))).ok
    clock.advance(20)
    assert (await quota.guard(make.call())).ok
    quota.learn(call, RateLimit(tokens_left=100, tokens_reset=5, requests_left=3, requests_reset=60))
    assert (await quota.guard(make.call(tokens=(60, 40)))).ok
    with pytest.raises(MeterExceeded, match="left for"):
        await quota.guard(make.call(tokens=(1, 0)))
    clock.advance(5)
    assert (await quota.guard(make.call(tokens=(500, 0)))).ok
    quota.learn(call, RateLimit(requests_left=0, requests_reset=2))
    waiting = Quota(clock=clock, on_exceeded="wait")
    await waiting.guard(call)
    waiting.learn(call, RateLimit(requests_left=0, requests_reset=2))
    task = asyncio.ensure_future(waiting.guard(make.call()))
    await turns()
    assert not task.done()
    clock.advance(2)
    await turns()
    assert (await task).ok


async def test_a_call_that_can_never_fit_does_not_wait(make, clock):
    """A bound above the limit itself is refused at once, whatever `on_exceeded` says of waiting."""
    quota = Quota(max_tpm=100, on_exceeded="wait", clock=clock)
    with pytest.raises(MeterExceeded, match="tokens up to 101 > 100"):
        await quota.guard(make.call(tokens=(100, 1)))
