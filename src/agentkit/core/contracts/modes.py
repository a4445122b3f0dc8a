"""The port of a mode other than our own API codecs: a vendor's command-line program, or a host's own model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

from agentkit.core.contracts.events import ChatEvent
from agentkit.core.contracts.policies import Mode, NativeToolPolicy
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.seam import Call

__all__ = ["ModeAdapter"]


class ModeAdapter(Protocol):
    """A model port with the facts a runtime governs by; `CallRuntime(adapters={"name": adapter})` routes to it.

    A program of somebody else's may ask its model several times for one call of ours: for a CLI mode, and for an
    adapter whose `physical` is False, the cost records say that they are no single requests (`CostRecord.physical`).
    """

    @property
    def mode(self) -> Mode:
        """Return how it reaches its model; CLI ones count against `max_concurrent_cli`."""
        ...

    @property
    def native_tools(self) -> Literal["none", "optional", "always"]:
        """Return whether it runs tools of its own, past our tool chain, and whether that can be switched off."""
        ...

    def stream(
        self, call: Call[ChatRequest], /, *, native_tool_policy: NativeToolPolicy = ...
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of one call; with DENY its own tools are off."""
        ...

    async def aclose(self) -> None:
        """Release processes and connections; called once by the runtime that owns it."""
        ...
