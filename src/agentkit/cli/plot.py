"""A picture of amounts: horizontal bars as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from xml.sax.saxutils import escape

from agentkit.core.contracts import ZERO, render_money

__all__ = ["bars_svg"]

_ROW = 24
_LABELS = 260
_BARS = 420
_AMOUNTS = 160
_TOP = 44
_FONT = 'font-family="sans-serif" font-size="13"'


def bars_svg(labels: Sequence[str], amounts: Sequence[Decimal], title: str) -> str:
    """Return an SVG with one bar for each amount, its label before it and its dollars behind it."""
    most = max(amounts, default=ZERO)
    height = _TOP + _ROW * max(1, len(labels)) + 12
    width = _LABELS + _BARS + _AMOUNTS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="26" font-size="16">{escape(title)}</text>',
    ]
    for row, (label, amount) in enumerate(zip(labels, amounts, strict=True)):
        y = _TOP + row * _ROW
        length = round(_BARS * float(amount / most)) if most else 0
        lines += [
            f'<text x="{_LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{_LABELS}" y="{y + 3}" width="{max(1, length)}" height="{_ROW - 8}" fill="#3b6ea5"/>',
            f'<text x="{_LABELS + length + 6}" y="{y + 15}">${render_money(amount)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
