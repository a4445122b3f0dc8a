"""The one order of layers, outermost first; docs/decisions/layer-order.md gives the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from agentkit.errors import ConfigurationError

__all__ = ["CHAT_ORDER", "TOOL_ORDER", "in_order"]

CHAT_ORDER: Final = ("trace", "policy", "guard", "memoize", "fallback", "plan", "retry", "hedge", "meter")
TOOL_ORDER: Final = ("trace", "policy", "egress", "journal", "audit", "retry", "timeout")

L = TypeVar("L")


def in_order(layers: Mapping[str, L], order: Sequence[str]) -> tuple[L, ...]:
    """Return the named layers as `order` places them; raises ConfigurationError for a name it has no place for."""
    unknown = [name for name in layers if name not in order]
    if unknown:
        raise ConfigurationError(f"No layer is named {unknown[0]!r}; the places are {', '.join(order)}.")
    return tuple(layers[name] for name in order if name in layers)
