"""What a transcript says."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.core.contracts import AssistantMessage, Message, ToolMessage

__all__ = ["NOT_RUN", "last_text"]

NOT_RUN = "Not run: no tool may be used here."


def last_text(messages: Sequence[Message], turns: int) -> str:
    """Return the text of the last answer, whole when the model paused in it; "" when the last word was not the model's.

    `turns` are those of this run: a part from before it is no part of its answer.
    """
    if (
        len(messages) > 1
        and isinstance(messages[-1], AssistantMessage)
        and not isinstance(messages[-2], AssistantMessage)
    ):
        return messages[-1].content
    parts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and len(parts) < max(1, turns):
            parts.append(message.content)
        elif parts or not isinstance(message, ToolMessage) or message.content != NOT_RUN:
            break
    return parts[0] if len(parts) == 1 else "".join(reversed(parts))
