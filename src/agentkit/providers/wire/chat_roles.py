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
    given = messages
    if profile.empty_assistant == "drop":
        messages = _without_empty(messages)
        if len(messages) < len(given):
            _tell(changes, "empty answers", f"{profile.name} refuses them; left out")
    if profile.roles in ("system_first", "alternate"):
        before, messages = messages, _system_first(messages)
        if sum(isinstance(one, UserMessage) for one in messages) > sum(isinstance(one, UserMessage) for one in before):
            _tell(changes, "system messages", f"{profile.name} takes them at the start; later ones went as the user's")
    if profile.roles == "alternate":
        messages = _joined(messages)
    elif profile.roles == "assistant_after_tools":
        before, messages = messages, _answered(messages)
        if len(messages) > len(before):
            _tell(
                changes, "messages after results", f"{profile.name} wants an answer before them; {_BETWEEN.content!r}"
            )
    return messages


def _tell(changes: list[Adjustment], what: str, why: str) -> None:
    changes.append(Adjustment("history", what, why))


def _without_empty(messages: Sequence[Message]) -> Sequence[Message]:
    if not any(isinstance(message, AssistantMessage) and _is_empty(message) for message in messages):
        return messages
    return [message for message in messages if not (isinstance(message, AssistantMessage) and _is_empty(message))]


def _is_empty(message: AssistantMessage) -> bool:
    return not message.content and not message.tool_calls


def _system_first(messages: Sequence[Message]) -> Sequence[Message]:
    """Return one system message at the start, and what comes later in its place as the user's."""
    first = 0
    while first < len(messages) and isinstance(messages[first], SystemMessage):
        first += 1
    later = any(isinstance(message, SystemMessage) for message in messages[first:])
    if first <= 1 and not later:
        return messages
    texts = [message.content for message in messages[:first] if isinstance(message, SystemMessage)]
    start = [SystemMessage("\n\n".join(texts))] if texts else []
    rest = [
        UserMessage(message.content) if isinstance(message, SystemMessage) else message for message in messages[first:]
    ]
    return [*start, *rest]


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


def _answered(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with a short answer wherever the user speaks right after a tool's result."""
    arranged: list[Message] = []
    for message in messages:
        if isinstance(message, UserMessage) and arranged and isinstance(arranged[-1], ToolMessage):
            arranged.append(_BETWEEN)
        arranged.append(message)
    return arranged
