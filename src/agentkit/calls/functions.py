"""The two verbs of a newcomer: `ask` and `run`."""

from __future__ import annotations

from typing import TypeVar, overload

from agentkit.calls.answer import Answer, to_answer
from agentkit.calls.binding import Binding
from agentkit.calls.entry import Tools, ask_work, placed, run_work
from agentkit.calls.runtime import CallRuntime
from agentkit.cognition import DEFAULT_MAX_TURNS
from agentkit.core.contracts import EventSink, ModelSettings, Prompt
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import DeadlineLike
from agentkit.core.runtime.metering.budget import Budget

__all__ = ["ask", "entered", "run"]

T = TypeVar("T")


class entered:  # noqa: N801
    """The context to run on, as a context manager; what it lacks comes from a runtime that lives as long as the block.

    A class rather than a generator: thousands of parked runs each keep one.
    """

    __slots__ = ("_calls", "_place")

    def __init__(
        self,
        ctx: RunContext | None,
        *,
        budget: Budget | None = None,
        deadline: DeadlineLike = None,
        sink: EventSink | None = None,
    ) -> None:
        self._calls: CallRuntime | None = None
        if ctx is not None:
            complete = ctx.services.models is not None and ctx.services.invoker is not None
            as_it_is = complete and budget is None and deadline is None and sink is None
            self._place = ctx if as_it_is else placed(ctx, budget, deadline, sink)
            if complete:
                return
        self._calls = CallRuntime()
        if ctx is None:
            self._place = self._calls.context(budget=budget).limited(deadline=deadline, sink=sink)
        else:
            self._place.services = self._calls.completed(self._place.services)

    async def __aenter__(self) -> RunContext:
        if self._calls is not None:
            await self._calls.__aenter__()
        return self._place

    async def __aexit__(self, *exc: object) -> None:
        if self._calls is not None:
            await self._calls.aclose()


@overload
async def ask(
    binding: Binding,
    prompt: Prompt,
    output: None = None,
    *,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[str]: ...


@overload
async def ask(
    binding: Binding,
    prompt: Prompt,
    output: type[T],
    *,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[T]: ...


@overload
async def ask(
    binding: Binding,
    prompt: Prompt,
    output: object,
    *,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[object]: ...


async def ask(
    binding: Binding,
    prompt: Prompt,
    output: object = None,
    *,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[object]:
    """Ask a model once and return its answer, validated when `output` is a type or JSON Schema.

    Without `ctx` it runs as tenant "local" on a runtime of its own, closed before this returns. `deadline` is seconds
    from now, a timedelta or an aware datetime. Raises OutputInvalid when the answer does not fit even after one
    correction, and every ProviderError, MeterExceeded, DeadlineExceeded and Cancelled.
    """
    work = ask_work(binding, prompt, output, instructions, settings)
    async with entered(ctx, budget=budget, deadline=deadline) as place:
        return to_answer(await work.perform(place))


@overload
async def run(
    binding: Binding,
    prompt: Prompt,
    tools: Tools | None = None,
    *,
    output: None = None,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[str]: ...


@overload
async def run(
    binding: Binding,
    prompt: Prompt,
    tools: Tools | None = None,
    *,
    output: type[T],
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[T]: ...


@overload
async def run(
    binding: Binding,
    prompt: Prompt,
    tools: Tools | None = None,
    *,
    output: object,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[object]: ...


async def run(
    binding: Binding,
    prompt: Prompt,
    tools: Tools | None = None,
    *,
    output: object = None,
    ctx: RunContext | None = None,
    budget: Budget | None = None,
    instructions: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
    settings: ModelSettings | None = None,
    deadline: DeadlineLike = None,
) -> Answer[object]:
    """Run the tool loop until the model answers, at most `max_turns` turns and one last answer without tools.

    Without tools it is `ask` with that bound. Raises what `ask` raises; a tool's failure is told to the model.
    """
    work = run_work(binding, prompt, tools, output, instructions, settings, max_turns)
    async with entered(ctx, budget=budget, deadline=deadline) as place:
        return to_answer(await work.perform(place))
