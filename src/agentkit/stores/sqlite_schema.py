"""The tables of a SQLite file, and how an older file becomes one of this release."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from decimal import Decimal

from agentkit.core.contracts import ZERO, add_money
from agentkit.errors import StoreError

__all__ = ["SCHEMA_VERSION", "MoneySum", "prepare", "to_text"]

SCHEMA_VERSION = 2

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
"""

_LEDGER = """
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, call_id TEXT NOT NULL,
    attempt INTEGER NOT NULL, user TEXT, session TEXT, agent TEXT NOT NULL, provider TEXT NOT NULL,
    model TEXT NOT NULL, purpose TEXT NOT NULL, at TEXT NOT NULL, state TEXT NOT NULL, known TEXT NOT NULL,
    complete INTEGER NOT NULL, accepted INTEGER NOT NULL, estimated INTEGER NOT NULL, unknown INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL, hold TEXT NOT NULL, keys TEXT NOT NULL, until TEXT, entry BLOB NOT NULL,
    UNIQUE (tenant, run_id, call_id, attempt)
) STRICT;
CREATE INDEX ledger_by_day ON ledger (tenant, at);
CREATE INDEX ledger_open ON ledger (until) WHERE state = 'open';
CREATE TABLE shared (
    key TEXT PRIMARY KEY, spent TEXT NOT NULL, held TEXT NOT NULL, uncertain TEXT NOT NULL
) STRICT, WITHOUT ROWID
"""


class MoneySum:
    """The exact sum of decimal text, as an aggregate function of SQL."""

    def __init__(self) -> None:
        self._total = ZERO

    def step(self, amount: str) -> None:
        """Add one amount."""
        self._total = add_money(self._total, Decimal(amount))

    def finalize(self) -> str:
        """Return the sum as decimal text."""
        return f"{self._total:f}"


def prepare(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Make the tables, or bring those of an older release up to date; raises StoreError for those of a newer one.

    Returns the rows of the first schema's ledger, which wait for being written anew.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT")
    found = connection.execute("SELECT version FROM schema_version").fetchone()
    version = 0 if found is None else int(found[0])
    if version > SCHEMA_VERSION:
        raise StoreError(f"it has schema {version}; this release knows {SCHEMA_VERSION}. Upgrade agentkit.")
    if version == SCHEMA_VERSION:
        return []
    _run_all(connection, _SCHEMA)
    old: list[tuple[object, ...]] = []
    if version == 1:
        old = connection.execute("SELECT id, tenant, user, at, record FROM ledger ORDER BY id").fetchall()
        connection.execute("DROP TABLE ledger")
        connection.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))
    else:
        connection.execute("INSERT INTO fences VALUES (0)")
        connection.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    _run_all(connection, _LEDGER)
    return old


def _run_all(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement)


def to_text(moment: datetime) -> str:
    """Return the moment so that texts sort as times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
