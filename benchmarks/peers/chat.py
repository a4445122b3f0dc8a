"""The Chat Completions words a bare loop needs, as msgspec types, shared by both bare loops."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.task import INSTRUCTIONS, MODEL, PROMPT, TOOL_SPEC, Lookup


class Function(msgspec.Struct):
    """The name and the JSON text of a call's arguments."""

    name: str
    arguments: str


class Call(msgspec.Struct):
    """A tool call."""

    id: str
    function: Function
    type: str = "function"


class Message(msgspec.Struct, omit_defaults=True):
    """An assistant message."""

    role: str
    content: str | None = None
    tool_calls: list[Call] = []


class Choice(msgspec.Struct):
    """One choice of a whole answer."""

    message: Message
    finish_reason: str


class Usage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int


class Completion(msgspec.Struct):
    """A whole answer."""

    choices: list[Choice]
    usage: Usage


class Delta(msgspec.Struct):
    """A piece of a streamed message."""

    content: str | None = None


class ChunkChoice(msgspec.Struct):
    """One choice of a piece."""

    delta: Delta
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One server-sent event."""

    choices: list[ChunkChoice]
    usage: Usage | None = None


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """The tool's arguments."""

    key: str


encode = msgspec.json.Encoder().encode
decode_completion = msgspec.json.Decoder(Completion).decode
decode_chunk = msgspec.json.Decoder(Chunk).decode
decode_arguments = msgspec.json.Decoder(Arguments).decode


def opening(*, tools: bool) -> dict[str, Any]:
    """Return the first request's body."""
    user = {"role": "user", "content": PROMPT}
    if not tools:
        return {"model": MODEL, "messages": [user]}
    return {"model": MODEL, "messages": [{"role": "system", "content": INSTRUCTIONS}, user], "tools": [TOOL_SPEC]}


async def answer_calls(message: Message, lookup: Lookup, messages: list[Any]) -> None:
    """Append the message and one tool message a call."""
    messages.append(message)
    for call in message.tool_calls:
        result = await lookup(decode_arguments(call.function.arguments).key)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


class StreamText:
    """Splits server-sent events off the bytes of a stream and counts the text in them."""

    def __init__(self) -> None:
        self.characters = 0
        self.usage: Usage | None = None
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes as they came."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            payload = event[6:]
            if payload == b"[DONE]":
                return
            chunk = decode_chunk(payload)
            if chunk.usage is not None:
                self.usage = chunk.usage
            for choice in chunk.choices:
                self.characters += len(choice.delta.content or "")
