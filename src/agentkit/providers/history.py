"""The rules of a conversation that every server holds: each call is answered once, right after its turn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec.structs import replace

from agentkit.core.contracts import AssistantMessage, Message, ToolCall, ToolMessage
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import CallIdStyle

__all__ = ["NO_RESULT", "guard_history", "repair_history", "wire_id"]

NO_RESULT = "No result was recorded for this call; it may or may not have run."
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def guard_history(messages: Sequence[Message]) -> tuple[Sequence[Message], set[str]]:
    """Return the messages, repaired where a call has no answer, and the ids of all calls in them.

    Raises ConfigurationError for an empty conversation and for a result that answers no call.
    """
    if not messages:
        raise ConfigurationError("messages is empty; give at least one message.")
    seen: set[str] = set()
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in waiting:
                break
            waiting.remove(message.call_id)
        elif waiting:
            break
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            before = len(seen)
            waiting.update([call.id for call in message.tool_calls])
            seen |= waiting
            if len(seen) - before != len(message.tool_calls):
                break
    else:
        if not waiting:
            return messages, seen
    repaired = repair_history(messages)
    return repaired, {
        call.id for message in repaired if isinstance(message, AssistantMessage) for call in message.tool_calls
    }


def repair_history(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with every call answered once in the messages right after it, and unique call ids.

    A call without a result gets one that says so. Raises ConfigurationError for a result without a call.
    """
    repaired: list[Message] = []
    seen: set[str] = set()
    used: set[int] = set()
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = tuple(_unique(call, seen) for call in message.tool_calls)
            repaired.append(replace(message, tool_calls=calls) if calls != message.tool_calls else message)
            results = _results_after(messages, place)
            for given, call in zip(message.tool_calls, calls, strict=True):
                repaired.append(_answer(messages, results, used, given, call))
        elif not isinstance(message, ToolMessage):
            repaired.append(message)
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage) and place not in used:
            raise ConfigurationError(
                f"messages[{place}] is a tool result for call {message.call_id!r}, which no earlier message makes or "
                "which has its answer already; remove it, or keep the assistant message with the call."
            )
    return tuple(repaired)


def _results_after(messages: Sequence[Message], place: int) -> list[int]:
    """Return the places of the tool results between this turn and the model's next one."""
    places: list[int] = []
    for number in range(place + 1, len(messages)):
        if isinstance(messages[number], AssistantMessage):
            break
        if isinstance(messages[number], ToolMessage):
            places.append(number)
    return places


def _answer(
    messages: Sequence[Message], results: Sequence[int], used: set[int], given: ToolCall, call: ToolCall
) -> ToolMessage:
    for place in results:
        result = messages[place]
        if isinstance(result, ToolMessage) and place not in used and result.call_id == given.id:
            used.add(place)
            return result if call.id == given.id else replace(result, call_id=call.id)
    return ToolMessage(call.id, NO_RESULT, call.name, is_error=True)


def _unique(call: ToolCall, seen: set[str]) -> ToolCall:
    wish, number = call.id or "call", 1
    while not call.id or wish in seen:
        number += 1
        wish = f"{call.id or 'call'}-{number}"
        if wish not in seen:
            break
    seen.add(wish)
    return call if wish == call.id else replace(call, id=wish)


def wire_id(given: str, style: CallIdStyle) -> str:
    """Return the call id in the form a server takes: itself where it fits, else a digest of it."""
    if style == "any" or (_NINE if style == "nine" else _WORD).fullmatch(given):
        return given
    number = int.from_bytes(hashlib.blake2b(given.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    letters = ""
    for _ in range(9):
        number, rest = divmod(number, 36)
        letters += _DIGITS[rest]
    return letters
