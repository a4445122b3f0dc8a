"""What a call and a run tell while they happen.

Chat and tool events flow through the middleware chains; run events wrap them with their place in the run.
`visible` marks chat events a consumer may have acted on: after the first one an attempt is never repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.messages import AssistantMessage, JsonObject, JsonValue, Part, ToolCall
from agentkit.core.contracts.pricing import CostRecord
from agentkit.core.contracts.rate_limit import RateLimit
from agentkit.core.contracts.usage import Usage

__all__ = [
    "TRUNCATIONS",
    "Adjustment",
    "AttemptEnded",
    "ChatEnd",
    "ChatEvent",
    "ChatResponse",
    "ChatStart",
    "ReasoningDelta",
    "Reported",
    "StopReason",
    "TextDelta",
    "ToolCallDelta",
    "ToolCallReady",
    "ToolEnded",
    "ToolUpdate",
    "ToolOutcome",
    "ToolProgress",
    "ToolResult",
    "ToolStarted",
]

StopReason: TypeAlias = Literal[
    "stop", "length", "context_window", "tool_calls", "stop_sequence", "refusal", "content_filter", "pause"
]
TRUNCATIONS: Final = frozenset[StopReason]({"length", "context_window"})


class Adjustment(Struct, frozen=True):
    """One way in which a request went out other than it was asked for: what was changed, and why.

    `kind` says what it was: a setting that was left out or renamed, a schema that was rewritten, an item of another
    model's history that was left out, a conversation that was repaired.
    """

    kind: Literal["setting", "schema", "replay", "history"]
    what: str
    why: str


class Reported(Struct, frozen=True, kw_only=True):
    """What a provider said, so far, of what an answer used and how it is billed.

    `raw` is its own usage object, bounded, without texts and secrets. `service_tier` and `billing`, such as
    {"inference_geo": "us", "speed": "fast"}, are what the answer is billed as.
    """

    usage: Usage = Usage(None, None)
    raw: JsonObject | None = None
    service_tier: str | None = None
    billing: Mapping[str, str] = {}


class ChatResponse(Struct, frozen=True):
    """A whole answer of a model.

    `stop_reason` is ours, `raw_stop_reason` the provider's, also where it is new here; `model` is what the provider
    says it used. "length" and "context_window" (TRUNCATIONS) end an answer in the middle, at the cap or because the
    model's window is full; "pause" asks for the conversation to be sent again as it is, so that the answer goes on.
    `attempts` are the priced rows of every attempt behind this answer, `adjustments` what was changed of the request,
    `rate_limit` what the provider said is left of its limits. `raw_usage` is its own usage object, bounded, without
    texts and secrets; `billing` are the facts it told that a price may depend on.
    """

    message: AssistantMessage
    usage: Usage = Usage(None, None)
    stop_reason: StopReason = "stop"
    raw_stop_reason: str = ""
    model: str = ""
    provider: str = ""
    response_id: str = ""
    request_id: str = ""
    service_tier: str | None = None
    attempts: tuple[CostRecord, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    rate_limit: RateLimit | None = None
    raw_usage: JsonObject | None = None
    billing: Mapping[str, str] = {}


class ChatStart(Struct, frozen=True, tag="chat_start"):
    """The provider accepted the request and began to answer; `reported` is what it told of the bill by then."""

    visible: ClassVar[bool] = False
    model: str = ""
    provider: str = ""
    response_id: str = ""
    reported: Reported | None = None


class TextDelta(Struct, frozen=True, tag="text_delta"):
    """A piece of the answer's text."""

    visible: ClassVar[bool] = True
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning_delta"):
    """A piece of readable reasoning."""

    visible: ClassVar[bool] = True
    text: str


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta"):
    """A piece of the arguments of the call at `index`; `id` and `name` are known from the first piece on."""

    visible: ClassVar[bool] = True
    index: int
    id: str
    name: str
    arguments: str


class ToolCallReady(Struct, frozen=True, tag="tool_call_ready"):
    """The call at `index` is complete and its arguments are valid JSON."""

    visible: ClassVar[bool] = True
    index: int
    call: ToolCall


class AttemptEnded(Struct, frozen=True, tag="attempt_ended"):
    """One attempt is over and priced; failed attempts too."""

    visible: ClassVar[bool] = False
    record: CostRecord


class ChatEnd(Struct, frozen=True, tag="chat_end"):
    """The last chat event: the whole answer, folded once by the provider."""

    visible: ClassVar[bool] = True
    response: ChatResponse


ChatEvent: TypeAlias = ChatStart | TextDelta | ReasoningDelta | ToolCallDelta | ToolCallReady | AttemptEnded | ChatEnd

ToolOutcome: TypeAlias = Literal["ok", "error", "denied", "unknown", "pending"]


class ToolResult(Struct, frozen=True):
    """What a tool call came to: the content for the model, and whether it happened.

    `unknown`: a side effect may or may not have happened; `pending`: an approval is awaited, nothing ran.
    """

    content: str | tuple[Part, ...]
    outcome: ToolOutcome = "ok"
    detail: JsonValue = None

    @property
    def is_error(self) -> bool:
        """Return whether the model should read this as a failure."""
        return self.outcome != "ok"


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    """A tool call begins."""

    call: ToolCall


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    """A tool tells how far it is."""

    call: ToolCall
    text: str = ""
    data: JsonValue = None


class ToolEnded(Struct, frozen=True, tag="tool_ended"):
    """The last tool event: the call's one result."""

    call: ToolCall
    result: ToolResult


ToolUpdate: TypeAlias = ToolStarted | ToolProgress | ToolEnded
