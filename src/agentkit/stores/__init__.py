"""Memory, SQLite, PostgreSQL and Redis behind the store ports."""

from agentkit.stores.ledger_memory import MemoryLedgerStore
from agentkit.stores.ledger_postgres import PostgresLedgerStore
from agentkit.stores.ledger_sqlite import SqliteLedgerStore
from agentkit.stores.memory import MemoryKeyValueStore, MemoryRunLog
from agentkit.stores.postgres import PostgresKeyValueStore, PostgresRunLog
from agentkit.stores.postgres_place import PostgresPlace
from agentkit.stores.redis import RedisQuotaStore
from agentkit.stores.sqlite import SqliteKeyValueStore, SqliteRunLog
from agentkit.stores.sqlite_file import SqliteFile
from agentkit.stores.store import Store, open_store

__all__ = [
    "MemoryKeyValueStore",
    "MemoryLedgerStore",
    "MemoryRunLog",
    "PostgresKeyValueStore",
    "PostgresLedgerStore",
    "PostgresPlace",
    "PostgresRunLog",
    "RedisQuotaStore",
    "SqliteFile",
    "SqliteKeyValueStore",
    "SqliteLedgerStore",
    "SqliteRunLog",
    "Store",
    "open_store",
]
