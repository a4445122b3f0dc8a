"""The tool loop: ask the model, run what it calls, tell it the results, until it answers."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.cognition.dispatch import Dispatch
from agentkit.cognition.run import Run
from agentkit.core.contracts import AgentResult, ToolCall, ToolChoice
from agentkit.core.runtime.checks import whole
from agentkit.errors import MeterExceeded, OutputInvalid

__all__ = ["DEFAULT_MAX_TURNS", "ReAct"]

DEFAULT_MAX_TURNS = 12
_SHAPE = ("depth", "width")  # ceilings of the tree, which no call asks a meter about


class ReAct:
    """Alternates between the model and its tools.

    A turn is one model call and the tools it asks for; an answer that the model paused, as servers that run tools of
    their own do, is sent back as it is and goes on in a further turn. After `max_turns` of them the model gets one
    last call in which it may use no tool (`final_answer=False` leaves that out), and the run ends with stop_reason
    "max_turns".
    When a budget with on_exceeded "stop" refuses the next step, the run is suspended as "budget_exhausted" and can be
    resumed; nothing is paid or done twice. With "raise" the same checkpoint is written before MeterExceeded leaves.
    """

    name = "react"
    __slots__ = ("final_answer", "max_turns")

    def __init__(self, *, max_turns: int = DEFAULT_MAX_TURNS, final_answer: bool = True) -> None:
        self.max_turns = whole("ReAct", "max_turns", max_turns, 1)
        self.final_answer = final_answer

    async def drive(self, run: Run, /) -> AgentResult[object]:
        """Carry the run on until it completes, stops at a limit, or suspends."""
        state = run.state
        try:
            while True:
                run.ctx.check_cancelled()
                if calls := state.open_calls:
                    ended = await self._act(run, calls)
                elif run.answered:
                    ended = await self._finish(run, last=state.turn > self.max_turns)
                else:
                    ended = await self._ask(run)
                if ended is not None:
                    return ended
        except MeterExceeded as error:
            result = await run.suspend("budget_exhausted", error.message, error.partial)
            if error.suspends or (error.axis in _SHAPE and run.ctx.budget.on_exceeded == "stop"):
                return result
            raise

    async def _ask(self, run: Run) -> AgentResult[object] | None:
        last = run.state.turn >= self.max_turns
        if last and not self.final_answer:
            return await run.complete(None, "max_turns")
        response = await run.ask_model(
            tool_choice=ToolChoice("none") if last and run.job.toolbox.specs else None,
            purpose="final" if last else "main",
        )
        if not last and response.message.tool_calls:
            return None
        if not last and run.paused:
            await run.save("running")
            return None
        return await self._finish(run, last=last)

    async def _act(self, run: Run, calls: Sequence[ToolCall]) -> AgentResult[object] | None:
        state = run.state
        dispatch = Dispatch(run)
        run.ctx.resuming = run.resumed
        try:
            await dispatch.perform(calls)
        finally:
            run.ctx.resuming = run.resumed = False
            waiting = dispatch.pending
            state.pending = tuple(sorted(waiting, key=lambda call: (call.path, call.position))) if waiting else ()
        if dispatch.stopped is not None:
            return await run.suspend("budget_exhausted", dispatch.stopped.reason)
        if dispatch.pending:
            return await run.suspend("suspended", "an approval is awaited")
        await run.close_turn()
        return None

    async def _finish(self, run: Run, *, last: bool) -> AgentResult[object] | None:
        run.refuse_calls()
        try:
            output = run.parse_output()
        except OutputInvalid as problem:
            if not last and run.may_correct(problem):
                return None
            if last:
                return await run.complete(None, "max_turns")
            return await run.fail_output(problem)
        return await run.complete(output, "max_turns" if last else "complete")
