"""Quotas in a real Redis: exact over many workers, one round trip, and what happens when it goes away."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import agentkit
from agentkit.core.contracts import Call, ChatRequest, CostRecord, QuotaLimits, Quote, RateLimit, Usage, UserMessage
from agentkit.core.runtime import Quota, RunContext, Scope
from agentkit.errors import ConfigurationError, MeterExceeded, StoreError
from agentkit.stores import RedisQuotaStore

pytestmark = pytest.mark.server("redis")
IDS = itertools.count(1)
LIMITS = QuotaLimits(None, None, None, 60.0)
PREFIX = f"test-{os.getpid()}:"

WORKER = """
import asyncio, sys
from decimal import Decimal
from agentkit.core.contracts import Quote, QuotaLimits
from agentkit.stores import RedisQuotaStore

async def main(url, prefix):
    store = RedisQuotaStore(url, prefix=prefix)
    limits = QuotaLimits(100, None, Decimal("1.00"), 600.0)
    admitted = 0
    for number in range(60):
        standing = await store.reserve("acme", Quote(10, 5, Decimal("0.03")), limits)
        if not standing.axis:
            admitted += 1
            if number % 3:
                await store.settle("acme", standing.slice, Quote(10, 5, Decimal("0.03")), 12, Decimal("0.02"), 600.0)
    await store.aclose()
    print(admitted)

