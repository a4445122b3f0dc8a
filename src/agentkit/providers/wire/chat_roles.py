"""Brings a conversation into the order of roles that a server takes, and says what that changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeGuard

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from agentkit.providers.profiles import Profile

__all__ = ["arranged"]

_BETWEEN: Final = AssistantMessage("OK.")


def arranged(messages: Sequence[Message], profile: Profile, changes: list[Adjustment]) -> Sequence[Message]:
    """Return the messages in the profile's order; the very same sequence where nothing is to be done."""
    if profile.empty_assistant == "drop" and _has_empty(messages):
        messages = [message for message in messages if not _is_empty(message)]
        _tell(changes, "empty answers", f"{profile.name} refuses them; left out")
    if profile.roles in ("system_first", "alternate"):
        first = _systems_at_start(messages)
        later = _has_system(messages, first)
        if later:
            _tell(changes, "system messages", f"{profile.name} takes them at the start; later ones went as the user's")
        if later or first > 1:
            messages = _system_first(messages, first)
    if profile.roles == "alternate":
        return _joined(messages)
    if profile.roles == "assistant_after_tools" and (places := _places_after_results(messages)):
        messages = list(messages)
        for place in reversed(places):
            messages.insert(place, _BETWEEN)
        _tell(changes, "messages after results", f"{profile.name} wants an answer before them; {_BETWEEN.content!r}")
    return messages


def _tell(changes: list[Adjustment], what: str, why: str) -> None:
    changes.append(Adjustment("history", what, why))


def _has_empty(messages: Sequence[Message]) -> bool:
    for message in messages:  # a generator costs several times a loop, at every turn
        if type(message) is AssistantMessage and not message.content and not message.tool_calls:
            return True
    return False


def _is_empty(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.content and not message.tool_calls


def _systems_at_start(messages: Sequence[Message]) -> int:
    first = 0
    while first < len(messages) and isinstance(messages[first], SystemMessage):
        first += 1
    return first


def _has_system(messages: Sequence[Message], start: int) -> bool:
    for message in messages[start:]:  # noqa: SIM110
        if type(message) is SystemMessage:
            return True
    return False


def _system_first(messages: Sequence[Message], first: int) -> Sequence[Message]:
    """Return one system message at the start, and what comes later in its place as the user's."""
    texts = [message.content for message in messages[:first] if isinstance(message, SystemMessage)]
    start = [SystemMessage("\n\n".join(texts))] if texts else []
    rest = [
        UserMessage(message.content) if isinstance(message, SystemMessage) else message for message in messages[first:]
    ]
    return [*start, *rest]


def _places_after_results(messages: Sequence[Message]) -> list[int]:
    """Return where the user speaks right after a tool's result."""
    places: list[int] = []
    after = False
    for place, message in enumerate(messages):
        if after and type(message) is UserMessage:
            places.append(place)
        after = type(message) is ToolMessage
    return places


def _joined(messages: Iterable[Message]) -> Sequence[Message]:
    """Return the messages with neighbours of one role joined, where both are the user's or plain answers."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            joined[-1] = UserMessage(_together(last.content, message.content))
        elif _is_plain(message) and _is_plain(last):
            joined[-1] = AssistantMessage("\n\n".join(filter(None, (last.content, message.content))))
        else:
            joined.append(message)
    return joined


def _is_plain(message: Message | None) -> TypeGuard[AssistantMessage]:
    return isinstance(message, AssistantMessage) and not message.tool_calls


def _together(first: str | tuple[Part, ...], second: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return (*_parts(first), *_parts(second))


def _parts(content: str | tuple[Part, ...]) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else content
