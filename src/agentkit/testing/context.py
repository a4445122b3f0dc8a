"""A real context for tests, and what a run told while it ran."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

from agentkit.core.contracts import (
    Autonomy,
    ChatMiddleware,
    EventSink,
    LLMPort,
    Meter,
    RunEvent,
    RunMode,
    Scope,
    ToolMiddleware,
)
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import Deadline
from agentkit.core.runtime.invoker import Invoker
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.services import Services
from agentkit.providers.scripted import Script, ScriptedModel

__all__ = ["CapturedEvents", "capture_events", "make_context"]


def make_context(
    model: LLMPort | Sequence[Script] | str = (),
    *,
    middleware: Sequence[ChatMiddleware] = (),
    tool_middleware: Sequence[ToolMiddleware] = (),
    scope: Scope | None = None,
    run_id: str = "test-run",
    budget: Budget | None = None,
    meters: Sequence[Meter] = (),
    services: Services | None = None,
    clock: Clock = SYSTEM_CLOCK,
    cancel: CancellationToken | None = None,
    deadline: Deadline | float | timedelta | None = None,
    autonomy: Autonomy = "auto",
    mode: RunMode = "act",
    actor_budget: ActorBudget | None = None,
    sink: EventSink | None = None,
) -> RunContext:
    """Return a RunContext of the tenant "test" whose Invoker reaches this model through this middleware.

    `model` is a model port, or the replies of a ScriptedModel. `services` keeps everything but its invoker and clock.
    """
    port = cast("LLMPort", model) if hasattr(model, "stream") else ScriptedModel(cast("str", model), clock=clock)
    invoker = Invoker(llm=port, chat_middleware=middleware, tool_middleware=tool_middleware)
    ctx = RunContext(
        run_id,
        scope or Scope(tenant="test"),
        budget if budget is not None else Budget(clock=clock),
        (services or Services()).replace(invoker=invoker, clock=clock),
        meters,
        cancel=cancel,
        autonomy=autonomy,
        actor_budget=actor_budget,
        mode=mode,
        deadline=deadline,
    )
    ctx.sink = sink
    return ctx


class CapturedEvents:
    """A sink that keeps every run event; put it on `ctx.sink` or pass it to `make_context(sink=)`."""

    __slots__ = ("_seq", "events")

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self._seq = -1

    async def put(self, event: RunEvent, /) -> None:
        """Keep the event."""
        self.events.append(event)

    def next_seq(self) -> int:
        """Return the next number, from 0."""
        self._seq += 1
        return self._seq

    def of(self, kind: type[RunEvent]) -> list[RunEvent]:
        """Return the events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def capture_events() -> CapturedEvents:
    """Return a new sink."""
    return CapturedEvents()
