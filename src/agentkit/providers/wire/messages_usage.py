"""Counts the usage that one answer of the Messages protocol reports."""

from __future__ import annotations

from agentkit.core.contracts import JsonObject, Reported, Usage
from agentkit.providers.wire.clean import count_of
from agentkit.providers.wire.evidence import Words, billing_of, kept_usage, sorted_units, units_of

__all__ = ["MessagesUsage"]

_TOKENS = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "ephemeral_1h_input_tokens",
        "thinking_tokens",
    }
)
_INSIDE = ("cache_creation", "output_tokens_details")


class MessagesUsage:
    """Holds the last value of each number; one that is absent or null later keeps what was said before."""

    __slots__ = ("_raw", "_tokens")

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._raw: JsonObject = {}

    def count(self, usage: JsonObject) -> None:
        """Take the usage object of one event."""
        self._take(usage)
        for name in _INSIDE:
            if isinstance(inner := usage.get(name), dict):
                self._take(inner)
        for name, value in usage.items():
            if value is not None or name not in self._raw:
                self._raw[name] = value

    def total(self) -> Usage:
        """Return it all; input counts cache reads and writes too, `units` what the server's own tools were asked."""
        found = self._tokens
        if not found:
            return Usage(None, None, None, None, None, None)
        ordinary = found.get("input_tokens")
        read, written = found.get("cache_read_input_tokens", 0), found.get("cache_creation_input_tokens", 0)
        return Usage(
            None if ordinary is None else ordinary + read + written,
            found.get("output_tokens"),
            read,
            written,
            found.get("ephemeral_1h_input_tokens", 0),
            found.get("thinking_tokens", 0),
            units=sorted_units(units_of(self._raw)),
        )

    def reported(self, words: Words) -> Reported:
        """Return it all with its evidence, of which `words` may be kept."""
        tier = self._raw.get("service_tier")
        return Reported(
            usage=self.total(),
            raw=kept_usage(self._raw, words),
            service_tier=tier if isinstance(tier, str) else None,
            billing=billing_of(self._raw),
        )

    def _take(self, numbers: JsonObject) -> None:
        for name in _TOKENS & numbers.keys():
            if (number := count_of(numbers[name])) is not None:
                self._tokens[name] = number