asyncio.run(main(*sys.argv[1:]))
"""


def call(tenant: str = "acme", cost: str | None = "0.30", tokens: tuple[int, int] = (10, 5)) -> Call[ChatRequest]:
    """Return a call with a bound."""
    ctx = RunContext(f"run-{next(IDS)}", Scope(tenant))
    quote = Quote(*tokens, None if cost is None else Decimal(cost))
    return Call(ctx, ChatRequest((UserMessage("q"),)), f"call-{next(IDS)}", None, 1, "main", quote)


def row(of: Call[ChatRequest], cost: str, usage: Usage = Usage(8, 2)) -> CostRecord:
    """Return the priced row of a call."""
    return CostRecord(
        run_id=of.ctx.correlation_id,
        path="",
        call_id=of.id,
        attempt=1,
        purpose="main",
        provider="p",
        model="m",
        outcome="ok",
        usage=usage,
        cost=Decimal(cost),
    )


@pytest.fixture
async def store(redis_server):
    """Return a store with keys of its own."""
    opened = RedisQuotaStore(redis_server.url, prefix=f"{PREFIX}{next(IDS)}:")
    yield opened
    await opened.aclose()


async def test_a_call_of_unknown_cost_fits_while_something_is_left(store):
    """A window that is used up to its ceiling admits nothing whose cost nobody knows, by the words of one in memory."""
    refusals = []
    for quota in (Quota(max_usd="0.30", store=store), Quota(max_usd="0.30")):
        assert (await quota.guard(call(cost=None))).ok
        assert (await quota.guard(call())).ok
        with pytest.raises(MeterExceeded) as caught:
            await quota.guard(call(cost=None))
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]


async def test_a_ceiling_below_a_nano_dollar_is_not_rounded_up(store):
    """Bounds are counted up to the next nano-dollar and ceilings down, so that no rounding lets a call through."""
    limits = QuotaLimits(None, None, Decimal("0.0000000019"), 60.0)
    assert (await store.reserve("t", Quote(0, 0, Decimal("0.0000000019")), limits)).axis == "cost"
    assert (await store.reserve("t", Quote(0, 0, Decimal("0.0000000010")), limits)).axis == ""


async def test_a_quota_reserves_settles_and_refuses_as_one_in_memory_does(store):
    """Requests, tokens and money refuse by the same words; what was not used is free again; tenants are apart."""
    quotas = {
        "requests": Quota(max_rpm=2, store=store),
        "tokens": Quota(max_tpm=30, store=store),
        "cost": Quota(max_usd="0.60", store=store),
    }
    for number, (axis, quota) in enumerate(quotas.items()):
        tenant = f"t{number}"
        first, second = call(tenant), call(tenant)
        assert (await quota.guard(first)).ok
        assert (await quota.guard(second)).ok
        with pytest.raises(MeterExceeded) as caught:
            await quota.guard(call(tenant))
        assert caught.value.axis == axis
        local = Quota(max_rpm=quota.max_rpm, max_tpm=quota.max_tpm, max_usd=quota.max_usd)
        for _ in range(2):
            await local.guard(call(tenant))
        with pytest.raises(MeterExceeded) as same:
            await local.guard(call(tenant))
        assert str(caught.value) == str(same.value)
        assert (await quota.guard(call(f"other{number}"))).ok
        quota.settle(first, row(first, "0.10"))
        quota.release(second)
        await quota.flush()
        if axis == "requests":
            with pytest.raises(MeterExceeded):
                await quota.guard(call(tenant))
        else:
            assert (await quota.guard(call(tenant))).ok


async def test_standing_is_read_without_counting(store):
    """Attempts in flight count at their bound; asking changes nothing, and only the store can be asked."""
    quota = Quota(max_usd="1.00", store=store)
    nothing = await quota.standing("acme")
    assert (nothing.axis, nothing.requests, nothing.tokens, nothing.dollars) == ("", 0, 0, 0)
    first = call()
    key = first.ctx.scope.key()
    await quota.guard(first)
    for _ in range(3):
        standing = await quota.standing(key)
        assert (standing.requests, standing.tokens, standing.dollars) == (1, 15, Decimal("0.30"))
    quota.settle(first, row(first, "0.10"))
    await quota.flush()
    assert (await quota.standing(key)).dollars == Decimal("0.10")
    with pytest.raises(ConfigurationError, match="standing"):
        quota.spent_in_window(key)


async def test_many_workers_admit_together_what_one_would(redis_server, tmp_path):
    """Four processes at once: never more than fits of requests or money, and no less than surely fits."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    prefix = f"{PREFIX}many:"
    environment = {**os.environ, "PYTHONPATH": str(Path(agentkit.__file__).parent.parent)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), redis_server.url, prefix], stdout=subprocess.PIPE, env=environment
        )
        for _ in range(4)
    ]
    admitted = sum(int(worker.communicate()[0]) for worker in workers)
    store = RedisQuotaStore(redis_server.url, prefix=prefix)
    standing = await store.reserve("acme", Quote(0, 0, Decimal(9)), QuotaLimits(None, None, Decimal(1), 600.0))
    await store.aclose()
    assert standing.axis == "cost"
    assert standing.requests == admitted
    assert Decimal("0.97") < standing.dollars <= Decimal("1.00")


async def test_a_slice_leaves_the_window_and_an_idle_key_takes_nothing(redis_server, store):
    """By the server's own clock: after the window there is room again, and after a little more no key is left."""
    import redis.asyncio

    limits = QuotaLimits(1, None, None, 0.6)
    assert not (await store.reserve("k", Quote(), limits)).axis
    refused = await store.reserve("k", Quote(), limits)
    assert (refused.axis, refused.requests) == ("requests", 1)
    assert 0 < refused.wait <= 0.62
    while (standing := await store.reserve("k", Quote(), limits)).axis:
        assert standing.wait > 0
    client = redis.asyncio.Redis.from_url(redis_server.url)
    key = store._prefix + "k"
    assert await client.hlen(key) <= 64
    while await client.exists(key):
        await asyncio.sleep(0)
    await client.aclose()


async def test_a_bound_that_has_left_the_window_is_not_taken_back(store):
    """A call longer than the window ends in a window of its own: what it used counts, and nothing goes below zero."""
    limits = QuotaLimits(None, 100, None, 0.3)
    standing = await store.reserve("k", Quote(40, 20), limits)
    while (await store.reserve("k", Quote(40, 1), limits)).axis:
        await asyncio.sleep(0)
    await store.settle("k", standing.slice, Quote(40, 20), 30, Decimal(0), 0.3)
    told = await store.reserve("k", Quote(1000, 0), limits)
    assert told.axis == "tokens"
    assert told.tokens >= 30


