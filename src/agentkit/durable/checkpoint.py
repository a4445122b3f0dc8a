"""A run's state as data: small steps over a base, folded back on resume."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from agentkit.core.contracts import (
    AssistantMessage,
    Message,
    PendingCall,
    RunStopReason,
    StopReason,
    ToolCall,
    ToolMessage,
)
from agentkit.core.runtime.metering.account import AccountState

__all__ = ["RunState", "Step"]


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed since the last checkpoint.

    `messages` are new ones at the end of the transcript; `answers` are the results so far of the open turn by the
    call's position; they join the transcript in call order, as messages of the step that closes the turn. `base`
    begins a generation: everything before it belongs to an earlier run of this id. `opened` says that it was written
    before the open turn's tools began; `carried` is what of a sub-agent's account its caller's step has counted then.
    """

    agent: str
    turn: int
    base: bool = False
    messages: tuple[Message, ...] = ()
    answers: dict[int, ToolMessage] = {}
    corrections: int = 0
    account: AccountState = AccountState()
    stop_reason: RunStopReason | None = None
    reason: str = ""
    pending: tuple[PendingCall, ...] = ()
    open_effects: tuple[str, ...] = ()
    model: str = ""
    provider: str = ""
    model_stop_reason: StopReason = "stop"
    opened: bool = False
    carried: AccountState = AccountState()


class RunState(Struct):
    """Where a run stands: the transcript, the open turn's answers, and what it has used."""

    messages: list[Message] = []
    turn: int = 0
    answers: dict[int, ToolMessage] = {}
    corrections: int = 0
    account: AccountState = AccountState()
    stop_reason: RunStopReason | None = None
    reason: str = ""
    pending: tuple[PendingCall, ...] = ()
    open_effects: tuple[str, ...] = ()
    agent: str = ""
    model: str = ""
    provider: str = ""
    model_stop_reason: StopReason = "stop"
    opened: bool = False
    carried: AccountState = AccountState()

    @classmethod
    def fold(cls, steps: Iterable[Step]) -> RunState:
        """Return the state after these steps, in order."""
        state = cls()
        for step in steps:
            if step.base:
                state = cls()
            state.apply(step)
        return state

    def apply(self, step: Step) -> None:
        """Move on by one step."""
        self.agent = step.agent
        self.turn = step.turn
        self.messages.extend(step.messages)
        self.answers = dict(step.answers)
        self.corrections = step.corrections
        self.account = step.account
        self.stop_reason = step.stop_reason
        self.reason = step.reason
        self.pending = step.pending
        self.open_effects = step.open_effects
        self.model = step.model
        self.provider = step.provider
        self.model_stop_reason = step.model_stop_reason
        self.opened = step.opened
        self.carried = step.carried

    @property
    def finished(self) -> bool:
        """Return whether the run has ended for good."""
        return self.stop_reason is not None and self.stop_reason not in ("suspended", "budget_exhausted")

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of the last turn while they are not all answered in the transcript."""
        last = self.messages[-1] if self.messages else None
        return last.tool_calls if isinstance(last, AssistantMessage) else ()
