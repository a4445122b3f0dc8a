"""Collects one answer: text, reasoning, calls, usage; and ends it as a response or as the right error."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from agentkit.core.contracts import (
    TRUNCATIONS,
    Adjustment,
    AssistantMessage,
    ChatEnd,
    ChatEvent,
    ChatResponse,
    ChatStart,
    OpaqueItem,
    RateLimit,
    ReasoningDelta,
    Reported,
    StopReason,
    TextDelta,
    ToolCall,
    ToolCallReady,
    ToolSpec,
    Usage,
)
from agentkit.errors import ProviderError, Refused, StreamBroken
from agentkit.providers.profiles import Echo
from agentkit.providers.wire.calls import CallAssembly
from agentkit.providers.wire.clean import TextJoiner
from agentkit.providers.wire.evidence import Words
from agentkit.providers.wire.failure import malformed_turn

__all__ = ["Asked", "Decoder", "Fold"]


class Asked(Struct, frozen=True, kw_only=True):
    """What a decoder has to know of the request it decodes the answer to; `words` are those to keep as evidence."""

    provider: str = ""
    model: str = ""
    endpoint: str = ""
    request_id: str = ""
    max_tokens: int | None = None
    taken: Container[str] = ()
    tools: Sequence[ToolSpec] = ()
    turn: int = 0
    after_tools: bool = False
    echo: Echo = ""
    output_is_rest: bool = False
    think_tags: bool = False
    report_model: bool = True
    adjustments: tuple[Adjustment, ...] = ()
    rate_limit: RateLimit | None = None
    words: Words = Words()


class Decoder(Protocol):
    """Turns the bytes of one answer into events."""

    done: bool  # whether the end marker of the stream has come

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of a stream, cut anywhere; raises ProviderError for an error in it."""
        ...

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that came in one piece."""
        ...

    def end(self) -> list[ChatEvent]:
        """Return the last events, `ChatEnd` at the very end; raises StreamBroken when the answer is not complete."""
        ...

    def usage(self) -> Usage:
        """Return what is known of the usage so far."""
        ...

    def reported(self) -> Reported:
        """Return what is known of the bill so far, the usage with its evidence."""
        ...


class Fold:
    """The answer so far; every protocol writes into it."""

    __slots__ = (
        "_thoughts",
        "asked",
        "calls",
        "category",
        "explanation",
        "model",
        "opaque",
        "reason",
        "reasoning",
        "refusal",
        "response_id",
        "started",
        "text",
        "tier",
        "words",
    )

    def __init__(self, asked: Asked, *, compact: bool = False) -> None:
        self.asked = asked
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.category = ""
        self.explanation = ""
        self.opaque: list[OpaqueItem] = []
        self.calls = CallAssembly(asked.taken, asked.turn, tools=asked.tools, compact=compact)
        self.model = ""
        self.response_id = ""
        self.tier: str | None = None
        self.reason: str | None = None
        self.started = False
        self.words = TextJoiner()
        self._thoughts = TextJoiner()

    def say(self, text: str, events: list[ChatEvent]) -> int:
        """Tell a piece of the text, clean and whole; returns how much of it was told."""
        words = self.words
        if words.held or not text.isascii() or "\x00" in text:
            text = words.add(text)
        if text:
            self.text.append(text)
            events.append(TextDelta(text))
        return len(text)

    def think(self, text: str, events: list[ChatEvent]) -> None:
        """Tell a piece of readable reasoning, clean and whole."""
        text = self._thoughts.add(text)
        if text:
            self.reasoning.append(text)
            events.append(ReasoningDelta(text))

    def flush(self, events: list[ChatEvent]) -> None:
        """Tell the halves of characters that still wait for their other half, as U+FFFD."""
        self.think(self._thoughts.rest(), events)
        self.say(self.words.rest(), events)

    def start(self, reported: Reported | None = None) -> ChatStart:
        """Return the first event, once."""
        self.started = True
        return ChatStart(self._model(), self.asked.provider, self.response_id, reported)

    def end(self, reasons: dict[str, StopReason], reported: Reported) -> list[ChatEvent]:
        """Return what is left to tell of calls, `ToolCallReady` for each that may run, then `ChatEnd`.

        Raises StreamBroken without a finish reason, Refused for a refusal or a filter, ProviderError for a turn the
        model got wrong; each carries the usage.
        """
        events: list[ChatEvent] = []
        self.flush(events)
        raw, usage = self.reason, reported.usage
        if raw is None:
            raise with_usage(StreamBroken("The answer ended before its end marker; it may be incomplete."), usage)
        stop = reasons.get(raw) or reasons.get(raw.lower(), "stop")
        text = "".join(self.text)
        if self.refusal or stop in ("refusal", "content_filter"):
            raise with_usage(self._refused("".join(self.refusal) or text, stop, raw), usage)
        cap = self.asked.max_tokens
        truncated = stop in TRUNCATIONS
        cut = truncated or (cap is not None and usage.output_tokens is not None and usage.output_tokens >= cap)
        try:
            calls, told = self.calls.finish(cut=cut)
            self._check_empty(stop, text, calls, usage)
        except ProviderError as error:
            raise with_usage(error, usage) from None
        if cut and sum(isinstance(event, ToolCallReady) for event in told) < len(calls):
            stop = stop if truncated else "length"
        elif not truncated and calls:
            stop = "tool_calls"
        elif stop == "tool_calls":
            stop = "stop"
        message = AssistantMessage(text, calls, "".join(self.reasoning), tuple(self.opaque))
        return [*events, *told, ChatEnd(self._response(message, reported, stop, raw))]

    def _response(self, message: AssistantMessage, reported: Reported, stop: StopReason, raw: str) -> ChatResponse:
        asked = self.asked
        return ChatResponse(
            message,
            reported.usage,
            stop_reason=stop,
            raw_stop_reason=raw,
            model=self._model(),
            provider=asked.provider,
            response_id=self.response_id,
            request_id=asked.request_id,
            service_tier=reported.service_tier,
            adjustments=asked.adjustments,
            rate_limit=asked.rate_limit,
            raw_usage=reported.raw,
            billing=reported.billing,
        )

    def _model(self) -> str:
        return (self.model if self.asked.report_model else "") or self.asked.model

    def _refused(self, text: str, stop: StopReason, raw: str) -> Refused:
        what = "A content filter cut the answer" if stop == "content_filter" else "The model refused to answer"
        why = self.explanation or text
        error = Refused(f"{what}: {why[:200]}" if why else f"{what}.", text=text or self.explanation)
        error.code = self.category or raw
        return error

    def _check_empty(self, stop: StopReason, text: str, calls: tuple[ToolCall, ...], usage: Usage) -> None:
        if calls or text:
            return
        if stop == "tool_calls":
            raise malformed_turn("it ends for tool calls and has none")
        if self.asked.after_tools and usage.output_tokens == 0 and stop == "stop" and not self.reasoning:
            raise malformed_turn("an empty answer of 0 tokens follows the tools' results")


def with_usage(error: ProviderError, usage: Usage) -> ProviderError:
    """Return the error with the usage on it as plain data, when any is known."""
    if usage.input_tokens is not None or usage.output_tokens is not None:
        error.usage = msgspec.to_builtins(usage)
    return error
