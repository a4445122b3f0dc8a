"""One model call, and at most the corrections its job allows."""

from __future__ import annotations

from agentkit.cognition.run import Run
from agentkit.core.contracts import AgentResult
from agentkit.errors import MeterExceeded, OutputInvalid

__all__ = ["SingleCall"]


class SingleCall:
    """Asks once and takes the answer; an answer that does not fit the declared output is sent back once."""

    name = "single_call"
    __slots__ = ()

    async def drive(self, run: Run, /) -> AgentResult[object]:
        """Carry the run on until it completes."""
        purpose = "main"
        while True:
            run.ctx.check_cancelled()
            try:
                if not run.answered:
                    await run.ask_model(purpose=purpose)
            except MeterExceeded as error:
                result = await run.suspend("budget_exhausted", error.message)
                if error.suspends:
                    return result
                raise
            run.refuse_calls()
            try:
                output = run.parse_output()
            except OutputInvalid as problem:
                if not run.may_correct(problem):
                    return await run.fail_output(problem)
                purpose = "correction"
                continue
            return await run.complete(output)
