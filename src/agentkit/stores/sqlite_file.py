"""One SQLite file, one worker thread, one function a transaction."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from agentkit.errors import AgentkitError, ConfigurationError, StoreError

__all__ = ["Durability", "SqliteFile"]

T = TypeVar("T")
Durability = Literal["full", "normal"]

SCHEMA_VERSION = 1
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS fences (last INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS slots (
    tenant TEXT NOT NULL, run_id TEXT NOT NULL, path TEXT NOT NULL,
    status TEXT NOT NULL, revision INTEGER NOT NULL, updated_at TEXT NOT NULL,
    lease_owner TEXT, lease_expires_at TEXT, fence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, run_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS slots_by_status ON slots (tenant, status, updated_at);
CREATE TABLE IF NOT EXISTS records (
    tenant TEXT NOT NULL, run_id TEXT NOT NULL, path TEXT NOT NULL,
    revision INTEGER NOT NULL, position INTEGER NOT NULL,
    kind TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (tenant, run_id, path, revision, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS journal_once ON records (tenant, run_id, path, key) WHERE kind = 'journal';
CREATE TABLE IF NOT EXISTS approvals (
    tenant TEXT NOT NULL, run_id TEXT NOT NULL, id TEXT NOT NULL,
    path TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL,
    actor TEXT, reason TEXT, created_at TEXT NOT NULL, expires_at TEXT, consumed_at TEXT,
    PRIMARY KEY (tenant, run_id, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    tenant TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, expires_at TEXT,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS ledger (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, run_id TEXT NOT NULL, path TEXT NOT NULL,
    model TEXT NOT NULL, cost TEXT, at TEXT NOT NULL, record BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ledger_by_run ON ledger (tenant, run_id);
"""


class SqliteFile:
    """A database file shared by the stores over it; opened on first use, closed with `aclose`.

    Every transaction is one function on one worker thread, so a cancelled caller never leaves half of one behind.
    `durability` "full" survives power loss, "normal" a crash of the process. `busy_timeout` is how many seconds a
    lock of another process is waited for. Errors are StoreError naming the file.
    """

    def __init__(self, path: str | Path, *, durability: Durability = "full", busy_timeout: float = 5.0) -> None:
        if durability not in ("full", "normal"):
            raise ConfigurationError(f"durability={durability!r}: pass 'full' or 'normal'.")
        if not busy_timeout >= 0:
            raise ConfigurationError(f"busy_timeout={busy_timeout!r}: pass seconds, 0 or more.")
        self.path = Path(path).absolute()
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._worker: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Run the function inside one transaction; it is committed, or wholly undone, also when the caller is gone."""
        future = asyncio.wrap_future(self._started().submit(self._run, work, write))
        return await asyncio.shield(future)

    async def aclose(self) -> None:
        """Finish what was begun and close the file; may be called twice."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            closing = worker.submit(self._close)
            worker.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(closing))

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.path} was closed; open the store again.")
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="agentkit-sqlite")
            return self._worker

    def _run(self, work: Callable[[sqlite3.Connection], T], write: bool) -> T:
        try:
            connection = self._connection or self._open()
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result
        except StoreError as error:
            raise StoreError(f"{self.path}: {error.message}") from error
        except AgentkitError:
            raise
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise StoreError(f"{self.path}: {error}.") from error

    def _open(self) -> sqlite3.Connection:
        """Connect, trying again while others create the file: the switch to WAL waits for no lock by itself."""
        if not self.path.parent.is_dir():
            raise StoreError("its directory does not exist; create it first.")
        until = time.monotonic() + self._busy_timeout
        pause = 0.002
        while True:
            try:
                self._connection = self._connect()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() >= until:
                    raise
                time.sleep(random.uniform(pause / 2, pause))
                pause = min(pause * 2, 0.1)
            else:
                return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._durability.upper()}")
            connection.execute("BEGIN IMMEDIATE")
            _prepare(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT")
    found = connection.execute("SELECT version FROM schema_version").fetchone()
    if found is not None:
        if found[0] != SCHEMA_VERSION:
            raise StoreError(f"it has schema {found[0]}; this release knows {SCHEMA_VERSION}. Upgrade agentkit.")
        return
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO fences VALUES (0)")
    connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
