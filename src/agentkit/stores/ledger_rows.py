"""Single rows of a ledger in SQLite, inside a transaction that somebody else holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from agentkit.core.contracts import ZERO, CostRecord, LedgerEntry, SharedSpend
from agentkit.core.contracts.codec import decode_data, encode_data
from agentkit.stores.ledger_rules import columns, released, settled
from agentkit.stores.sqlite_schema import to_text

__all__ = ["add", "decoded", "end", "find", "lose", "move_in", "stand", "standing"]

_COLUMNS = (
    "tenant, run_id, call_id, attempt, user, session, agent, provider, model, purpose, at, state, known, complete, "
    "accepted, estimated, unknown, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, hold, keys, "
    "until, entry"
)
_VALUES = ", ".join("?" * 25)
_ADD = f"INSERT OR IGNORE INTO ledger ({_COLUMNS}) VALUES ({_VALUES})"
_FIND = "SELECT seq, state, at, hold, keys FROM ledger WHERE tenant = ? AND run_id = ? AND call_id = ? AND attempt = ?"
_UPDATE = f"UPDATE ledger SET ({_COLUMNS}) = ({_VALUES}) WHERE seq = ?"
_EXPIRED = "SELECT seq, hold, keys, entry FROM ledger WHERE state = 'open' AND until <= ?"
_STANDING = "SELECT spent, held, uncertain FROM shared WHERE key = ?"
_STAND = (
    "INSERT INTO shared (key, spent, held, uncertain) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "spent = excluded.spent, held = excluded.held, uncertain = excluded.uncertain"
)


def add(db: sqlite3.Connection, entry: LedgerEntry, hold: Decimal, keys: Sequence[str], until: datetime | None) -> bool:
    """Write a new row; returns False when the attempt has one already."""
    lease = None if until is None else to_text(until)
    return bool(db.execute(_ADD, (*_row(entry), f"{hold:f}", "\n".join(keys), lease, _encoded(entry))).rowcount)


def find(db: sqlite3.Connection, entry: LedgerEntry) -> tuple[int, str, str, str, str] | None:
    """Return the attempt's number, state, moment, hold and keys, None when it has no row."""
    found: tuple[int, str, str, str, str] | None = db.execute(_FIND, entry.id).fetchone()
    return found


def end(db: sqlite3.Connection, entry: LedgerEntry, found: tuple[int, str, str, str, str]) -> None:
    """Settle the row that was found: what it held is replaced by what it cost."""
    seq, state, at, hold, keys = found
    for key in filter(None, keys.split("\n")):
        stand(db, key, settled(standing(db, key), Decimal(hold), entry, lost=state == "lost"))
    kept = replace(entry, at=datetime.fromisoformat(at))
    db.execute(_UPDATE, (*_row(kept), hold, keys, None, _encoded(kept), seq))


def lose(db: sqlite3.Connection, now: datetime) -> None:
    """Give up open rows whose lease has run out."""
    for seq, hold, keys, data in db.execute(_EXPIRED, (to_text(now),)).fetchall():
        for key in filter(None, keys.split("\n")):
            stand(db, key, released(standing(db, key), Decimal(hold)))
        lost = replace(decoded(data), state="lost")
        db.execute(_UPDATE, (*_row(lost), hold, keys, None, _encoded(lost), seq))


def standing(db: sqlite3.Connection, key: str) -> SharedSpend:
    """Return what stands under a shared key."""
    found = db.execute(_STANDING, (key,)).fetchone()
    return SharedSpend() if found is None else SharedSpend(*map(Decimal, found))


def stand(db: sqlite3.Connection, key: str, now: SharedSpend) -> None:
    """Write what stands under a shared key."""
    db.execute(_STAND, (key, f"{now.spent:f}", f"{now.held:f}", f"{now.uncertain:f}"))


def move_in(db: sqlite3.Connection, old: Sequence[tuple[object, ...]]) -> None:
    """Write the rows of the first schema, which held settled attempts only."""
    for number, tenant, user, at, data in old:
        record = decode_data(data, "cost_record", CostRecord)  # type: ignore[arg-type]
        entry = LedgerEntry(
            tenant=str(tenant),
            record=record,
            at=datetime.fromisoformat(str(at)),
            user=None if user is None else str(user),
        )
        if not add(db, entry, ZERO, (), None):
            add(db, replace(entry, record=replace(record, call_id=f"{record.call_id}-{number}")), ZERO, (), None)


def _row(entry: LedgerEntry) -> tuple[object, ...]:
    return columns(entry, at=to_text(entry.at), known=f"{entry.record.at_least:f}")


def _encoded(entry: LedgerEntry) -> bytes:
    return encode_data("ledger_entry", entry)


def decoded(data: bytes) -> LedgerEntry:
    """Return the entry of a row."""
    return decode_data(data, "ledger_entry", LedgerEntry)
