"""Writes how much a model of the Messages protocol shall think, in the form that this model takes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from agentkit.core.contracts import Adjustment, JsonObject, ReasoningEffort
from agentkit.providers.wire.claude import Claude

__all__ = ["Thinking", "thinking_for"]

_LEAST: Final = 1024  # tokens, the smallest budget that servers take
_BUDGETS: Final[dict[ReasoningEffort, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
_NEXT: Final[dict[ReasoningEffort, ReasoningEffort]] = {"minimal": "low", "xhigh": "high", "max": "xhigh"}


class Thinking(Struct, frozen=True):
    """What goes into the body: its `thinking` and its effort, and what differs from what was asked for."""

    thinking: JsonObject | None = None
    effort: str | None = None
    changes: tuple[Adjustment, ...] = ()


def thinking_for(claude: Claude | None, effort: ReasoningEffort, max_tokens: int | None) -> Thinking:
    """Return how this effort is asked for; a model that is no Claude gets a budget, the form most servers know."""
    if effort == "none":
        return _off(claude)
    if claude is None:
        return _budget(effort, max_tokens)
    if claude.thinks == "no":
        return Thinking(changes=(_change("this model does not think; left out"),))
    word, changes = _nearest(claude, effort)
    if claude.thinks == "adaptive":
        return Thinking({"type": "adaptive"}, word, changes)
    found = _budget(effort, max_tokens)
    return Thinking(found.thinking, word, (*found.changes, *(changes if word else ())))


def _off(claude: Claude | None) -> Thinking:
    if claude is None or claude.off == "disabled":
        return Thinking({"type": "disabled"})
    if claude.off == "between_tools":
        return Thinking({"type": "between_tools"})
    if claude.off == "never":
        return Thinking(effort="low", changes=(_change("this model always thinks; sent as the lowest effort"),))
    return Thinking()


def _budget(effort: ReasoningEffort, max_tokens: int | None) -> Thinking:
    tokens = _BUDGETS[effort]
    if max_tokens is not None:
        tokens = min(tokens, max(_LEAST, max_tokens // 2))
        if tokens >= max_tokens:
            why = f"max_tokens={max_tokens} leaves no room for the least thinking of {_LEAST} tokens; left out"
            return Thinking(changes=(_change(why),))
    return Thinking({"type": "enabled", "budget_tokens": tokens})


def _nearest(claude: Claude, effort: ReasoningEffort) -> tuple[str | None, tuple[Adjustment, ...]]:
    if not claude.efforts:
        return None, ()
    word = effort
    while word not in claude.efforts:
        word = _NEXT[word]
    return word, () if word == effort else (_change(f"this model knows no {effort!r}; sent as {word!r}"),)


def _change(why: str) -> Adjustment:
    return Adjustment("setting", "reasoning_effort", why)
