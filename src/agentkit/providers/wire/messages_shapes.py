"""The events of the Messages protocol as far as they are read."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from agentkit.core.contracts import JsonValue

__all__ = [
    "AnyDelta",
    "Delta",
    "Event",
    "Input",
    "Piece",
    "Whole",
    "read_content",
    "read_event",
    "read_input",
    "read_piece",
]


class Delta(Struct):
    """A piece of a block."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: JsonValue = None


class AnyDelta(Delta):
    """A piece, or how the message ends."""

    stop_reason: str | None = None
    stop_details: JsonValue = None
    container: JsonValue = None


class Event(Struct):
    """Any event; what only some of them bring is left as bytes."""

    type: str = ""
    index: int = 0
    delta: AnyDelta | None = None
    content_block: Raw = Raw(b"null")
    message: Raw = Raw(b"null")
    usage: Raw = Raw(b"null")


class Piece(Struct):
    """The event that most of a stream consists of."""

    type: str = ""
    index: int = 0
    delta: Delta | None = None


class Whole(Struct):
    """The blocks of an answer that was not streamed."""

    content: list[Raw] = []


class Input(Struct):
    """The input of a call as it was written."""

    input: Raw = Raw(b"{}")


read_piece = msgspec.json.Decoder(Piece).decode
read_event = msgspec.json.Decoder(Event).decode
read_input = msgspec.json.Decoder(Input).decode
read_content = msgspec.json.Decoder(Whole).decode
