"""One run of a job: its transcript, its turn, its slot in the run log, and the events it tells."""

from __future__ import annotations

from msgspec.structs import replace

from agentkit.cognition.job import Job
from agentkit.core.contracts import (
    AgentResult,
    ApprovalRequested,
    AssistantMessage,
    ChatEvent,
    ChatResponse,
    Checkpointed,
    Message,
    ModelEvent,
    PendingCall,
    Purpose,
    RunStarted,
    RunStopReason,
    ToolCall,
    ToolChoice,
    ToolEvent,
    ToolUpdate,
    TurnStarted,
    UserMessage,
    trim_money,
)
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.invoker import Invoker
from agentkit.durable import RunSlot, RunState, Step
from agentkit.errors import ConfigurationError, OutputInvalid

__all__ = ["Run"]


class Run:
    """What changes while a job is done; used by one task at a time.

    `state.messages` is the whole transcript. Steps are written to the slot before the event that tells of them.
    """

    __slots__ = ("_ids", "_saved", "ctx", "invoker", "job", "last", "resumed", "slot", "state")

    def __init__(self, job: Job, ctx: RunContext, slot: RunSlot, state: RunState, *, resumed: bool) -> None:
        invoker = ctx.services.invoker
        if not isinstance(invoker, Invoker):
            raise ConfigurationError("The context's services have no Invoker; pass Services(invoker=Invoker(...)).")
        self.job = job
        self.ctx = ctx
        self.slot = slot
        self.state = state
        self.invoker = invoker
        self.resumed = resumed
        self.last: ChatResponse | None = None
        self._saved = len(state.messages) if resumed else 0
        self._ids: set[str] | None = None

    async def started(self) -> None:
        """Tell that the run begins, and write its first step where the log outlives the process."""
        sink = self.ctx.sink
        if sink is not None:
            await sink.put(
                RunStarted(
                    sink.next_seq(),
                    self.ctx.path,
                    self.state.turn,
                    self.ctx.correlation_id,
                    self.job.agent,
                    self.resumed,
                )
            )
        if not self.slot.volatile and not self.resumed:
            await self.save("running", base=True)

    async def ask_model(self, *, tool_choice: ToolChoice | None = None, purpose: Purpose = "main") -> ChatResponse:
        """Begin the next turn: send the transcript, add the answer to it, and return the answer."""
        state = self.state
        turn = state.turn + 1
        sink = self.ctx.sink
        if sink is not None:
            await sink.put(TurnStarted(sink.next_seq(), self.ctx.path, turn))
        request = self.job.request(tuple(state.messages), tool_choice=tool_choice)
        self.ctx.turn = turn
        response = await self.invoker.chat(
            request, self.ctx, purpose=purpose, route=self.job.route, watch=None if sink is None else self._watch_model
        )
        message = response.message
        if message.tool_calls:
            message = self._with_own_ids(message, turn)
        state.turn = turn
        state.messages.append(message)
        self.last = response
        self.resumed = False
        return response

    async def save(
        self,
        status: str,
        *,
        base: bool = False,
        open_effects: tuple[str, ...] = (),
    ) -> None:
        """Write what is new since the last save; a volatile log learns of a run only when it is suspended."""
        slot = self.slot
        if slot.log is None or (slot.volatile and status != "suspended" and not slot.revision):
            return
        state = self.state
        first = slot.volatile and not self.resumed and self._saved == 0
        step = Step(
            agent=self.job.agent,
            turn=state.turn,
            base=base or first,
            messages=tuple(state.messages[self._saved :]),
            answers=dict(state.answers),
            corrections=state.corrections,
            account=self.ctx.account.tally.state(),
            stop_reason=state.stop_reason,
            reason=state.reason,
            pending=state.pending,
            open_effects=open_effects,
        )
        await slot.write(step, status)  # type: ignore[arg-type]
        self._saved = len(state.messages)
        sink = self.ctx.sink
        if sink is not None:
            await sink.put(Checkpointed(sink.next_seq(), self.ctx.path, state.turn, slot.revision, status))

    def say(self, text: str) -> None:
        """Add a message of the user's side to the transcript."""
        self.state.messages.append(UserMessage(text))

    async def complete(self, output: object, stop_reason: RunStopReason = "complete") -> AgentResult[object]:
        """End the run with an output."""
        self.state.stop_reason = stop_reason
        await self.save("done")
        return self.result(output)

    async def fail_output(self, problem: OutputInvalid) -> AgentResult[object]:
        """End the run because no answer fits the declared output; raises that problem with what was had."""
        self.state.stop_reason = "invalid_output"
        self.state.reason = problem.message
        await self.save("failed")
        raise problem

    async def close_turn(self) -> None:
        """Put the turn's answers into the transcript; one write tells of all of them."""
        answers = self.state.answers
        self.state.answers = {}
        self.state.messages.extend(answers[position] for position in sorted(answers))
        await self.save("running")

    async def suspend(
        self, stop_reason: RunStopReason, reason: str, pending: tuple[PendingCall, ...] = ()
    ) -> AgentResult[object]:
        """Write a checkpoint that can be resumed, and end this sitting."""
        self.state.stop_reason = stop_reason
        self.state.reason = reason
        self.state.pending = pending
        await self.save("suspended")
        sink = self.ctx.sink
        if sink is not None:
            for call in pending:
                await sink.put(ApprovalRequested(sink.next_seq(), call.path, call.turn, call))
        return self.result(None)

    def result(self, output: object) -> AgentResult[object]:
        """Return the run as a value."""
        state, account = self.state, self.ctx.account
        tally = account.tally
        spent = trim_money(tally.spent)
        return AgentResult(
            output=output,
            text=self.text(),
            messages=tuple(state.messages),
            usage=tally.usage,
            cost=None if tally.unpriced else spent,
            known_cost=spent,
            cost_complete=not tally.unpriced,
            stop_reason=state.stop_reason or "complete",
            run_id=self.ctx.correlation_id,
            calls=tally.calls,
            pending=state.pending,
            records=tuple(account.records),
            reason=state.reason,
            model="" if self.last is None else self.last.model,
            provider="" if self.last is None else self.last.provider,
            model_stop_reason="stop" if self.last is None else self.last.stop_reason,
        )

    def text(self) -> str:
        """Return the text of the last answer, empty when the last word was not the model's."""
        last = self.state.messages[-1] if self.state.messages else None
        return last.content if isinstance(last, AssistantMessage) else ""

    def parse_output(self) -> object:
        """Return the last answer in the declared shape, its text without one; raises OutputInvalid."""
        text = self.text()
        if self.job.output is not None:
            return self.job.output.parse(text)
        if not text.strip():
            raise OutputInvalid("The model's answer is empty.", problems=("the answer is empty",))
        return text

    def may_correct(self, problem: OutputInvalid) -> bool:
        """Add a message that says what does not fit, when a correction is left; return whether it was."""
        if self.state.corrections >= self.job.corrections:
            return False
        self.state.corrections += 1
        listed = "\n".join(f"- {line}" for line in problem.problems[:20]) or f"- {problem.message}"
        self.say(f"Your answer cannot be used:\n{listed}\nAnswer again, with the whole answer and nothing else.")
        return True

    async def tell_tool(self, turn: int, position: int, event: ToolUpdate) -> None:
        """Tell a tool event in its place."""
        sink = self.ctx.sink
        if sink is not None:
            await sink.put(ToolEvent(sink.next_seq(), self.ctx.path, turn, position, event))

    async def _watch_model(self, event: ChatEvent) -> None:
        sink = self.ctx.sink
        if sink is not None:
            await sink.put(ModelEvent(sink.next_seq(), self.ctx.path, self.ctx.turn, event))

    def _with_own_ids(self, message: AssistantMessage, turn: int) -> AssistantMessage:
        ids = self._ids
        if ids is None:
            ids = self._ids = {
                call.id for old in self.state.messages if isinstance(old, AssistantMessage) for call in old.tool_calls
            }
        renamed: list[ToolCall] = []
        changed = False
        for position, call in enumerate(message.tool_calls):
            if not call.id or call.id in ids:
                call = replace(call, id=f"call_{turn}_{position}")
                changed = True
            ids.add(call.id)
            renamed.append(call)
        return replace(message, tool_calls=tuple(renamed)) if changed else message
