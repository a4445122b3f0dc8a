"""The SQLite file: several processes, cancelled callers, crashes, and errors that say so."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest

import agentkit
from agentkit.core.contracts import CostQuery, LogRecord, Slot, encode_data
from agentkit.errors import ConfigurationError, RunConflict, StoreError
from agentkit.stores import SqliteFile, SqliteLedgerStore, SqliteRunLog, open_store
from agentkit.testing import ManualClock
from agentkit.testing.ledger_suite import entry, keeps_every_row

SLOT = Slot("acme", "run")

WRITER = """
import asyncio, sys
from agentkit.core.contracts import CostQuery, LogRecord, Slot, encode_data
from agentkit.stores import open_store

async def main(path, durability):
    log = open_store(path, durability=durability).run_log
    revision = 0
    while True:
        records = (LogRecord("checkpoint", str(revision + 1), b"c" * 4000), LogRecord("journal", str(revision), b"j"))
        revision = await log.append(Slot("acme", "run"), revision, records, status="running")
        print(revision, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("CREATE TABLE IF NOT EXISTS theirs (x)")
print("held", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
db.close()
"""


@asynccontextmanager
async def child(script, *arguments):
    """Run a Python process that uses this package, and kill it at the end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(agentkit.__file__).parent.parent)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *map(str, arguments),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(("lines", "durability"), [(1, "full"), (7, "normal"), (60, "full"), (200, "normal")])
async def test_every_acknowledged_revision_survives_kill_9(tmp_path, lines, durability):
    """A process that is killed while it writes leaves each revision it was told of, whole, and nothing by halves."""
    path = tmp_path / "runs.db"
    async with child(WRITER, path, durability) as process:
        acknowledged = 0
        for _ in range(lines):
            acknowledged = int(await process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = (await process.stdout.read()).split()
        assert await process.wait() == -signal.SIGKILL
    acknowledged = int(rest[-1]) if rest else acknowledged
    store = open_store(path)
    try:
        summary, records = await store.run_log.read(SLOT)
        assert summary.revision >= acknowledged >= lines
        assert len(records) == 2 * summary.revision
        assert {len(record.data) for record in records if record.kind == "checkpoint"} == {4000}
        assert await store.run_log.append(SLOT, summary.revision, (), status="done") == summary.revision + 1
    finally:
        await store.aclose()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


async def test_many_openers_of_fresh_files_all_get_in(tmp_path):
    """Eight stores open and write each of twenty fresh files at a barrier, and none is locked out (B96)."""

    async def writer(path, number, barrier):
        store = open_store(path, durability="normal")
        try:
            await barrier.wait()
            await store.run_log.append(Slot("acme", f"run-{number}"), 0, (), status="running")
            await store.kv.set("acme", str(number), b"x")
        finally:
            await store.aclose()

    for number in range(20):
        path = tmp_path / f"{number}.db"
        barrier = asyncio.Barrier(8)
        await asyncio.gather(*(writer(path, n, barrier) for n in range(8)))
        store = open_store(path)
        assert len(await store.run_log.slots("acme")) == 8
        assert [await store.kv.get("acme", str(n)) for n in range(8)] == [b"x"] * 8
        await store.aclose()


@pytest.mark.parametrize("opened", [False, True], ids=["while-opening", "while-open"])
async def test_another_process_in_a_transaction_is_waited_for(tmp_path, opened):
    """A write waits until the other process commits, also when the file is new and not yet in WAL mode (B96)."""
    path = tmp_path / "runs.db"
    store = open_store(path)
    if opened:
        await store.run_log.append(SLOT, 0, (), status="running")
    try:
        async with child(HOLDER, path) as process:
            assert await process.stdout.readline() == b"held\n"
            write = asyncio.ensure_future(store.run_log.append(SLOT, int(opened), (), status="done"))
            done, _ = await asyncio.wait({write}, timeout=1.0)
            assert not done, "the write did not wait"
            process.stdin.write(b"go\n")
            await process.stdin.drain()
            assert await write == int(opened) + 1
    finally:
        await store.aclose()


async def test_a_lock_that_stays_is_an_error_that_names_the_file(tmp_path):
    """Neither a write nor the first read of a file that stays locked pretends that nothing is there (B94, B96)."""
    path = tmp_path / "runs.db"
    fresh = SqliteFile(path, busy_timeout=0.05)
    known = SqliteFile(tmp_path / "known.db", busy_timeout=0.05)
    await SqliteRunLog(known).append(SLOT, 0, (), status="running")
    holders = [sqlite3.connect(file.path, isolation_level=None) for file in (fresh, known)]
    for holder in holders:
        holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreError, match=r"runs\.db: database is locked"):
            await SqliteRunLog(fresh).read(SLOT)
        with pytest.raises(StoreError, match=r"known\.db: database is locked"):
            await SqliteRunLog(known).append(SLOT, 1, (), status="done")
        for holder in holders:
            holder.execute("ROLLBACK")
        assert await SqliteRunLog(fresh).append(SLOT, 0, (), status="done") == 1
        assert (await SqliteRunLog(known).read(SLOT))[0].status == "running"
    finally:
        for holder in holders:
            holder.close()
        await fresh.aclose()
        await known.aclose()


async def test_a_cancelled_caller_leaves_no_half_transaction(tmp_path):
    """Cancelling at the await lets the transaction end wholly; the file goes on working and the loop never blocks."""
    file = SqliteFile(tmp_path / "runs.db")
    log = SqliteRunLog(file)
    begun, go_on = threading.Event(), threading.Event()

    def slow(db):
        db.execute("INSERT INTO entries VALUES ('t', 'a', x'00', NULL)")
        begun.set()
        go_on.wait(10)
        db.execute("INSERT INTO entries VALUES ('t', 'b', x'00', NULL)")

    task = asyncio.ensure_future(file.transact(slow))
    await asyncio.to_thread(begun.wait, 10)
    queued = asyncio.ensure_future(log.append(SLOT, 0, (LogRecord("journal", "1", b""),), status="running"))
    await asyncio.sleep(0)
    for doomed in (task, queued):
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
    go_on.set()
    summary, records = await log.read(SLOT)
    assert summary.revision == len(records) == 1
    rows = await file.transact(lambda db: db.execute("SELECT key FROM entries ORDER BY key").fetchall())
    assert rows == [("a",), ("b",)]
    await file.aclose()


async def test_what_fails_is_undone(tmp_path):
    """A transaction whose function raises leaves nothing, and its own error comes out."""
    file = SqliteFile(tmp_path / "runs.db")

    def broken(db):
        db.execute("INSERT INTO entries VALUES ('t', 'a', x'00', NULL)")
        raise RunConflict("no")

    with pytest.raises(RunConflict, match="^no$"):
        await file.transact(broken)
    with pytest.raises(StoreError, match=r"runs\.db: no such table: nowhere"):
        await file.transact(lambda db: db.execute("SELECT * FROM nowhere"))
    assert await file.transact(lambda db: db.execute("SELECT count(*) FROM entries").fetchone()) == (0,)
    await file.aclose()


async def test_the_settings_of_the_file(tmp_path):
    """WAL with FULL or NORMAL as asked, a lock waited for, the version written down."""
    for durability, level in (("full", 2), ("normal", 1)):
        file = SqliteFile(tmp_path / f"{durability}.db", durability=durability, busy_timeout=2.5)
        pragmas = ("journal_mode", "synchronous", "busy_timeout")
        found = await file.transact(lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas])
        assert found == ["wal", level, 2500]
        assert await file.transact(lambda db: db.execute("SELECT version FROM schema_version").fetchall()) == [(2,)]
        await file.aclose()


