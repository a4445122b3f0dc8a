"""Running many agents side by side, each on a child of one context."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Sized
from contextlib import aclosing
from typing import Protocol, TypeAlias, TypeVar

from agentkit.core.runtime.context import UNSET, RunContext
from agentkit.core.runtime.fanout import ENDS_THE_RUN, Failure, each, first_of, gather_best_effort, gather_bounded
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.errors import MeterExceeded

__all__ = ["Pairs", "Runnable", "run_agents"]

I = TypeVar("I")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Runnable(Protocol[I_contra, R_co]):
    """Something that turns a task and a context into a result; an agent is one."""

    def run(self, task: I_contra, ctx: RunContext, /) -> Awaitable[R_co]:
        """Run the task on this context."""
        ...


Pairs: TypeAlias = "Iterable[tuple[Runnable[I, R], I]] | AsyncIterable[tuple[Runnable[I, R], I]]"


async def run_agents(pairs: Pairs[I, R], ctx: RunContext, best_effort: bool = False) -> list[R] | list[R | Failure]:
    """Return the agents' results in order of the input, each run on `ctx.child()`, as many at once as slots are free.

    The context's actor budget is shared out in equal parts first, and what children leave comes back. A single
    failure surfaces as itself, several as an ExceptionGroup; with `best_effort` each becomes a Failure in its place.
    Raises MeterExceeded before anything starts when there are more pairs than the budget's `max_width` (axis width)
    or when an equal part of the actor budget would be nothing (axis named).
    """
    pairs = await _within_width(pairs, ctx)
    parent = ctx.actor_budget
    slices: list[ActorBudget] = []
    if parent is not None:
        pairs = await _as_list(pairs)
        if not pairs:
            return []
        slices = parent.reserve_equally(len(pairs))
    try:
        jobs = _jobs(pairs, ctx, slices)
        if best_effort:
            return await gather_best_effort(jobs, sem=ctx.semaphore())
        return await gather_bounded(jobs, sem=ctx.semaphore())
    except BaseExceptionGroup as group:
        error = _one_cause(group)
        if error is None:
            raise
        raise error from error.__cause__
    finally:
        if parent is not None:
            for part in slices:
                parent.settle_child(part)


def _one_cause(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return what a caller should see instead of the group; None when several things went wrong."""
    ended = group.subgroup(ENDS_THE_RUN)
    if ended is not None:
        return first_of(ended)
    if len(group.exceptions) == 1:
        return group.exceptions[0]
    _, others = group.split(MeterExceeded)
    return first_of(group) if others is None else None


async def _jobs(pairs: Pairs[I, R], ctx: RunContext, slices: list[ActorBudget]) -> AsyncGenerator[Awaitable[R], None]:
    index = 0
    async with aclosing(each(pairs)) as found:
        async for agent, task in found:
            ctx.check_cancelled()
            name = str(getattr(agent, "name", "")) or "child"
            channel = ctx.signal_channel
            child = ctx.child(
                name=name,
                actor_budget=slices[index] if slices else UNSET,
                signal_channel=UNSET if channel is None else channel.child(name),
            )
            yield agent.run(task, child)
            index += 1


async def _within_width(pairs: Pairs[I, R], ctx: RunContext) -> Pairs[I, R]:
    width = ctx.budget.max_width
    if width is None or ctx.budget.mode == "observe":
        return pairs
    known = pairs if isinstance(pairs, Sized) else await _as_list(pairs, width + 1)
    if len(known) > width:
        count = len(known) if known is pairs else f"more than {width}"
        raise MeterExceeded(f"width {count} > {width}", axis="width")
    return known


async def _as_list(pairs: Pairs[I, R], most: int | None = None) -> list[tuple[Runnable[I, R], I]]:
    found: list[tuple[Runnable[I, R], I]] = []
    async with aclosing(each(pairs)) as items:
        async for pair in items:
            found.append(pair)
            if most is not None and len(found) >= most:
                break
    return found
