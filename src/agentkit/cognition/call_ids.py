"""The ids of a run's tool calls, which servers repeat or leave out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agentkit.core.contracts import AssistantMessage, Message, ToolCall

__all__ = ["CallIds"]


class CallIds:
    """Sees to it that each call of a transcript has an id of its own."""

    __slots__ = ("_known", "_transcript")

    def __init__(self, transcript: Sequence[Message]) -> None:
        self._transcript = transcript
        self._known = _ids_of(transcript)

    def own(self, message: AssistantMessage, turn: int) -> AssistantMessage:
        """Return the message that is about to join the transcript; calls without an id of their own get one."""
        ids, calls = self._known, message.tool_calls
        expected = len(ids) + len(calls)
        for call in calls:
            ids.add(call.id)
        return message if len(ids) == expected and "" not in ids else self._renamed(message, turn)

    def _renamed(self, message: AssistantMessage, turn: int) -> AssistantMessage:
        ids = self._known = _ids_of(self._transcript)
        renamed: list[ToolCall] = []
        changed = False
        for position, call in enumerate(message.tool_calls):
            fits = call.id and call.id not in ids
            own = call if fits else replace(call, id=_free_id(f"call_{turn}_{position}", ids))
            changed = changed or not fits
            ids.add(own.id)
            renamed.append(own)
        return replace(message, tool_calls=tuple(renamed)) if changed else message


def _ids_of(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}


def _free_id(wish: str, taken: set[str]) -> str:
    free, number = wish, 1
    while free in taken:
        number += 1
        free = f"{wish}_{number}"
    return free