async def test_money_lies_as_text(tmp_path):
    """The ledger's column is decimal text, whatever reads it."""
    file = SqliteFile(tmp_path / "runs.db")
    await keeps_every_row(SqliteLedgerStore(file), ManualClock())
    rows = await file.transact(lambda db: db.execute("SELECT typeof(known), known FROM ledger ORDER BY seq").fetchall())
    assert rows[:3] == [("text", "0.000000000001"), ("text", "0"), ("text", "12345678901234567890.123456789012")]
    await file.transact(lambda db: db.execute("UPDATE ledger SET entry = x'7b' WHERE seq = 1"))
    with pytest.raises(StoreError, match=r"runs\.db: A stored ledger_entry cannot be read"):
        await SqliteLedgerStore(file).entries(CostQuery(tenant="acme"))
    await file.aclose()


async def spoil_header(path):
    path.write_bytes(b"this is a letter, not a database" * 40)


async def spoil_version(path):
    file = SqliteFile(path)
    await file.transact(lambda db: db.execute("UPDATE schema_version SET version = 9"))
    await file.aclose()


async def spoil_directory(path):
    path.mkdir()


async def spoil_page(path):
    file = SqliteFile(path)
    await SqliteRunLog(file).append(SLOT, 0, (LogRecord("checkpoint", "1", b"x" * 50_000),), status="running")
    await file.aclose()
    with path.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (path.stat().st_size - 4096))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_header, "file is not a database"),
        (spoil_version, "it has schema 9; this release knows 2. Upgrade"),
        (spoil_directory, "unable to open database file"),
        (spoil_page, "malformed"),
    ],
)
async def test_a_file_that_cannot_be_read_is_an_error(tmp_path, spoil, message):
    """Foreign, newer, missing and damaged files fail with their name; none reads as empty (B94)."""
    path = tmp_path / "runs.db"
    await spoil(path)
    store = open_store(path)
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match=rf"runs\.db: .*{message}"):
                await store.run_log.read(SLOT)
    finally:
        await store.aclose()


