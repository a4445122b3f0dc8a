"""`agentkit costs --reported`: the attempts whose providers say that they cost something else."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from agentkit.catalog import Reconciliation, divergences
from agentkit.cli.table import csv_cell, text_table
from agentkit.core.contracts import CostQuery, LedgerStore, render_money

__all__ = ["print_divergences"]

_HEAD = ("run", "call", "attempt", "provider", "model", "ours", "reported", "difference")


async def print_divergences(ledger: LedgerStore, query: CostQuery, form: str) -> None:
    """Print each settled attempt whose provider reported another cost, or one that cannot be compared."""
    found: list[Reconciliation] = []
    after: int | None = 0
    while after is not None:
        page = await ledger.entries(query, after=after)
        found += divergences(entry.record for entry in page.entries if entry.state == "settled")
        after = page.next
    rows = [_row(each) for each in found]
    if form == "json":
        print(msgspec.json.encode([dict(zip(_HEAD, row, strict=True)) for row in rows]).decode(), flush=True)
    elif form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in (_HEAD, *rows))
        print(text.getvalue().rstrip("\n"), flush=True)
    else:
        none = "No provider reported a cost that is not ours."
        print(text_table(_HEAD, rows, left=5) if rows else none, flush=True)


def _row(each: Reconciliation) -> Sequence[str]:
    record, reported = each.record, each.reported
    told = None if reported is None else reported.amount
    ours = f">= ${render_money(record.known_cost)}" if record.cost is None else f"${render_money(record.cost)}"
    difference = each.reason if each.difference is None else f"${render_money(each.difference)}"
    return (
        record.run_id,
        record.call_id,
        str(record.attempt),
        record.provider,
        record.model,
        ours,
        "" if told is None else f"${render_money(told)}",
        difference,
    )
