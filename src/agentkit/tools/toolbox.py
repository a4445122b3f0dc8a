"""The tools of one agent, resolved once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import cast

from agentkit.core.contracts import ToolPort, ToolSpec
from agentkit.errors import ConfigurationError
from agentkit.tools.tool import Tool

__all__ = ["Toolbox"]


class Toolbox:
    """Tools by name, in the order they were given; a plain function becomes a tool.

    Raises ConfigurationError for two tools of one name and for what cannot be called.
    """

    def __init__(self, tools: Sequence[ToolPort | Callable[..., object]] = ()) -> None:
        if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
            raise ConfigurationError(f"tools={tools!r}: pass a list of functions and tools.")
        self._tools: dict[str, ToolPort] = {}
        for index, given in enumerate(tools):
            tool = _as_tool(given, index)
            name = tool.name if isinstance(tool, Tool) else tool.spec.name
            if name in self._tools:
                raise ConfigurationError(
                    f"Two tools are named {name!r}: {self._tools[name]!r} and {tool!r}; give one another name=."
                )
            self._tools[name] = tool

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Return what the model sees, in the order the tools were given."""
        return tuple(tool.spec for tool in self._tools.values())

    def get(self, name: str) -> ToolPort | None:
        """Return the tool of this name, None when there is none."""
        return self._tools.get(name)

    def unknown(self, name: str) -> str:
        """Return what to tell a model that called a tool which does not exist, the nearest names first."""
        near = get_close_matches(name, self._tools, n=3, cutoff=0.4)
        names = [*near, *(other for other in self._tools if other not in near)]
        if not names:
            return f"There is no tool {name!r}, and no other one: answer without tools."
        return f"There is no tool {name!r}. Available: {', '.join(names)}."

    def __len__(self) -> int:
        return len(self._tools)


def _as_tool(given: ToolPort | Callable[..., object], index: int) -> ToolPort:
    if callable(getattr(given, "bind", None)) and callable(getattr(given, "invoke", None)):
        return cast("ToolPort", given)
    if callable(given) and not isinstance(given, type):
        return Tool(given)
    raise ConfigurationError(f"tools[{index}] is {given!r}: pass functions, @tool functions or agents' as_tool().")
