"""Opening the stores of one place together."""

from __future__ import annotations

from pathlib import Path

from agentkit.core.contracts import KeyValueStore, LedgerStore, RunLog
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import ConfigurationError
from agentkit.stores.ledger_memory import MemoryLedgerStore
from agentkit.stores.ledger_postgres import PostgresLedgerStore
from agentkit.stores.ledger_sqlite import SqliteLedgerStore
from agentkit.stores.memory import MemoryKeyValueStore, MemoryRunLog
from agentkit.stores.postgres import PostgresKeyValueStore, PostgresRunLog
from agentkit.stores.postgres_place import PostgresPlace
from agentkit.stores.sqlite import SqliteKeyValueStore, SqliteRunLog
from agentkit.stores.sqlite_file import Durability, SqliteFile

__all__ = ["Store", "open_store"]


class Store:
    """Runs, cache and ledger of one place; `durable` when they outlive the process. `aclose` closes all of them."""

    __slots__ = ("durable", "kv", "ledger", "run_log")

    def __init__(self, run_log: RunLog, kv: KeyValueStore, ledger: LedgerStore, *, durable: bool) -> None:
        self.run_log = run_log
        self.kv = kv
        self.ledger = ledger
        self.durable = durable

    async def aclose(self) -> None:
        """Release the place's resources; may be called twice."""
        await self.run_log.aclose()


def open_store(url: str | Path, *, clock: Clock = SYSTEM_CLOCK, durability: Durability = "full") -> Store:
    """Return the stores at "memory:", "sqlite:FILE", "postgresql://..." or a path.

    Nothing is touched before the first use. A relative path is that of the directory it was opened from. PostgreSQL
    needs the extra `postgres`. Raises ConfigurationError for another scheme.
    """
    text = str(url)
    scheme, colon, rest = text.partition(":")
    if isinstance(url, Path) or not colon:
        scheme, rest = "sqlite", text
    if scheme == "memory" and not rest:
        memory = MemoryRunLog(clock=clock), MemoryKeyValueStore(clock=clock), MemoryLedgerStore(clock=clock)
        return Store(*memory, durable=False)
    if scheme == "sqlite" and rest.startswith(("//", ":")):
        raise ConfigurationError(f"store={text!r}: write 'sqlite:FILE' without slashes before it, or 'memory:'.")
    if scheme == "sqlite" and rest:
        file = SqliteFile(rest, durability=durability)
        log, kv = SqliteRunLog(file, clock=clock), SqliteKeyValueStore(file, clock=clock)
        return Store(log, kv, SqliteLedgerStore(file, clock=clock), durable=True)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        place = PostgresPlace(text, clock=clock)
        return Store(PostgresRunLog(place), PostgresKeyValueStore(place), PostgresLedgerStore(place), durable=True)
    shown = f"{scheme}:..." if "@" in rest else text
    raise ConfigurationError(
        f"store={shown!r}: pass 'memory:', 'sqlite:FILE', 'postgresql://HOST/DATABASE' or the path of a file."
    )
