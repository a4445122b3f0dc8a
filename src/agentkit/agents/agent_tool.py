"""A sub-agent as a tool: it runs one level deeper, under the same budget, deadline and token."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import msgspec

from agentkit.core.contracts import AgentResult, Call, Effect, JsonObject, ToolRequest, ToolResult, ToolSpec
from agentkit.core.runtime.context import RunContext
from agentkit.errors import (
    AgentkitError,
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    EffectUnknown,
    MeterExceeded,
    RunConflict,
    StoreError,
    ToolError,
)

__all__ = ["AgentTool"]

_ENDS_THE_RUN = (
    MeterExceeded,
    Cancelled,
    DeadlineExceeded,
    ConfigurationError,
    EffectUnknown,
    RunConflict,
    StoreError,
)
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, with everything it needs to know."}},
    "required": ["task"],
    "additionalProperties": False,
}


class TaskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one argument of a sub-agent."""

    task: str


class AgentTool:
    """Runs an agent when a model calls it; a suspended sub-agent leaves its call pending, and resume descends into it.

    Errors of the sub-agent are told to the calling model; ceilings, deadlines, cancellation, a store that fails and an
    effect that nobody knows of end the whole run.
    """

    __slots__ = ("_run", "requires_approval", "spec")

    effect: Effect = "read"  # the call itself does nothing; the sub-agent's own tools are checked one by one
    idempotent = False
    resumable = True
    timeout: float | None = None

    def __init__(
        self,
        name: str,
        description: str,
        run: Callable[[str, RunContext, bool], Coroutine[object, object, AgentResult[object]]],
        *,
        requires_approval: bool = False,
    ) -> None:
        self.spec = ToolSpec(name, description, dict(_PARAMETERS))
        self.requires_approval = requires_approval
        self._run = run

    def bind(self, arguments: str, /) -> TaskArguments:
        """Return the task; raises ToolError when it is missing or there is more than it."""
        try:
            return msgspec.json.decode(arguments or "{}", type=TaskArguments)
        except msgspec.MsgspecError as error:
            raise ToolError(
                f"The arguments of {self.spec.name!r} do not fit: {error}.",
                tool=self.spec.name,
                hint='Pass {"task": "..."} and nothing else.',
            ) from error

    async def invoke(self, bound: object, call: Call[ToolRequest], /) -> ToolResult:
        """Run the sub-agent on a context of its own below the caller's."""
        if not isinstance(bound, TaskArguments) or not isinstance(call.ctx, RunContext):
            raise ConfigurationError(f"{self.spec.name}: a sub-agent needs its bound task and a RunContext.")
        key = call.request.key
        child = call.ctx.tool_child(self.spec.name, key.turn, key.position)
        try:
            result = await self._run(bound.task, child, call.ctx.resuming)
        except _ENDS_THE_RUN:
            raise
        except AgentkitError as error:
            return ToolResult(f"{self.spec.name} failed: {type(error).__name__}: {error.message}", "error")
        if result.is_suspended:
            detail = {
                "stop_reason": result.stop_reason,
                "reason": result.reason,
                "pending": msgspec.to_builtins(result.pending),
            }
            return ToolResult("", "pending", detail)
        if result.output is None:
            return ToolResult(
                result.text or f"{self.spec.name} ended without an answer: {result.stop_reason}.", "error"
            )
        return ToolResult(result.text)
