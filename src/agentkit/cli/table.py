"""Rows as a table of text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["text_table"]


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, total: bool = False) -> str:
    """Return a table; the first `left` columns stand left, the others right; a total is the last row, under a rule."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rendered = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    if total:
        return "\n".join([rendered[0], rule, *rendered[1:-1], rule, rendered[-1]])
    return "\n".join([rendered[0], rule, *rendered[1:]])
