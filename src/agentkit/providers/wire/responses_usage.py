"""Counts the usage that one answer of the Responses protocol reports."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit.core.contracts import JsonObject, Reported, Usage
from agentkit.providers.wire.clean import count_of
from agentkit.providers.wire.evidence import Words, billing_of, item_units, kept_usage, sorted_units, units_of

__all__ = ["ResponsesUsage"]


class ResponsesUsage:
    """Holds the last value of each number, and what the server's own tools were asked."""

    __slots__ = ("_raw", "_tokens")

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._raw: JsonObject = {}

    @property
    def output_tokens(self) -> int | None:
        """Return the tokens written, None while they are unknown."""
        return self._tokens.get("output_tokens")

    def count(self, usage: JsonObject, tools: JsonObject) -> None:
        """Take the usage objects of one response, that of its tools beside that of its tokens."""
        self._take(usage)
        self._raw.update(usage)
        if tools:
            self._raw["tool_usage"] = tools

    def total(self, items: Iterable[JsonObject]) -> Usage:
        """Return it all; what never came is unknown. `items` are those of the output."""
        found = self._tokens
        if not found:
            return Usage(None, None, None, None, None, None)
        return Usage(
            found.get("input_tokens"),
            found.get("output_tokens"),
            found.get("cached_tokens", 0),
            found.get("cache_write_tokens", 0),
            0,
            found.get("reasoning_tokens", 0),
            units=sorted_units(self._units(items)),
        )

    def reported(self, items: Iterable[JsonObject], tier: str | None, words: Words) -> Reported:
        """Return it all with its evidence, of which `words` may be kept."""
        raw = self._raw
        return Reported(usage=self.total(items), raw=kept_usage(raw, words), service_tier=tier, billing=billing_of(raw))

    def _units(self, items: Iterable[JsonObject]) -> dict[str, int]:
        """Return what is billed beside the tokens; the searches that the server counts itself beat those we see."""
        units = {**item_units(items), **units_of(self._raw)}
        tools = self._raw.get("tool_usage")
        searched = tools.get("web_search") if isinstance(tools, dict) else None
        if isinstance(searched, dict) and (number := count_of(searched.get("num_requests"))) is not None:
            units["web_searches"] = number
            if not number:
                del units["web_searches"]
        return units

    def _take(self, numbers: JsonObject) -> None:
        for name, value in numbers.items():
            if isinstance(value, dict):
                if name != "cached_tokens_details":
                    self._take(value)
            elif (number := count_of(value)) is not None:
                self._tokens[name] = number
