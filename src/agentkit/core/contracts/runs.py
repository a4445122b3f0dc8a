"""What a whole run tells and comes to."""

from __future__ import annotations

from decimal import Decimal
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from agentkit.core.contracts.events import Adjustment, ChatEvent, StopReason, ToolUpdate
from agentkit.core.contracts.messages import JsonValue, Message, ToolCall
from agentkit.core.contracts.pricing import CostRecord
from agentkit.core.contracts.usage import Usage

__all__ = [
    "AgentResult",
    "ApprovalRequested",
    "Checkpointed",
    "ModelEvent",
    "Observed",
    "PendingCall",
    "RunEnded",
    "RunEvent",
    "RunStarted",
    "RunStopReason",
    "ToolEvent",
    "TurnStarted",
]

T_co = TypeVar("T_co", covariant=True)

RunStopReason: TypeAlias = Literal[
    "complete",
    "suspended",
    "expired",
    "budget_exhausted",
    "max_turns",
    "invalid_output",
    "terminated",
    "failed",
]


class PendingCall(Struct, frozen=True):
    """A tool call that waits for a decision; `path` is the run's slot, `digest` binds tool and arguments."""

    id: str
    path: str
    turn: int
    position: int
    call: ToolCall
    digest: str
    reason: str = ""


class AgentResult(Struct, Generic[T_co], frozen=True, kw_only=True):
    """What a run came to; also of a suspended one, which has `pending` or a reached ceiling and no output yet.

    `cost` is dollars, None when a part is unpriced; `known_cost` is then the lower bound. Usage and cost are of
    the whole run, sub-agents, failed attempts and earlier sittings included. `adjustments` is what was changed of this
    sitting's requests and of the conversation it was given, each named once. `partial` is the text of an answer that a
    ceiling cut off; it is not in `messages`, since a resumed run asks for that answer again.
    """

    output: T_co
    text: str
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None
    known_cost: Decimal
    cost_complete: bool
    stop_reason: RunStopReason
    run_id: str
    calls: int
    pending: tuple[PendingCall, ...] = ()
    records: tuple[CostRecord, ...] = ()
    reason: str = ""
    model: str = ""
    provider: str = ""
    model_stop_reason: StopReason = "stop"
    adjustments: tuple[Adjustment, ...] = ()
    partial: str = ""

    @property
    def is_suspended(self) -> bool:
        """Return whether the run can be resumed."""
        return self.stop_reason in ("suspended", "budget_exhausted")


class RunStarted(Struct, frozen=True, tag="run_started"):
    """A run, or a sub-agent's part of it at `path`, begins."""

    seq: int
    path: str
    turn: int
    run_id: str
    agent: str
    resumed: bool = False


class TurnStarted(Struct, frozen=True, tag="turn_started"):
    """The next model call begins; turns count from 1."""

    seq: int
    path: str
    turn: int


class ModelEvent(Struct, frozen=True, tag="model_event"):
    """A chat event in its place."""

    seq: int
    path: str
    turn: int
    event: ChatEvent


class ToolEvent(Struct, frozen=True, tag="tool_event"):
    """A tool event in its place; `position` is the call's place in its turn."""

    seq: int
    path: str
    turn: int
    position: int
    event: ToolUpdate


class ApprovalRequested(Struct, frozen=True, tag="approval_requested"):
    """A tool call waits for a decision."""

    seq: int
    path: str
    turn: int
    pending: PendingCall


class Checkpointed(Struct, frozen=True, tag="checkpointed"):
    """The run's state is stored as `revision`; it was durable before this event was sent."""

    seq: int
    path: str
    turn: int
    revision: int
    status: str


class Observed(Struct, frozen=True, tag="observed"):
    """Something a tool or middleware emitted through the context."""

    seq: int
    path: str
    turn: int
    kind: str
    render: str
    payload: JsonValue = None


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The last event of a path; for the top-level path the last of the run."""

    seq: int
    path: str
    turn: int
    result: AgentResult[object]


RunEvent: TypeAlias = (
    RunStarted | TurnStarted | ModelEvent | ToolEvent | ApprovalRequested | Checkpointed | Observed | RunEnded
)
