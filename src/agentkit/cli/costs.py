"""`agentkit costs`: what a ledger says was spent, by whom and on what."""

from __future__ import annotations

import argparse
import csv
import io
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast, get_args

import msgspec

from agentkit.cli.moment import read_moment
from agentkit.cli.plot import bars_svg
from agentkit.cli.reported import print_divergences
from agentkit.cli.table import csv_cell, shown, text_table
from agentkit.core.contracts import ZERO, CostDimension, CostQuery, CostSum, add_money, render_money
from agentkit.errors import ConfigurationError
from agentkit.stores import open_store

__all__ = ["costs_command"]

_DIMENSIONS: tuple[CostDimension, ...] = get_args(CostDimension)
_COUNTS = ("calls", "attempts", "input_tokens", "output_tokens")


async def costs_command(options: argparse.Namespace) -> int:
    """Print the sums of a ledger as a table, JSON or CSV, and draw them when a file is named for it.

    With `--reported`, print the attempts whose providers reported another cost instead.
    """
    by = _dimensions(options.by)
    query = CostQuery(
        tenant=options.tenant,
        by=by,
        since=None if options.since is None else read_moment(options.since, "--since"),
        until=None if options.until is None else read_moment(options.until, "--until", ends=True),
    )
    _check_exists(options.store)
    store = open_store(options.store)
    try:
        if options.reported:
            await print_divergences(store.ledger, query, options.format)
            return 0
        sums = await store.ledger.totals(query)
    finally:
        await store.aclose()
    print({"json": _as_json, "csv": _as_csv, "table": _as_table}[options.format](by, sums), flush=True)
    if options.plot is not None:
        _draw(Path(options.plot), by, sums)
    return 0


def _draw(picture: Path, by: Sequence[str], sums: Sequence[CostSum]) -> None:
    labels = [" · ".join(shown(part) or "-" for part in total.key) or "everything" for total in sums]
    title = f"Dollars by {', '.join(by)}" if by else "Dollars"
    picture.write_text(bars_svg(labels, [total.known_cost for total in sums], title), "utf-8")
    print(f"drawn to {picture}", file=sys.stderr)


def _dimensions(text: str) -> tuple[CostDimension, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _DIMENSIONS:
            raise ConfigurationError(f"--by {name}: choose from {', '.join(_DIMENSIONS)}.")
    return cast("tuple[CostDimension, ...]", tuple(dict.fromkeys(names)))


def _check_exists(store: str) -> None:
    """Raise ConfigurationError for a file that is not there, or is another program's: asking makes no tables."""
    if store.startswith(("postgres:", "postgresql:")):
        return
    file = Path(store.removeprefix("sqlite:"))
    if not file.exists():
        raise ConfigurationError(f"--store {store}: there is no such file; name the store of your runtime.")
    if file.is_file() and not _holds_ledger(file):
        raise ConfigurationError(f"--store {store}: there is no ledger in it; name the store of your runtime.")


def _holds_ledger(file: Path) -> bool:
    """Return whether there is a ledger in the database; what cannot be read is told when it is opened."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger'").fetchone() is not None
    except sqlite3.Error:
        return True


def _row(total: CostSum) -> list[str]:
    cost = f"${render_money(total.known_cost)}"
    counts = [str(getattr(total, name)) for name in _COUNTS]
    return [*(part or "-" for part in total.key), *counts, cost if total.cost is not None else f">= {cost}"]


def _as_table(by: Sequence[str], sums: Sequence[CostSum]) -> str:
    if not sums:
        return "The ledger holds no row for this question."
    head = (
        [*by, "calls", "attempts", "input", "output", "cost"]
        if by
        else ["", "calls", "attempts", "input", "output", "cost"]
    )
    rows = [_row(total) if by else ["everything", *_row(total)] for total in sums]
    if by:
        whole = _whole(sums)
        rows.append(["total", *[""] * (len(by) - 1), *_row(whole)])
    notes = ""
    if unknown := sum(total.incomplete for total in sums):
        notes = f"\n{unknown} attempts have no known cost: the amounts with >= are lower bounds."
    return text_table(head, rows, left=max(1, len(by)), total=bool(by)) + notes


def _whole(sums: Sequence[CostSum]) -> CostSum:
    known = ZERO
    for total in sums:
        known = add_money(known, total.known_cost)
    counts = {name: sum(getattr(total, name) for total in sums) for name in _COUNTS}
    return CostSum(key=(), known_cost=known, incomplete=sum(total.incomplete for total in sums), **counts)


def _fields(by: Sequence[str], total: CostSum) -> dict[str, object]:
    fields: dict[str, object] = dict(zip(by, total.key, strict=True))
    fields |= {name: getattr(total, name) for name in CostSum.__struct_fields__ if name != "key"}
    cost = None if total.cost is None else render_money(total.cost)
    return fields | {"known_cost": render_money(total.known_cost), "cost": cost}


def _as_json(by: Sequence[str], sums: Sequence[CostSum]) -> str:
    return msgspec.json.encode([_fields(by, total) for total in sums]).decode()


def _as_csv(by: Sequence[str], sums: Sequence[CostSum]) -> str:
    text = io.StringIO()
    names = [*by, *(name for name in CostSum.__struct_fields__ if name != "key"), "cost"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for total in sums:
        cells = _fields(by, total)
        writer.writerow(cells | {name: csv_cell(part) for name, part in zip(by, total.key, strict=True)})
    return text.getvalue().rstrip("\n")
