"""One run of a job: its transcript, its turn, its slot in the run log, and the events it tells."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from agentkit.cognition.call_ids import CallIds
from agentkit.cognition.job import Job
from agentkit.cognition.transcript import NOT_RUN, last_text
from agentkit.core.contracts import (
    Adjustment,
    AgentResult,
    ApprovalRequested,
    AssistantMessage,
    ChatEvent,
    ChatResponse,
    Checkpointed,
    CostRecord,
    Message,
    ModelEvent,
    Purpose,
    RunStarted,
    RunStatus,
    RunStopReason,
    ToolChoice,
    ToolEvent,
    ToolMessage,
    ToolUpdate,
    TurnStarted,
    UserMessage,
    trim_money,
)
from agentkit.core.contracts.history import NO_RESULT
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.invoker import Invoker
from agentkit.durable import RunSlot, RunState, Step
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, OutputInvalid, RunConflict, StoreError
from agentkit.observe import log_event

__all__ = ["Cognition", "Run"]

_ENDINGS = {
    "length": "it was cut at the output limit; raise max_tokens, or ask for less",
    "context_window": "it was cut where the model's window was full; shorten the conversation",
    "refusal": "the model declined",
    "content_filter": "a filter cut it",
}
_CUTS = (Cancelled, DeadlineExceeded)


class Run:
    """What changes while a job is done; used by one task at a time.

    `state.messages` is the whole transcript. Steps are written to the slot before the event that tells of them.
    """

    __slots__ = ("_ids", "_received", "_saved", "adjustments", "ctx", "invoker", "job", "resumed", "slot", "state")

    job: Job
    ctx: RunContext
    slot: RunSlot
    state: RunState
    invoker: Invoker
    resumed: bool
    adjustments: tuple[Adjustment, ...]
    _received: ChatResponse | None
    _saved: int
    _ids: CallIds | None

    def __init__(
        self,
        job: Job,
        ctx: RunContext,
        slot: RunSlot,
        state: RunState,
        *,
        resumed: bool,
        adjustments: tuple[Adjustment, ...] = (),
    ) -> None:
        invoker = ctx.services.invoker
        if not isinstance(invoker, Invoker):
            raise ConfigurationError("The context's services have no Invoker; pass Services(invoker=Invoker(...)).")
        self.job = job
        self.ctx = ctx
        self.slot = slot
        self.state = state
        self.invoker = invoker
        self.resumed = resumed
        self.adjustments = adjustments
        self._saved = len(state.messages) if resumed else 0
        self._ids = None
        self._received = None

    @property
    def resumable(self) -> bool:
        """Return whether the run log has a step of this run to go on from."""
        return self.slot.log is not None and self.slot.revision > 0 and self.state.stop_reason != "invalid_output"

    @property
    def answered(self) -> bool:
        """Return whether the model has had the last word, and nothing was done with it yet."""
        return self.state.turn > 0 and isinstance(self.state.messages[-1], AssistantMessage) and not self.paused

    @property
    def paused(self) -> bool:
        """Return whether the model stopped in the middle of its turn and goes on when its answer is sent back as is."""
        if self.state.model_stop_reason != "pause":
            return False
        last = self.state.messages[-1]
        return isinstance(last, AssistantMessage) and not last.tool_calls

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
            request,
            self.ctx,
            purpose=purpose,
            route=self.job.route,
            watch=None if sink is None else self._watch_model,
            answered=self._receive,
        )
        self._accept(response)
        if len(response.attempts) > 1:
            self._log_failed(response.attempts[:-1])
        return response

    def _log_failed(self, attempts: Sequence[CostRecord]) -> None:
        for attempt in attempts:
            log_event(
                "attempt.failed",
                self.ctx,
                agent=self.job.agent,
                level="warning",
                provider=attempt.provider,
                model=attempt.model,
                outcome=attempt.outcome,
                attempt=attempt.attempt,
            )

    def _receive(self, response: ChatResponse) -> None:
        self._received = response

    def _accept(self, response: ChatResponse) -> None:
        state, turn = self.state, self.ctx.turn
        self._received = None
        self.resumed = False
        if response.adjustments:
            self.adjustments = tuple(dict.fromkeys((*self.adjustments, *response.adjustments)))
        message = response.message
        if message.tool_calls:
            if self._ids is None:
                self._ids = CallIds(state.messages)
            message = self._ids.own(message, turn)
        state.turn = turn
        state.messages.append(message)
        state.model, state.provider, state.model_stop_reason = response.model, response.provider, response.stop_reason

    async def save(
        self,
        status: RunStatus,
        *,
        base: bool = False,
        opened: bool = False,
        open_effects: tuple[str, ...] = (),
    ) -> None:
        """Write what is new since the last save; a volatile log learns of a run only when it is suspended."""
        slot = self.slot
        if slot.volatile and ((status != "suspended" and not slot.revision) or slot.log is None):
            return
        await self._write(status, base=base, opened=opened, open_effects=open_effects)

    async def interrupted(self, error: BaseException) -> None:
        """Write what was reached when a run is ended from outside, so that resuming it repeats nothing."""
        slot = self.slot
        if self._received is not None and (isinstance(error, _CUTS) or not isinstance(error, Exception)):
            self._accept(self._received)
        if slot.log is None or self.state.stop_reason is not None:
            return
        if slot.volatile and not slot.revision and not slot.called:
            if not self.ctx.path:
                await slot.discard()
            return
        with suppress(StoreError, RunConflict):  # the reason it ended is what is told
            await self._write("running")

    async def _write(
        self, status: RunStatus, *, base: bool = False, opened: bool = False, open_effects: tuple[str, ...] = ()
    ) -> None:
        slot, state = self.slot, self.state
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
            model=state.model,
            provider=state.provider,
            model_stop_reason=state.model_stop_reason,
            opened=opened,
            carried=state.carried,
        )
        before, reached = slot.revision, len(state.messages)
        try:
            await slot.write(step, status)
        finally:
            if slot.revision != before:
                self._saved = reached
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
        in_order = [answers[position] for position in sorted(answers)] if len(answers) > 1 else answers.values()
        self.state.messages.extend(in_order)
        await self.save("running")

    async def suspend(self, stop_reason: RunStopReason, reason: str, partial: str = "") -> AgentResult[object]:
        """Write a checkpoint that can be resumed, with the calls that wait in `state.pending`; end this sitting.

        `partial` is told and not written: resumed, the run asks for that answer again.
        """
        self.state.stop_reason = stop_reason
        self.state.reason = reason
        await self.save("suspended")
        sink = self.ctx.sink
        if sink is not None:
            for call in self.state.pending:
                await sink.put(ApprovalRequested(sink.next_seq(), call.path, call.turn, call))
        return self.result(None, partial)

    def result(self, output: object, partial: str = "") -> AgentResult[object]:
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
            model=state.model,
            provider=state.provider,
            model_stop_reason=state.model_stop_reason,
            adjustments=self.adjustments,
            partial=partial,
        )

    def text(self) -> str:
        """Return the text of the last answer, empty when the last word was not the model's."""
        return last_text(self.state.messages, self.state.turn)

    def refuse_calls(self) -> None:
        """Answer the calls of a last message that may use no tool, so that the transcript stays whole."""
        for call in self.state.open_calls:
            self.state.messages.append(ToolMessage(call.id, NOT_RUN, call.name, is_error=True))

    def transcript(self) -> list[Message]:
        """Return the messages with every call answered, also of a turn that was ended from outside."""
        state = self.state
        answers = (
            state.answers.get(position) or ToolMessage(call.id, NO_RESULT, call.name, is_error=True)
            for position, call in enumerate(state.open_calls)
        )
        return [*state.messages, *answers]

    def stored_output(self) -> object:
        """Return the output of a finished run that is read again, None when it had none."""
        if self.state.stop_reason not in ("complete", "max_turns"):
            return None
        try:
            return self.parse_output()
        except OutputInvalid:
            return None

    def parse_output(self) -> object:
        """Return the last answer in the declared shape, its text without one; raises OutputInvalid."""
        text, reason = self.text(), self.state.model_stop_reason
        if self.job.output is not None:
            try:
                return self.job.output.parse(text)
            except OutputInvalid as problem:
                problem.ended(reason, _ENDINGS.get(reason, ""))
                raise
        if not text.strip():
            empty = OutputInvalid("The model's answer is empty.", problems=("the answer is empty",))
            empty.ended(reason, _ENDINGS.get(reason, ""))
            raise empty
        return text

    def may_correct(self, problem: OutputInvalid) -> bool:
        """Add a message that says what does not fit, when a correction is left; return whether it was.

        An answer that was cut or declined gets none: asked again, the model would end in the same way.
        """
        if self.state.corrections >= self.job.corrections or problem.stop_reason in _ENDINGS:
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


class Cognition(Protocol):
    """A loop that turns a run into a result; it reaches models and tools only through the run's Invoker."""

    @property
    def name(self) -> str:
        """Return the word for it in traces."""
        ...

    async def drive(self, run: Run, /) -> AgentResult[object]:
        """Carry the run on until it completes, stops at a limit, or suspends."""
        ...
