"""What a Claude model takes, read off its name: by generation, so that a new model is known on its first day."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from agentkit.core.contracts import ReasoningEffort

__all__ = ["Claude", "Off", "claude_of"]

Off: TypeAlias = Literal["omitted", "disabled", "between_tools", "never"]

_SPLIT = re.compile(r"[-.@:/]")
_FAMILIES = frozenset({"opus", "sonnet", "haiku", "fable", "mythos"})
_ALWAYS = frozenset({"fable", "mythos"})
_NEWEST = (99, 0)
_MOST_DIGITS = 2  # a longer number is the date of a snapshot


class Claude(Struct, frozen=True):
    """One model; a name without a version, such as a preview's, counts as the newest."""

    family: str
    version: tuple[int, int]

    @property
    def thinks(self) -> Literal["no", "budget", "adaptive"]:
        """Return how thinking is asked for: not at all, with a budget of tokens, or left to the model."""
        if self.version < (3, 7):
            return "no"
        return "budget" if self.version < (4, 6) else "adaptive"

    @property
    def off(self) -> Off:
        """Return how thinking is turned off: by leaving it out, by a word of its own, or not at all."""
        if self.version < (5, 0):
            return "omitted"
        if self.family in _ALWAYS or (self.family == "opus" and self.version >= (5, 5)):
            return "never"
        return "between_tools" if self.family == "sonnet" and self.version >= (5, 5) else "disabled"

    @property
    def efforts(self) -> tuple[ReasoningEffort, ...]:
        """Return the words it takes for its effort, none before there were any."""
        if self.version >= (4, 7):
            return ("low", "medium", "high", "xhigh", "max")
        if self.version >= (4, 6):
            return ("low", "medium", "high", "max")
        return ("low", "medium", "high") if (self.family, self.version) == ("opus", (4, 5)) else ()

    @property
    def samples(self) -> bool:
        """Return whether temperature and top_p may be set, by an API that takes them."""
        return self.version < (4, 7)

    @property
    def prefills(self) -> bool:
        """Return whether it goes on with a conversation that ends in an assistant message."""
        return self.version < (4, 6)

    @property
    def forces_tools(self) -> bool:
        """Return whether a tool can be forced on it; where thinking is bound to be on, none can."""
        since = (5, 1) if self.family in _ALWAYS else (5, 5)
        return self.family == "haiku" or self.version < since


@lru_cache(maxsize=256)
def claude_of(model: str) -> Claude | None:
    """Return the model of that name, also as clouds and gateways write it; None when it is no Claude."""
    words = _SPLIT.split(model.lower())
    if "claude" not in words:
        return None
    family = ""
    numbers: list[int] = []
    for word in words[words.index("claude") + 1 :]:
        if word in _FAMILIES:
            family = word
        elif word.isdecimal() and len(word) <= _MOST_DIGITS and len(numbers) < 2:
            numbers.append(int(word))
        elif numbers:
            break
    if not numbers:
        return Claude(family, _NEWEST)
    return Claude(family, (numbers[0], numbers[1] if len(numbers) > 1 else 0))