async def test_a_newer_file_is_not_changed(tmp_path):
    """A file of a newer release keeps its bytes when an older one refuses it."""
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE schema_version (version INTEGER)")
        db.execute("INSERT INTO schema_version VALUES (3)")
    db.close()
    store = open_store(path)
    with pytest.raises(StoreError, match="schema 3"):
        await store.kv.get("t", "k")
    await store.aclose()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("schema_version",)]
    db.close()


async def test_text_that_sqlite_cannot_bind_is_a_store_error(tmp_path):
    """A lone surrogate in a key is refused by the store's own error."""
    store = open_store(tmp_path / "runs.db")
    with pytest.raises(StoreError, match=r"runs\.db: .*surrogates"):
        await store.kv.set("t", "\ud800", b"")
    await store.aclose()


async def test_a_missing_directory_is_named(tmp_path):
    """The error says that the directory is missing, not that a file cannot be opened."""
    store = open_store(tmp_path / "nowhere" / "runs.db")
    with pytest.raises(StoreError, match=r"nowhere/runs\.db: its directory does not exist"):
        await store.run_log.slots("t")
    await store.aclose()


async def test_a_closed_store_refuses(tmp_path):
    """After aclose, which may be repeated, every use says so, and no thread is left."""
    store = open_store(tmp_path / "runs.db")
    await store.run_log.append(SLOT, 0, (), status="running")
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()
    with pytest.raises(StoreError, match=r"runs\.db was closed"):
        await store.run_log.read(SLOT)
    untouched = open_store(tmp_path / "other.db")
    await untouched.aclose()
    assert not (tmp_path / "other.db").exists()


def test_one_store_serves_two_loops(tmp_path):
    """The file belongs to no event loop: what one loop wrote, the next one reads."""
    store = open_store(tmp_path / "runs.db")
    assert asyncio.run(store.run_log.append(SLOT, 0, (), status="running")) == 1

    async def second():
        try:
            return await store.run_log.append(SLOT, 1, (), status="done")
        finally:
            await store.aclose()

    assert asyncio.run(second()) == 2


