"""One scripted turn of a model, whatever the protocol, and the frames it is told in."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from agentkit.core.contracts import JsonValue, StopReason, ToolCall, Usage

__all__ = ["Turn", "cut", "sse"]


class Turn(Struct, frozen=True, kw_only=True):
    """What the model says: `text` and each call's arguments are cut into deltas of `size` characters.

    `reasoning` comes before the text; with the Messages protocol it is a thinking block signed with `signature`, with
    Responses a summary whose item carries `signature` as its encrypted content.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    signature: str = "c2lnbmVk"
    usage: Usage = Usage(12, 7)
    stop: StopReason | None = None
    model: str = "loopback-model"
    size: int = 5

    @property
    def reason(self) -> StopReason:
        """Return the stop reason: the given one, else the one the calls imply."""
        return self.stop or ("tool_calls" if self.calls else "stop")


def sse(data: JsonValue, event: str = "") -> bytes:
    """Return one server-sent event; text that is no JSON goes out as it is."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def cut(text: str, size: int) -> Iterator[str]:
    """Yield the text in pieces of `size` characters."""
    for start in range(0, len(text), size):
        yield text[start : start + size]
