"""The rules of a conversation that every model holds: clean text, and each call answered once, right after its turn."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agentkit.core.contracts.events import Adjustment
from agentkit.core.contracts.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
)
from agentkit.core.contracts.text import clean_text
from agentkit.errors import ConfigurationError

__all__ = ["NO_RESULT", "check_history", "clean_message", "repair_history"]

NO_RESULT = "No result was recorded for this call; it may or may not have run."
_MOST_NAMED = 3


def clean_message(message: Message) -> Message:
    """Return the message with NULs and lone surrogates in its texts replaced; a clean one is returned itself."""
    content = message.content
    cleaned = clean_text(content) if isinstance(content, str) else tuple(_clean_part(part) for part in content)
    if cleaned != content:
        message = replace(message, content=cleaned)
    if isinstance(message, AssistantMessage):
        calls = tuple(_clean_call(call) for call in message.tool_calls)
        reasoning = clean_text(message.reasoning)
        if calls != message.tool_calls or reasoning != message.reasoning:
            message = replace(message, tool_calls=calls, reasoning=reasoning)
    elif isinstance(message, ToolMessage):
        call_id = clean_text(message.call_id)  # as the id of its call is cleaned, so that they still meet
        message = message if call_id == message.call_id else replace(message, call_id=call_id)
    return message


def check_history(messages: Sequence[Message]) -> set[str] | None:
    """Return the ids of all calls of a sound conversation, None when it needs repair.

    It is sound when calls have names and ids of their own and each has its one result directly after its turn.
    """
    seen: set[str] = set()
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in waiting:
                return None
            waiting.remove(message.call_id)
        elif waiting:
            return None
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            before = len(seen)
            for call in message.tool_calls:
                if not call.id or not call.name:
                    return None
                waiting.add(call.id)
            seen |= waiting
            if len(seen) - before != len(message.tool_calls):
                return None
    return None if waiting else seen


def repair_history(messages: Sequence[Message]) -> tuple[Sequence[Message], tuple[Adjustment, ...]]:
    """Return the conversation with every call answered once directly after its turn, and what had to be done for that.

    A call without a result gets one that says so; a call without a name, which no model takes, is left out with its
    result; ids that repeat become unique; late results move to their turn. A sound conversation is returned itself.
    Raises ConfigurationError for an empty conversation and for a result without a call.
    """
    if messages and check_history(messages) is not None:
        return messages, ()
    repair = _Repair(messages)
    repair.walk()
    if not repair.repaired:
        raise ConfigurationError("messages is empty, or holds nothing that can be sent; give at least one message.")
    return tuple(repair.repaired), repair.told()


class _Repair:
    """One pass over a conversation; what it did is kept by kind."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.repaired: list[Message] = []
        self._messages = messages
        self._seen: set[str] = set()
        self._used: set[int] = set()
        self._unanswered: list[str] = []
        self._renamed: list[str] = []
        self._nameless: list[str] = []
        self._moved: list[str] = []

    def walk(self) -> None:
        for place, message in enumerate(self._messages):
            if isinstance(message, AssistantMessage) and message.tool_calls:
                self._turn(place, message)
            elif not isinstance(message, ToolMessage):
                self.repaired.append(message)
        for place, message in enumerate(self._messages):
            if isinstance(message, ToolMessage) and place not in self._used:
                raise ConfigurationError(
                    f"messages[{place}] is a tool result for call {message.call_id!r}, which no earlier message makes "
                    "or which has its answer already; remove it, or keep the assistant message with the call."
                )

    def told(self) -> tuple[Adjustment, ...]:
        made = (
            (self._unanswered, "without a result", "got a result that says that none was recorded"),
            (self._nameless, "without a name", "left out with its result: no model takes it back"),
            (self._renamed, "with an id that is missing or not its own", "got an id of its own"),
            (self._moved, "answered late", "its result was moved to directly after its turn"),
        )
        return tuple(Adjustment("history", f"{_calls(ids)} {what}", why) for ids, what, why in made if ids)

    def _turn(self, place: int, message: AssistantMessage) -> None:
        calls: list[ToolCall] = []
        answers: list[ToolMessage] = []
        results = self._results_after(place)
        for given in message.tool_calls:
            result = self._result_of(given, results)
            if not given.name:
                self._nameless.append(given.id)
                continue
            call = self._unique(given)
            calls.append(call)
            if result is None:
                self._unanswered.append(call.id)
                result = ToolMessage(call.id, NO_RESULT, call.name, is_error=True)
            answers.append(result if call.id == result.call_id else replace(result, call_id=call.id))
        if calls or message.content:
            kept = tuple(calls)
            self.repaired.append(message if kept == message.tool_calls else replace(message, tool_calls=kept))
        self.repaired += answers

    def _results_after(self, place: int) -> list[int]:
        """Return the places of the tool results between this turn and the model's next one."""
        places: list[int] = []
        for number in range(place + 1, len(self._messages)):
            message = self._messages[number]
            if isinstance(message, AssistantMessage):
                break
            if isinstance(message, ToolMessage):
                places.append(number)
        return places

    def _result_of(self, given: ToolCall, results: Sequence[int]) -> ToolMessage | None:
        for place in results:
            result = self._messages[place]
            if isinstance(result, ToolMessage) and place not in self._used and result.call_id == given.id:
                self._used.add(place)
                if not isinstance(self._messages[place - 1], (AssistantMessage, ToolMessage)):
                    self._moved.append(given.id)
                return result
        return None

    def _unique(self, call: ToolCall) -> ToolCall:
        wish, number = call.id, 1
        while not wish or wish in self._seen:
            number += 1
            wish = f"{call.id or 'call'}-{number}"
        self._seen.add(wish)
        if wish == call.id:
            return call
        self._renamed.append(call.id)
        return replace(call, id=wish)


def _calls(ids: Sequence[str]) -> str:
    named = ", ".join(repr(each) for each in ids[:_MOST_NAMED])
    more = ", ..." if len(ids) > _MOST_NAMED else ""
    return f"{len(ids)} {'call' if len(ids) == 1 else 'calls'} ({named}{more})"


def _clean_part(part: Part) -> Part:
    if isinstance(part, TextPart):
        text = clean_text(part.text)
        return part if text == part.text else TextPart(text)
    url = clean_text(part.url)
    if isinstance(part, ImagePart):
        return part if url == part.url else replace(part, url=url)
    name = clean_text(part.name)
    return part if (url, name) == (part.url, part.name) else replace(part, url=url, name=name)


def _clean_call(call: ToolCall) -> ToolCall:
    cleaned = ToolCall(clean_text(call.id), clean_text(call.name), clean_text(call.arguments))
    return call if cleaned == call else cleaned
