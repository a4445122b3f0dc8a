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
BUSY_SECONDS = 5.0
OPEN_ATTEMPTS = 20

_SCHEMA = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT;
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
CREATE TABLE IF NOT EXISTS ledger (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, run_id TEXT NOT NULL, path TEXT NOT NULL,
    model TEXT NOT NULL, cost TEXT, at TEXT NOT NULL, record BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ledger_by_run ON ledger (tenant, run_id);
"""


class SqliteFile:
    """A database file shared by the stores over it; opened on first use, closed with `aclose`.

    Every transaction is one function on one worker thread, so a cancelled caller never leaves half of one behind.
    `durability` "full" survives power loss, "normal" a crash of the process. Errors are StoreError naming the file.
    """

    def __init__(self, path: str | Path, *, durability: Durability = "full") -> None:
        if durability not in ("full", "normal"):
            raise ConfigurationError(f"durability={durability!r}: pass 'full' or 'normal'.")
        self.path = Path(path)
        self._durability = durability
        self._worker: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Run the function inside one transaction; it is committed, or wholly undone, also when the caller is gone."""
        worker = self._started()
        future = asyncio.wrap_future(worker.submit(self._run, work, write))
        return await asyncio.shield(future)

    async def aclose(self) -> None:
        """Finish what was begun and close the file; may be called twice."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.shield(asyncio.wrap_future(worker.submit(self._close)))
            worker.shutdown(wait=True)

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
        except AgentkitError:
            raise
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}.") from error

    def _open(self) -> sqlite3.Connection:
        for attempt in range(OPEN_ATTEMPTS):
            try:
                self._connection = self._connect()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == OPEN_ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0.005, 0.05))
            else:
                return self._connection
        raise StoreError(f"{self.path} could not be opened.")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._durability.upper()}")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            found = connection.execute("SELECT version FROM schema_version").fetchone()
            if found is None:
                connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
            connection.execute("COMMIT")
            if found is not None and found[0] > SCHEMA_VERSION:
                raise StoreError(f"{self.path} has schema {found[0]}; this release knows {SCHEMA_VERSION}. Upgrade it.")
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
