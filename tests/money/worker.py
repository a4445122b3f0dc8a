"""A worker of test_workers: a whole runtime on a store that others share, calling until nothing fits any more."""

from __future__ import annotations

import asyncio
import sys

from agentkit import Binding, Budget, CallRuntime, ModelSettings, Quota, RetryPolicy, Scope
from agentkit.errors import MeterExceeded
from agentkit.stores import (
    PostgresKeyValueStore,
    PostgresLedgerStore,
    PostgresPlace,
    PostgresRunLog,
    RedisQuotaStore,
    Store,
    open_store,
)

CEILING = "0.03"
PRICE = "10/10"
KEY = "acme"
SCOPE = Scope(tenant="acme")


def opened(where: str, schema: str, clock=None) -> Store:
    """Open the store that all workers share."""
    more = {} if clock is None else {"clock": clock}
    if not schema:
        return open_store(where, durability="normal", **more)
    place = PostgresPlace(where, schema=schema, **more)
    return Store(PostgresRunLog(place), PostgresKeyValueStore(place), PostgresLedgerStore(place), durable=True)


async def spend(store: Store, server: str, name: str, quota: Quota | None = None) -> int:
    """Ask two at a time until a meter refuses; return how many were answered."""
    budget = Budget(CEILING, shared=KEY, strict=True, max_wait=0.2)
    answered = 0
    async with CallRuntime(store=store, budget=budget, quota=quota, retry=RetryPolicy(max_attempts=1)) as calls:
        binding = Binding("openai:m", base_url=server, api_key="k", price=PRICE)

        async def one(number: int) -> object:
            ctx = calls.context(f"{name}:{number}", SCOPE)
            return await calls.ask(binding, name, ctx=ctx, settings=ModelSettings(max_tokens=120))

        while True:
            pair = await asyncio.gather(one(2 * answered), one(2 * answered + 1), return_exceptions=True)
            refused = [each for each in pair if isinstance(each, BaseException)]
            answered += 1
            if refused:
                assert all(isinstance(each, MeterExceeded) for each in refused), refused
                return answered


async def main(where: str, schema: str, server: str, name: str, redis: str) -> None:
    """Open the store, wait for the word to begin, spend, and close the store."""
    store = opened(where, schema)
    await store.ledger.standing(KEY)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    quotas = RedisQuotaStore(redis, prefix=f"{schema or where}:") if redis else None
    await spend(store, server, name, None if quotas is None else Quota(max_rpm=11, window=600.0, store=quotas))
    if quotas is not None:
        await quotas.aclose()
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
