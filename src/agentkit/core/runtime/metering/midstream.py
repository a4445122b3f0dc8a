"""The end of an answer that outgrows what a budget has left for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentkit.core.contracts import ChatEnd, ChatEvent, TextDelta
from agentkit.core.runtime.metering.attempt import Attempt, resize
from agentkit.core.runtime.metering.capping import quote_of
from agentkit.errors import MeterExceeded

__all__ = ["within_ceilings"]

_AHEAD = 32  # tokens by which an answer's bound grows at a time


def within_ceilings(attempt: Attempt, events: AsyncGenerator[ChatEvent, None]) -> AsyncGenerator[ChatEvent, None]:
    """Return the answer's events, cut where they cross the ceiling of a meter with `stop_midstream`."""
    if any(getattr(each, "stop_midstream", False) for each in attempt.limiting):
        return _until_crossed(attempt, events)
    return events


async def _until_crossed(attempt: Attempt, events: AsyncGenerator[ChatEvent, None]) -> AsyncGenerator[ChatEvent, None]:
    """Pass an answer on while what it has likely cost fits; its bound grows with it once it is longer than expected.

    Raises MeterExceeded, with the text so far in `partial`, after the stream was closed; an error of closing is its
    cause.
    """
    text: list[str] = []
    quote = attempt.call.quote
    room = 0 if quote is None else 4 * quote.output_tokens
    try:
        async for event in events:
            if type(event) is TextDelta:
                text.append(event.text)
            yield event
            if attempt.heard > room and type(event) is not ChatEnd:
                crossing = _grow(attempt)
                if crossing is not None:
                    crossing.partial = "".join(text)
                    await _close(events, crossing)
                    raise crossing
                room = attempt.heard + 4 * _AHEAD
    finally:
        await events.aclose()


def _grow(attempt: Attempt) -> MeterExceeded | None:
    quote = attempt.call.quote
    if quote is None:
        return None
    larger = quote_of(attempt.bounds, quote.input_tokens, -(-attempt.heard // 4) + _AHEAD)
    for each in attempt.limiting:
        outgrown = getattr(each, "outgrown", None)
        verdict = None if outgrown is None else outgrown(attempt.call, larger)
        if verdict is not None:
            stops = getattr(each, "on_exceeded", "raise") == "stop"
            return MeterExceeded(f"the answer was cut: {verdict.reason}", axis=verdict.axis, suspends=stops)
    resize(attempt, larger)
    return None


async def _close(events: AsyncGenerator[ChatEvent, None], crossing: MeterExceeded) -> None:
    try:
        await events.aclose()
    except Exception as error:
        raise crossing from error
