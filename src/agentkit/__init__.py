"""agentkit: agents that can be trusted with other people's money and data.

Names load on first use, so that importing the package costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.agents import Agent
    from agentkit.calls import Answer, Binding, CallRuntime, ask, run
    from agentkit.cognition import ReAct, SingleCall
    from agentkit.core.contracts import (
        AgentResult,
        AssistantMessage,
        ComposedPrompt,
        Decision,
        FilePart,
        ImagePart,
        ModelSettings,
        NativeToolPolicy,
        RetryPolicy,
        Scope,
        SystemMessage,
        TextDelta,
        TextPart,
        Timeouts,
        ToolCall,
        ToolMessage,
        UnpricedPolicy,
        Usage,
        UserMessage,
    )
    from agentkit.core.runtime import (
        AppData,
        Budget,
        CancellationToken,
        Invoker,
        Key,
        Quota,
        RunContext,
        Services,
        run_agents,
        run_sync,
    )
    from agentkit.errors import AgentkitError
    from agentkit.tools import tool

_ROOMS = {
    "agents": ("Agent",),
    "calls": ("Answer", "Binding", "CallRuntime", "ask", "run"),
    "cognition": ("ReAct", "SingleCall"),
    "core.contracts": (
        "AgentResult",
        "AssistantMessage",
        "ComposedPrompt",
        "Decision",
        "FilePart",
        "ImagePart",
        "ModelSettings",
        "NativeToolPolicy",
        "RetryPolicy",
        "Scope",
        "SystemMessage",
        "TextDelta",
        "TextPart",
        "Timeouts",
        "ToolCall",
        "ToolMessage",
        "UnpricedPolicy",
        "Usage",
        "UserMessage",
    ),
    "core.runtime": (
        "AppData",
        "Budget",
        "CancellationToken",
        "Invoker",
        "Key",
        "Quota",
        "RunContext",
        "Services",
        "run_agents",
        "run_sync",
    ),
    "errors": ("AgentkitError",),
    "tools": ("tool",),
}
_HOMES = {name: f"agentkit.{room}" for room, names in _ROOMS.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AgentResult",
    "AgentkitError",
    "Answer",
    "AppData",
    "AssistantMessage",
    "Binding",
    "Budget",
    "CallRuntime",
    "CancellationToken",
    "ComposedPrompt",
    "Decision",
    "FilePart",
    "ImagePart",
    "Invoker",
    "Key",
    "ModelSettings",
    "NativeToolPolicy",
    "Quota",
    "ReAct",
    "RetryPolicy",
    "RunContext",
    "Scope",
    "Services",
    "SingleCall",
    "SystemMessage",
    "TextDelta",
    "TextPart",
    "Timeouts",
    "ToolCall",
    "ToolMessage",
    "UnpricedPolicy",
    "Usage",
    "UserMessage",
    "ask",
    "run",
    "run_agents",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkit' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
