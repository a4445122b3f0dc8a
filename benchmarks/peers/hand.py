"""The floor in process: a typed loop by hand with validated arguments, a task group a turn, and events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from benchmarks.peers.base import Contender
from benchmarks.task import ANSWER, ARGUMENTS, INSTRUCTIONS, PROMPT, TOOL_NAME


class Call(msgspec.Struct, frozen=True):
    """A tool call."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """Any message."""

    role: str
    content: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a turn."""

    turn: int
    kind: str
    message: Message


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """The tool's arguments."""

    key: str


_decode = msgspec.json.Decoder(Arguments).decode


async def model(messages: list[Message], turns: int) -> Message:
    """Play the scripted model."""
    turn = len(messages) // 2 - 1
    if turn < turns:
        return Message("assistant", calls=(Call(f"call_{turn}", TOOL_NAME, ARGUMENTS),))
    return Message("assistant", ANSWER)


class Hand(Contender):
    """A typed loop by hand over a scripted model."""

    async def _tool(self, call: Call) -> Message:
        result = await self.lookup(_decode(call.arguments).key)
        return Message("tool", result, call_id=call.id)

    async def _events(self, turns: int) -> AsyncGenerator[Event, None]:
        messages = [Message("system", INSTRUCTIONS), Message("user", PROMPT)]
        for turn in range(self.max_turns):
            answer = await model(messages, turns)
            messages.append(answer)
            yield Event(turn, "model", answer)
            if not answer.calls:
                return
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._tool(call)) for call in answer.calls]
            for task in tasks:
                messages.append(task.result())
                yield Event(turn, "tool", task.result())

    async def in_process(self, turns: int) -> str:
        text = ""
        async with aclosing(self._events(turns)) as events:
            async for event in events:
                text = event.message.content
        return text
