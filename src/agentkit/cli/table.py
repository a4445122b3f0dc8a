"""Rows as a table of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["csv_cell", "shown", "text_table"]

_NUMBER = re.compile(r"[+-][\d .()-]*", re.ASCII)


def shown(text: str) -> str:
    """Return the text with what no terminal may be sent, such as line breaks and its own commands, spelled out."""
    return text if text.isprintable() else "".join(_spelled(sign) for sign in text)


def csv_cell(text: str) -> str:
    """Return the text as a cell that no spreadsheet takes for a formula: one that looks like it begins with a quote."""
    formula = text[:1] in "=@\t\r" if text else False
    if not formula and text[:1] in ("+", "-"):
        formula = _NUMBER.fullmatch(text) is None
    return shown(f"'{text}" if formula else text)


def _spelled(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, total: bool = False) -> str:
    """Return a table; the first `left` columns stand left, the others right; a total is the last row, under a rule."""
    lines = [[shown(cell) for cell in line] for line in (head, *rows)]
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
