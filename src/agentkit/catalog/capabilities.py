"""What models can do, as far as it is known: yes, no, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from agentkit.catalog.prices import family
from agentkit.catalog.snapshot import load_snapshot
from agentkit.core.contracts import UNKNOWN_CAPABILITIES, Capabilities

__all__ = ["DEFAULT_CAPABILITIES", "Capabilities", "CapabilityTable"]

_FILE = Path(__file__).parent / "data" / "capabilities.json"
_EVERY = "*"


class CapabilityTable:
    """Capabilities by exact (provider, model); a dated id falls back to its family, then to the provider's common row.

    Without rows it is the shipped table, loaded on first use; `with_model` makes a changed copy.
    """

    def __init__(self, rows: Mapping[tuple[str, str], Capabilities] | None = None) -> None:
        self._own = dict(rows or {})
        self._ships = rows is None

    def find(self, provider: str, model: str, *, listed: bool = True) -> Capabilities:
        """Return what is known; a model that is not listed is unknown in every respect.

        `listed` False leaves out the shipped rows, for a model of that name on a server that is not the provider's.
        """
        base = family(model)
        for name in (model,) if base is None else (model, base):
            own = self._own.get((provider, name))
            if own is not None:
                return own
        return _shipped(provider, model) if self._ships and listed else UNKNOWN_CAPABILITIES

    def with_model(self, provider: str, model: str, capabilities: Capabilities) -> CapabilityTable:
        """Return a copy with this model's row."""
        table = CapabilityTable(None if self._ships else {})
        table._own = {**self._own, (provider, model): capabilities}
        return table


@cache
def _listed() -> dict[str, dict[str, Capabilities]]:
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, dict[str, Capabilities]])


@lru_cache(maxsize=1024)
def _shipped(provider: str, model: str) -> Capabilities:
    listed = _listed().get(provider, {})
    models = load_snapshot().models.get(provider, {})
    name = model if model in models or model in listed else family(model) or model
    entry = models.get(name)
    main = entry.same if entry is not None and entry.same else name
    window = models[main].context if main in models else None
    if entry is None and name not in listed:
        return listed.get(_EVERY, UNKNOWN_CAPABILITIES)
    return _over(
        listed.get(main, UNKNOWN_CAPABILITIES),
        _over(Capabilities(context_window=window), listed.get(_EVERY, UNKNOWN_CAPABILITIES)),
    )


def _over(upper: Capabilities, lower: Capabilities) -> Capabilities:
    fields = {
        name: mine if (mine := getattr(upper, name)) is not None else getattr(lower, name)
        for name in Capabilities.__struct_fields__
    }
    return Capabilities(**fields)


DEFAULT_CAPABILITIES = CapabilityTable()
