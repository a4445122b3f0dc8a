"""What models can do, as far as it is known: yes, no, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from agentkit.catalog.prices import family
from agentkit.catalog.snapshot import load_snapshot

__all__ = ["DEFAULT_CAPABILITIES", "Capabilities", "CapabilityTable"]

_FILE = Path(__file__).parent / "data" / "capabilities.json"
_EVERY = "*"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one model can do; None is unknown. Windows and limits are in tokens."""

    context_window: int | None = None
    max_output_tokens: int | None = None
    tools: bool | None = None
    parallel_tools: bool | None = None
    vision: bool | None = None
    structured_output: bool | None = None
    reasoning_efforts: tuple[str, ...] | None = None


class CapabilityTable:
    """Capabilities by exact (provider, model); a dated id falls back to its family, then to the provider's row "*".

    Without rows it is the shipped table, loaded on first use; `with_model` makes a changed copy.
    """

    def __init__(self, rows: Mapping[tuple[str, str], Capabilities] | None = None) -> None:
        self._rows = None if rows is None else dict(rows)

    def find(self, provider: str, model: str) -> Capabilities:
        """Return what is known; a model that is not listed is unknown in every respect."""
        rows = self._known()
        for name in (model, family(model), _EVERY):
            if name is not None and (found := rows.get((provider, name))) is not None:
                return found
        return _UNKNOWN

    def with_model(self, provider: str, model: str, capabilities: Capabilities) -> CapabilityTable:
        """Return a copy with this model's row."""
        return CapabilityTable({**self._known(), (provider, model): capabilities})

    def _known(self) -> dict[tuple[str, str], Capabilities]:
        if self._rows is None:
            self._rows = dict(_shipped())
        return self._rows


_UNKNOWN = Capabilities()


@cache
def _shipped() -> dict[tuple[str, str], Capabilities]:
    listed = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, dict[str, Capabilities]])
    rows: dict[tuple[str, str], Capabilities] = {}
    for provider, models in load_snapshot().models.items():
        common = listed.get(provider, {}).get(_EVERY, _UNKNOWN)
        for name, entry in models.items():
            own = listed.get(provider, {}).get(entry.same or name, _UNKNOWN)
            window = models[entry.same].context if entry.same else entry.context
            rows[provider, name] = _over(own, _over(Capabilities(context_window=window), common))
    for provider, named in listed.items():
        for name, own in named.items():
            rows.setdefault((provider, name), _over(own, named.get(_EVERY, _UNKNOWN)))
    return rows


def _over(upper: Capabilities, lower: Capabilities) -> Capabilities:
    fields = {
        name: mine if (mine := getattr(upper, name)) is not None else getattr(lower, name)
        for name in Capabilities.__struct_fields__
    }
    return Capabilities(**fields)


DEFAULT_CAPABILITIES = CapabilityTable()
