"""One SQLite file, one worker thread, one function a transaction."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from agentkit.errors import AgentkitError, ConfigurationError, StoreError
from agentkit.stores.ledger_rows import move_in
from agentkit.stores.sqlite_schema import MoneySum, prepare

__all__ = ["Durability", "SqliteFile"]

T = TypeVar("T")
Durability = Literal["full", "normal"]

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MOST_TOGETHER = 256

Work = Callable[[sqlite3.Connection], object]
_Outcome = tuple[bool, object]


class SqliteFile:
    """A database file shared by the stores over it; opened on first use, closed with `aclose`.

    What is written is a function on one worker thread, so a cancelled caller never leaves half of it behind. Functions
    that wait for the thread together share one commit; each is undone alone when it fails.
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
        self._waiting: list[tuple[Work, Future[Any]]] = []

    async def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Run the function in a transaction; what it did is kept or wholly undone, also when the caller is gone."""
        mine: Future[T] = Future()
        with self._lock:
            worker = self._started()
            if not write:
                worker.submit(self._run_one, work, mine)
            else:
                self._waiting.append((work, mine))
                if len(self._waiting) == 1:
                    worker.submit(self._run_waiting)
        done = asyncio.wrap_future(mine)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(_heard)  # nobody is left to hear of a failure
            raise

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
        if self._closed:
            raise StoreError(f"{self.path} was closed; open the store again.")
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="agentkit-sqlite")
        return self._worker

    def _run_waiting(self) -> None:
        """Run everything that waits in one transaction, or each in its own when that one fails as a whole."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _MOST_TOGETHER):
            batch = waiting[start : start + _MOST_TOGETHER]
            outcomes: list[_Outcome] = []
            if len(batch) > 1:
                with suppress(Exception):  # what went wrong shows again when each runs alone
                    outcomes = self._run(partial(_together, [work for work, _ in batch]), "BEGIN IMMEDIATE")
            for (work, mine), outcome in zip_longest(batch, outcomes):
                _tell(mine, outcome or self._alone(work, "BEGIN IMMEDIATE"))

    def _run_one(self, work: Work, mine: Future[Any]) -> None:
        _tell(mine, self._alone(work, "BEGIN"))

    def _alone(self, work: Work, begin: str) -> _Outcome:
        try:
            return True, self._run(work, begin)
        except BaseException as error:
            return False, error

    def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        try:
            connection = self._connection or self._open()
            connection.execute(begin)
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
            connection.create_aggregate("money_sum", 1, cast("Callable[[], sqlite3._AggregateProtocol]", MoneySum))
            connection.execute("BEGIN IMMEDIATE")
            move_in(connection, prepare(connection))
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _together(works: Sequence[Work], db: sqlite3.Connection) -> list[_Outcome]:
    """Run several functions in one transaction; what one of them did is undone when it refuses."""
    outcomes: list[_Outcome] = []
    for work in works:
        db.execute("SAVEPOINT one")
        try:
            outcomes.append((True, work(db)))
        except AgentkitError as error:
            db.execute("ROLLBACK TO one")
            outcomes.append((False, error))
        db.execute("RELEASE one")
    return outcomes


def _heard(done: asyncio.Future[T]) -> None:
    if not done.cancelled():
        done.exception()


def _tell(mine: Future[Any], outcome: _Outcome) -> None:
    fine, result = outcome
    if fine:
        mine.set_result(result)
    else:
        mine.set_exception(cast("BaseException", result))