async def test_one_round_trip_a_reservation(redis_server, store):
    """The server counts one script call for each, however long the window has been in use."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(redis_server.url)
    await store.reserve("k", Quote(), LIMITS)
    await client.config_resetstat()
    for _ in range(20):
        await store.reserve("k", Quote(1, 1), LIMITS)
    stats = await client.info("commandstats")
    await client.aclose()
    assert stats["cmdstat_evalsha"]["calls"] == 20
    assert stats.get("cmdstat_eval", {"calls": 0})["calls"] == 0


async def test_waiting_in_turns(store):
    """A full window is waited for; two tenants under one key are let in by turns, whoever came first."""
    quota = Quota(max_rpm=1, window=0.3, on_exceeded="wait", store=store, by=lambda _: "shared")
    await quota.guard(call("first"))
    order: list[str] = []

    async def one(tenant: str) -> None:
        await quota.guard(call(tenant))
        order.append(tenant)

    greedy = [asyncio.ensure_future(one("greedy")) for _ in range(3)]
    await asyncio.sleep(0)
    modest = asyncio.ensure_future(one("modest"))
    await asyncio.gather(*greedy, modest)
    assert order.index("modest") <= 1


async def test_a_server_that_goes_away_and_comes_back(redis_server):
    """Closed refuses and says so, open lets through; after a restart both count again, from nothing."""
    prefix = f"{PREFIX}restart:"
    stores = [RedisQuotaStore(redis_server.url, prefix=prefix + each) for each in "co"]
    closed = Quota(max_rpm=1, store=stores[0])
    opened = Quota(max_rpm=1, store=stores[1], on_error="open")
    for quota in (closed, opened):
        await quota.guard(call())
    redis_server.stop()
    try:
        with pytest.raises(MeterExceeded, match="the quota's store cannot answer") as caught:
            await closed.guard(call())
        assert caught.value.axis == "store"
        for _ in range(3):
            assert (await opened.guard(call())).ok
    finally:
        redis_server.start()
    for quota in (closed, opened):
        while True:
            try:
                verdict = await quota.guard(call())
            except MeterExceeded as error:
                assert error.axis in ("store", "requests")
                if error.axis == "requests":
                    break
                continue
            assert verdict.ok
    for store in stores:
        await store.aclose()


async def test_errors_hold_no_password():
    """An address nobody answers at is a StoreError that names the host alone."""
    store = RedisQuotaStore("redis://app:hunter2-secret@127.0.0.1:1/0")
    with pytest.raises(StoreError, match="Redis at 127.0.0.1") as caught:
        await store.reserve("k", Quote(), LIMITS)
    await store.aclose()
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r} {store!r}"
    with pytest.raises(ConfigurationError) as refused:
        RedisQuotaStore("http://app:hunter2-secret@127.0.0.1")
    assert "hunter2" not in str(refused.value)


def test_successive_loops(redis_server):
    """One store serves one event loop after the other, and counts on."""
    store = RedisQuotaStore(redis_server.url, prefix=f"{PREFIX}loops:")

    async def one() -> int:
        return (await store.reserve("k", Quote(), LIMITS)).requests

    assert [asyncio.run(one()) for _ in range(3)] == [1, 2, 3]


async def test_feedback_of_a_provider_closes_a_key(store):
    """A 429's hint refuses further calls of the key, for as long as it says."""
    quota = Quota(store=store)
    first = call()
    await quota.guard(first)
    quota.learn(first, RateLimit(retry_after=30))
    with pytest.raises(MeterExceeded, match="takes nothing for"):
        await quota.guard(call())
    assert (await quota.guard(call("another"))).ok
