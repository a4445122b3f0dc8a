"""Starting, resuming and ending runs: the one way from a job to a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import to_builtins

from agentkit.cognition.job import Job
from agentkit.cognition.run import Cognition, Run
from agentkit.core.contracts import (
    AgentResult,
    AssistantMessage,
    Decision,
    Message,
    RunEnded,
    SystemMessage,
    clean_text,
)
from agentkit.core.contracts.history import repair_history
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.metering.account import RunAccount, Tally
from agentkit.durable import RunSlot, RunState, to_decisions
from agentkit.errors import AgentkitError, ConfigurationError, MeterExceeded, RunConflict
from agentkit.observe import Level, log_event

__all__ = ["execute", "resume"]


async def execute(
    job: Job,
    cognition: Cognition,
    messages: Sequence[Message],
    ctx: RunContext,
    *,
    owned: bool = False,
    durable: bool = True,
) -> AgentResult[object]:
    """Run the job on this conversation in the context's place; raises RunConflict when the place is taken.

    A call made on the context of a running run is a run of its own one level deeper; when that run is resumed and
    makes the same call again, it goes on where it was. `owned` says that the caller looked for that itself. A run
    that is not `durable` takes no place and leaves no trace, so any number of them may share a context. A conversation
    with calls that have no result is repaired first, so that the run's messages and checkpoints are sound.
    """
    given, repairs = repair_history(messages)
    opening: list[Message] = [SystemMessage(clean_text(job.instructions)), *given] if job.instructions else list(given)
    if ctx.turn:
        ctx, durable = ctx.child(name=job.agent), True
    if durable and ctx.path and ctx.resuming and not owned and ctx.checkpointer is not None:
        again = await resume(job, cognition, ctx, opening=opening)
        if again is not None:
            return again
        owned = True
    ctx = ctx.branch()
    ctx.agent = job.agent
    slot = RunSlot(ctx, durable=durable)
    await slot.start(owned=owned)
    if not ctx.path:
        ctx.budget.track(ctx.scope.tenant, ctx.correlation_id)
    run = Run(job, ctx, slot, RunState(opening, agent=job.agent), resumed=False, adjustments=repairs)
    return await _drive(run, cognition)


async def resume(
    job: Job,
    cognition: Cognition,
    ctx: RunContext,
    decisions: Mapping[str, Decision | str | bool] | None = None,
    *,
    opening: Sequence[Message] | None = None,
) -> AgentResult[object] | None:
    """Go on with the run of this context's place; None when there is none, or it does not begin with `opening`.

    A finished run gives its result again, at no cost. Raises RunConflict when it is another agent's run or another
    process still runs it, EffectUnknown when a process died inside a tool that is not a read.
    """
    given = to_decisions(decisions)
    slot = RunSlot(ctx)
    if slot.log is None:
        raise ConfigurationError("Nothing is stored that could be resumed; pass store='sqlite:runs.db' to CallRuntime.")
    state = await slot.load()
    if state is None:
        return None
    if opening is not None and (state.agent != job.agent or state.messages[: len(opening)] != list(opening)):
        await slot.end()
        return None
    if state.agent != job.agent:
        await slot.end()
        raise RunConflict(f"Run {ctx.correlation_id!r} belongs to agent {state.agent!r}, not to {job.agent!r}.")
    _count(ctx, state)
    ctx = ctx.branch(state=state.account)
    ctx.agent = job.agent
    ctx.account.behind = state.opened
    ctx.decisions = {**ctx.decisions, **given}
    ctx.turn = state.turn
    slot.attach(ctx)
    run = Run(job, ctx, slot, state, resumed=True)
    if state.finished:
        if not ctx.path:
            _forget(ctx)
        await slot.end()
        return run.result(run.stored_output())
    state.stop_reason, state.reason, state.pending = None, "", ()
    return await _drive(run, cognition)


async def _drive(run: Run, cognition: Cognition) -> AgentResult[object]:
    ctx = run.ctx
    span = None
    if ctx.services.trace.enabled:
        span = ctx.services.trace.span(
            f"invoke_agent {run.job.agent}",
            parent=ctx.span,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": run.job.agent},
        )
        ctx.span = span
    failure: BaseException | None = None
    agent = run.job.agent
    log_event("run.started", ctx, agent=agent, resumed=run.resumed)
    try:
        await run.started()
        result = await cognition.drive(run)
        log_event("run.ended", ctx, agent=agent, stop_reason=result.stop_reason, calls=result.calls, cost=result.cost)
        if ctx.sink is not None:
            await ctx.sink.put(RunEnded(ctx.sink.next_seq(), ctx.path, run.state.turn, result))
        if not (result.is_suspended or ctx.path):
            _forget(ctx)
            await run.slot.discard()
        return result
    except BaseException as error:
        failure = error
        level: Level = "warning" if isinstance(error, Exception) else "info"
        log_event("run.failed", ctx, agent=agent, level=level, error=type(error).__name__)
        if isinstance(error, AgentkitError):
            ctx.describe(error)
            if not error.messages:
                cut = [AssistantMessage(error.partial)] if isinstance(error, MeterExceeded) and error.partial else []
                error.messages = to_builtins([*run.transcript(), *cut])
        await run.interrupted(error)
        if not (ctx.path or run.resumable):
            _forget(ctx)
        raise
    finally:
        if span is not None:
            span.end(failure)
        await run.slot.end()


def _count(ctx: RunContext, state: RunState) -> None:
    """Add what a stored run used to the budget and to its callers' accounts, as far as they have not counted it."""
    tenant, run_id, budget, caller = ctx.scope.tenant, ctx.correlation_id, ctx.budget, ctx.account.parent
    if not ctx.path:
        if not state.finished:
            budget.restore(tenant, run_id, state.account)
    elif caller is None or not caller.behind:
        state.carried = state.account
    elif state.account != state.carried:
        account: RunAccount | None = ctx.account
        while account is not None:
            account.tally.replace(state.carried, state.account)
            account = account.parent
        whole = Tally(budget.account(tenant, run_id))
        whole.replace(state.carried, state.account)
        budget.restore(tenant, run_id, whole.state())


def _forget(ctx: RunContext) -> None:
    """Let every meter drop the account of a run that is over, so that a long-lived one does not grow."""
    for meter in ctx.all_meters:
        forget = getattr(meter, "forget", None)
        if forget is not None:
            forget(ctx.scope.tenant, ctx.correlation_id)
