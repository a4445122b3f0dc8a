"""How long one tool call may take."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agentkit.core.contracts import Call, CallNext, ToolEnded, ToolRequest, ToolResult, ToolUpdate
from agentkit.core.runtime.abort import Abort
from agentkit.core.runtime.deadline import Deadline
from agentkit.core.runtime.layers import run_context
from agentkit.errors import ConfigurationError, DeadlineExceeded

__all__ = ["Timeout", "timeout"]


class Timeout:
    """Cancels a tool that takes longer than its own `timeout`, or the default, and waits until it has stopped.

    The model is told; unless the tool only reads, the outcome is "unknown": what it did may have taken effect.
    """

    __slots__ = ("default",)

    def __init__(self, default: float | None) -> None:
        if default is not None and not default > 0:
            raise ConfigurationError(f"timeout(default={default!r}): pass seconds above 0, or None for no limit.")
        self.default = default

    def __repr__(self) -> str:
        return f"timeout(default={self.default})"

    def __call__(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate], /
    ) -> AsyncGenerator[ToolUpdate, None]:
        """Return the stream, directly when there is no limit."""
        own = call.request.tool.timeout
        seconds = self.default if own is None else own
        return call_next(call) if seconds is None else _limited(call, call_next, seconds)


def timeout(default: float | None = None) -> Timeout:
    """Return the layer; `default` is seconds for tools that set no limit of their own, None leaves those unlimited."""
    return Timeout(default)


async def _limited(
    call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate], seconds: float
) -> AsyncGenerator[ToolUpdate, None]:
    abort = Abort(Deadline.after(seconds, run_context(call).services.clock), None)
    abort.arm()
    try:
        async with aclosing(call_next(call)) as events:
            while abort.fired is None:
                try:
                    with abort:
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except DeadlineExceeded as error:
                    if error is not abort.fired:
                        raise
                    break
                yield event
                if isinstance(event, ToolEnded):
                    return
    finally:
        abort.disarm()
    yield ToolEnded(call.request.call, _late(call.request, seconds))


def _late(request: ToolRequest, seconds: float) -> ToolResult:
    name = request.tool.spec.name
    if request.tool.effect == "read":
        return ToolResult(f"{name} took longer than {seconds:g} s and was stopped.", "error")
    text = f"{name} took longer than {seconds:g} s and was stopped; whether it took effect is unknown."
    return ToolResult(text, "unknown")
