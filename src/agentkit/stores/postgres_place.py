"""One PostgreSQL database for many workers: a pool for each event loop, and the tables of this package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import AgentkitError, ConfigurationError, StoreError

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PostgresPlace"]

T = TypeVar("T")

SCHEMA_VERSION = 1
_LOCK = 0x61676B74  # the advisory lock under which one worker makes the tables
_MOST_CONNECTIONS = 10

_TABLES = """
CREATE TABLE slots (
    tenant TEXT, run_id TEXT, path TEXT, status TEXT NOT NULL, revision BIGINT NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL, lease_owner TEXT, lease_expires_at TIMESTAMPTZ, fence BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, run_id, path)
);
CREATE INDEX slots_by_status ON slots (tenant, status, updated_at);
CREATE SEQUENCE fences;
CREATE TABLE records (
    tenant TEXT, run_id TEXT, path TEXT, revision BIGINT, position INT, kind TEXT NOT NULL, key TEXT NOT NULL,
    data BYTEA NOT NULL, PRIMARY KEY (tenant, run_id, path, revision, position)
);
CREATE UNIQUE INDEX journal_once ON records (tenant, run_id, path, key) WHERE kind = 'journal';
CREATE TABLE entries (
    tenant TEXT, key TEXT, value BYTEA NOT NULL, expires_at TIMESTAMPTZ, PRIMARY KEY (tenant, key)
);
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE ledger (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL,
    call_id TEXT NOT NULL, attempt INT NOT NULL, "user" TEXT, session TEXT, agent TEXT NOT NULL, provider TEXT NOT NULL,
    model TEXT NOT NULL, purpose TEXT NOT NULL, at TIMESTAMPTZ NOT NULL, state TEXT NOT NULL,
    known NUMERIC(38, 12) NOT NULL, complete BOOL NOT NULL, accepted BOOL NOT NULL, estimated BOOL NOT NULL,
    unknown BOOL NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL, cache_write_tokens BIGINT NOT NULL, hold NUMERIC(38, 12) NOT NULL,
    keys TEXT[] NOT NULL, until TIMESTAMPTZ, entry BYTEA NOT NULL, UNIQUE (tenant, run_id, call_id, attempt)
);
CREATE INDEX ledger_by_day ON ledger (tenant, at);
CREATE INDEX ledger_open ON ledger (until) WHERE state = 'open';
CREATE TABLE shared (
    key TEXT PRIMARY KEY, spent NUMERIC(38, 12) NOT NULL DEFAULT 0, held NUMERIC(38, 12) NOT NULL DEFAULT 0,
    uncertain NUMERIC(38, 12) NOT NULL DEFAULT 0
);
CREATE TABLE version (number INT NOT NULL);
"""


class PostgresPlace:
    """A database shared by the stores over it; connected on first use, closed with `aclose` or with the event loop.

    `url` is "postgresql://USER:PASSWORD@HOST/DATABASE"; its password is in no error. The tables live in the schema
    `schema`, which is made when it is missing. With a clock of its own, leases go by that one, else by the database's.
    Errors are StoreError naming the host. Needs the extra `postgres`.
    """

    def __init__(self, url: str, *, schema: str = "agentkit", clock: Clock = SYSTEM_CLOCK) -> None:
        if not schema.isidentifier() or not schema.isascii() or schema != schema.lower():
            raise ConfigurationError(f"schema={schema!r}: pass lower case letters, digits and '_'.")
        self._url = url
        self._schema = schema
        self._clock = None if clock is SYSTEM_CLOCK else clock
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[_Kept]] = WeakKeyDictionary()
        self._closed = False
        parts = urlsplit(url)
        self._name = f"PostgreSQL at {parts.hostname or 'the local socket'}{parts.path}"

    def __repr__(self) -> str:
        return f"PostgresPlace({self._name!r})"

    def now(self) -> datetime | None:
        """Return the time of the own clock, None when it is the database's that counts."""
        return None if self._clock is None else self._clock.wall()

    async def transact(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Run the function in one transaction: all of what it did is kept, or none."""
        async with self._errors_told():
            kept = await self._pool()
            async with kept.pool.acquire() as connection, connection.transaction():
                return await work(connection)

    async def aclose(self) -> None:
        """Close the connections of this event loop; may be called twice."""
        self._closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None and not _failed(pool):
            async with self._errors_told():
                await (await pool).keeper.aclose()

    async def _pool(self) -> _Kept:
        if self._closed:
            raise StoreError("it was closed; open the store again.")
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or _failed(pool):
            pool = self._pools[loop] = asyncio.ensure_future(self._open())
        return await asyncio.shield(pool)

    async def _open(self) -> _Kept:
        import asyncpg

        path = {"search_path": self._schema}
        pool = await asyncpg.create_pool(self._url, min_size=0, max_size=_MOST_CONNECTIONS, server_settings=path)
        try:
            async with pool.acquire() as connection, connection.transaction():
                await self._prepare(connection)
        except BaseException:
            pool.terminate()
            raise
        keeper = _keep(pool)
        await anext(keeper)
        return _Kept(pool, keeper)

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
        if await connection.fetchval("SELECT to_regclass($1)", f"{self._schema}.version") is None:
            await connection.execute(_TABLES)
            await connection.execute("INSERT INTO version VALUES ($1)", SCHEMA_VERSION)
        found = await connection.fetchval("SELECT number FROM version")
        if found != SCHEMA_VERSION:
            raise StoreError(f"its tables are of version {found}; this release knows {SCHEMA_VERSION}.")

    @asynccontextmanager
    async def _errors_told(self) -> AsyncGenerator[None, None]:
        try:
            import asyncpg
        except ImportError:
            raise ConfigurationError(
                "A PostgreSQL store needs asyncpg: pip install 'agentkit-core[postgres]'."
            ) from None
        try:
            yield
        except StoreError as error:
            raise StoreError(f"{self._name}: {error.message}") from error.__cause__
        except AgentkitError:
            raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError) as error:
            raise StoreError(f"{self._name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from None


class _Kept:
    """A pool, and the generator whose end closes it."""

    __slots__ = ("keeper", "pool")

    def __init__(self, pool: asyncpg.Pool, keeper: AsyncGenerator[None, None]) -> None:
        self.pool = pool
        self.keeper = keeper


async def _keep(pool: asyncpg.Pool) -> AsyncGenerator[None, None]:
    """Hold the pool; a loop that ends closes its asynchronous generators, and so this pool."""
    try:
        yield
    finally:
        await pool.close()


def _failed(pool: asyncio.Future[_Kept]) -> bool:
    return pool.done() and (pool.cancelled() or pool.exception() is not None)
