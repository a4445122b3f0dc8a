"""What `ask` and `run` return."""

from __future__ import annotations

from decimal import Decimal
from typing import Generic, TypeVar

from msgspec import Struct

from agentkit.core.contracts import Adjustment, AgentResult, AssistantMessage, CostRecord, Message, Usage

__all__ = ["Answer"]

T_co = TypeVar("T_co", covariant=True)


class Answer(Struct, Generic[T_co], frozen=True, kw_only=True):
    """An answer with what it took.

    `value` is the text, or the validated object of `output=`. `usage` and `cost` (dollars, None when a part is
    unpriced; `known_cost` is the lower bound) include failed attempts, corrections and sub-agents. `stop_reason` is
    the model's ("stop", "length", ...) or the run's ("max_turns", "budget_exhausted", "suspended"). `messages` plus a
    new message continues the conversation. `adjustments` is what was changed of what was asked for, each named once.
    `partial` is the text of an answer that a ceiling cut off.
    """

    value: T_co
    text: str
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None
    known_cost: Decimal
    cost_complete: bool
    stop_reason: str
    model: str
    provider: str
    run_id: str
    calls: int
    records: tuple[CostRecord, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    partial: str = ""

    @property
    def last_message(self) -> AssistantMessage | None:
        """Return the model's last message, None when there is none."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, AssistantMessage) else None


def to_answer(result: AgentResult[T_co]) -> Answer[T_co]:
    """Return a run's result as an answer; a completed run has the model's own stop reason."""
    return Answer(
        value=result.output,
        text=result.text,
        messages=result.messages,
        usage=result.usage,
        cost=result.cost,
        known_cost=result.known_cost,
        cost_complete=result.cost_complete,
        stop_reason=result.model_stop_reason if result.stop_reason == "complete" else result.stop_reason,
        model=result.model,
        provider=result.provider,
        run_id=result.run_id,
        calls=result.calls,
        records=result.records,
        adjustments=result.adjustments,
        partial=result.partial,
    )
