"""What a cognition is given."""

from __future__ import annotations

from msgspec import Struct

from agentkit.core.contracts import ChatRequest, Message, ModelSettings, Route, ToolChoice
from agentkit.schema import OutputType
from agentkit.tools import Toolbox

__all__ = ["Job"]


class Job(Struct, frozen=True):
    """A prepared piece of work: who does it, with which model, tools and settings, and what shape the answer has.

    It is made once and shared by concurrent runs; everything that changes lives in the Run. `corrections` bounds how
    often an answer that does not fit is sent back.
    """

    agent: str
    route: Route | None
    instructions: str
    toolbox: Toolbox
    output: OutputType[object] | None = None
    settings: ModelSettings = ModelSettings()
    corrections: int = 1

    def request(self, messages: tuple[Message, ...], *, tool_choice: ToolChoice | None = None) -> ChatRequest:
        """Return the request for the next turn of this conversation."""
        output = None if self.output is None else self.output.spec
        return ChatRequest(messages, self.toolbox.specs, tool_choice, output, self.settings)