@pytest.mark.parametrize(
    "url", ["postgres:host/db", "sqlite:", "sqlite://runs.db", "sqlite:///runs.db", "sqlite::memory:", "memory:x", ""]
)
def test_an_unknown_place_is_refused(url):
    """What is no place is refused by an error that names the known ones."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "memory:" in caught.value.message and "sqlite:FILE" in caught.value.message


async def test_places_that_are_known(tmp_path, monkeypatch):
    """A path, as text or Path, is a SQLite file; a relative one stays where it was opened."""
    monkeypatch.chdir(tmp_path)
    stores = [open_store(place) for place in ("a.db", "sqlite:b.db", tmp_path / "c.db")]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for store in stores:
        assert store.durable
        await store.kv.set("t", "k", b"v")
        await store.aclose()
    assert {found.name for found in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db"}
    memory = open_store("memory:")
    assert not memory.durable
    await memory.aclose()


@pytest.mark.parametrize("bad", [{"durability": "fast"}, {"busy_timeout": -1}, {"busy_timeout": float("nan")}])
def test_bad_settings_are_named(bad):
    """A durability or a time that is none is refused with its name."""
    with pytest.raises(ConfigurationError, match=next(iter(bad))):
        SqliteFile("x.db", **bad)


async def test_what_waits_together_shares_a_commit_and_fails_alone(tmp_path):
    """Writes that wait for the thread become one transaction; one that refuses or breaks takes nothing with it."""
    file = SqliteFile(tmp_path / "runs.db")
    commits: list[str] = []

    def prepare(db):
        db.execute("CREATE TABLE seen (name TEXT UNIQUE)")
        db.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)

    await file.transact(prepare)
    held = threading.Event()
    blocker = asyncio.ensure_future(file.transact(lambda db: held.wait(30), write=False))

    def adds(name):
        return lambda db: db.execute("INSERT INTO seen VALUES (?)", (name,)).rowcount

    def refuses(db):
        db.execute("INSERT INTO seen VALUES ('refused')")
        raise RunConflict("no")

    def breaks(db):
        db.execute("INSERT INTO seen VALUES ('broken')")
        raise KeyError("a bug")

    async def go(*works):
        waiting = [asyncio.ensure_future(file.transact(work)) for work in works]
        await asyncio.sleep(0)
        held.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    first = await go(adds("a"), adds("b"), refuses, adds("c"))
    await blocker
    assert [type(each) for each in first] == [int, int, RunConflict, int]
    assert len(commits) == 3  # that of `prepare`, the blocker's, and one for all four
    second = await asyncio.gather(
        *(file.transact(work) for work in (adds("d"), breaks, adds("a"), adds("e"))), return_exceptions=True
    )
    assert [type(each) for each in second] == [int, KeyError, StoreError, int]
    rows = await file.transact(lambda db: db.execute("SELECT name FROM seen ORDER BY name").fetchall(), write=False)
    assert [name for (name,) in rows] == ["a", "b", "c", "d", "e"]
    await file.aclose()


async def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path):
    """Its runs stay, and its ledger's rows become settled entries with their exact cost."""
    path = tmp_path / "old.db"
    record = entry(ManualClock(), "c1", "0.30").record
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT; INSERT INTO schema_version VALUES (1);"
            "CREATE TABLE fences (last INTEGER NOT NULL) STRICT; INSERT INTO fences VALUES (7);"
            "CREATE TABLE ledger (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, run_id TEXT NOT NULL,"
            " path TEXT NOT NULL, model TEXT NOT NULL, cost TEXT, at TEXT NOT NULL, record BLOB NOT NULL) STRICT;"
            "CREATE INDEX ledger_by_run ON ledger (tenant, run_id);"
        )
        for tenant in ("acme", "acme", "other"):
            values = (tenant, "ann", "run-1", "", "m", "0.30", "2026-11-30T12:00:00.000000+00:00")
            columns = "tenant, user, run_id, path, model, cost, at, record"
            places = "?, ?, ?, ?, ?, ?, ?, ?"
            data = encode_data("cost_record", record)
            db.execute(f"INSERT INTO ledger ({columns}) VALUES ({places})", (*values, data))
    db.close()
    store = open_store(path)
    rows = (await store.ledger.entries(CostQuery(tenant="acme"))).entries
    assert [row.record.known_cost for row in rows] == [Decimal("0.30"), Decimal("0.30")]
    assert {row.state for row in rows} == {"settled"}
    assert (await store.run_log.acquire(SLOT, "me", ttl=1)).fence == 8
    await store.aclose()
    again = open_store(path)
    assert len((await again.ledger.entries(CostQuery(tenant=None))).entries) == 3
    await again.aclose()
