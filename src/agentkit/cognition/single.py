"""One model call, and at most the corrections its job allows."""

from __future__ import annotations

from agentkit.cognition.run import Run
from agentkit.core.contracts import AgentResult, Purpose
from agentkit.errors import MeterExceeded, OutputInvalid

__all__ = ["SingleCall"]


_MOST_PAUSES = 8


class SingleCall:
    """Asks once and takes the answer; an answer that does not fit the declared output is sent back once.

    An answer that the model paused, as servers that run tools of their own do, is sent back as it is until it is
    whole, at most 8 times; every part is a call that is paid and counted. After that it is taken as it stands, with
    the model's stop reason "pause".
    """

    name = "single_call"
    __slots__ = ()

    async def drive(self, run: Run, /) -> AgentResult[object]:
        """Carry the run on until it completes."""
        purpose: Purpose = "main"
        pauses = 0
        while True:
            run.ctx.check_cancelled()
            try:
                if not run.answered:
                    await run.ask_model(purpose=purpose)
            except MeterExceeded as error:
                result = await run.suspend("budget_exhausted", error.message, error.partial)
                if error.suspends:
                    return result
                raise
            if run.paused and pauses < _MOST_PAUSES:
                pauses += 1
                continue
            run.refuse_calls()
            try:
                output = run.parse_output()
            except OutputInvalid as problem:
                if not run.may_correct(problem):
                    return await run.fail_output(problem)
                purpose = "correction"
                continue
            return await run.complete(output)
