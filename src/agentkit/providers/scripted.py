"""A deterministic model: answers what it was told to, in order, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import repeat
from typing import Final, TypeAlias

from msgspec import Struct

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    OpaqueItem,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    Usage,
)
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.core.runtime.metering.estimate import request_tokens, text_tokens
from agentkit.errors import ConfigurationError

__all__ = ["Fault", "Hang", "Reply", "Script", "ScriptedModel"]


class Reply(Struct, frozen=True):
    """One whole answer.

    Without `usage` tokens are estimated from the request and the text. `chunk` is the characters of a text delta
    (None: word by word), `delay` and `pause` are seconds before the first event and between later ones.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    chunk: int | None = None
    delay: float = 0.0
    model: str = ""
    opaque: tuple[OpaqueItem, ...] = ()
    pause: float = 0.0


class Fault(Struct, frozen=True):
    """Raises `error` after that many events of `reply`; ChatStart is the first one, 0 fails before it."""

    error: Exception
    after: int = 0
    reply: Reply = Reply("one two three four five six seven eight nine ten")


class Hang(Struct, frozen=True):
    """Never answers: after that many events of `reply` it waits until it is closed or cancelled."""

    after: int = 0
    reply: Reply = Reply("one two three four five six seven eight nine ten")


Answer: TypeAlias = "str | ToolCall | Sequence[str | ToolCall] | Reply | Fault | Hang | Exception"
Script: TypeAlias = "Answer | Callable[[ChatRequest], Answer]"


class _Play(Struct, frozen=True):
    """A reply made ready: its events between start and end, its message, and where it stops early."""

    reply: Reply
    events: tuple[ChatEvent, ...]
    message: AssistantMessage
    output_tokens: int
    stop_reason: StopReason
    cut: int = -1
    error: Exception | None = None


class ScriptedModel:
    """Plays `replies`, one a call.

    A reply is text, a tool call, a list of both, Reply, Fault, Hang, an exception to raise, or a function of the
    request that returns any of these. Keeps every request in `requests`, every call in `calls`, and counts
    `open_streams`. Raises ConfigurationError when asked more often than scripted, unless `repeat_last`. `clock` times
    delays. Costs exactly 0 where nobody sets a price; it holds nothing to close.
    """

    provider: Final = "scripted"
    free: Final = True

    def __init__(
        self,
        replies: Sequence[Script] | Callable[[ChatRequest], Answer] | str,
        *,
        name: str = "scripted",
        clock: Clock | None = None,
        repeat_last: bool = False,
    ) -> None:
        single = isinstance(replies, str) or callable(replies)
        scripts: list[Script] = [replies] if single else list(replies)  # type: ignore[list-item, arg-type]
        if repeat_last and not scripts:
            raise ConfigurationError("ScriptedModel(replies=[], repeat_last=True): there is no last reply to repeat.")
        self.name = name
        self.requests: list[ChatRequest] = []
        self.calls: list[Call[ChatRequest]] = []
        self.open_streams = 0
        self._clock = clock or SYSTEM_CLOCK
        self._count = len(scripts)
        self._plays = [script if callable(script) else _prepare(script) for script in scripts]
        self._rest = iter(repeat(self._plays[-1])) if repeat_last or callable(replies) else None

    async def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of the next reply."""
        request = call.request
        self.calls.append(call)
        self.requests.append(request)
        play = self._next(request)
        self.open_streams += 1
        try:
            if play.cut >= 0 or play.reply.delay or play.reply.pause:
                async with aclosing(self._slowly(call, play)) as events:
                    async for event in events:
                        yield event
                return
            start, end = self._frame(call, play)
            yield start
            for event in play.events:
                yield event
            yield end
        finally:
            self.open_streams -= 1

    async def _slowly(self, call: Call[ChatRequest], play: _Play) -> AsyncGenerator[ChatEvent, None]:
        """Yield events with their waits, up to where the script breaks off."""
        reply = play.reply
        if reply.delay:
            await self._clock.sleep(reply.delay)
        start, end = self._frame(call, play)
        for index, event in enumerate((start, *play.events, end)):
            if index == play.cut:
                break
            if index and reply.pause:
                await self._clock.sleep(reply.pause)
            yield event
        if play.error is not None:
            raise play.error.with_traceback(None)
        if play.cut >= 0:
            await asyncio.get_running_loop().create_future()

    def _next(self, request: ChatRequest) -> _Play:
        asked = len(self.requests)
        if asked <= self._count:
            script = self._plays[asked - 1]
        elif self._rest is not None:
            script = next(self._rest)
        else:
            raise ConfigurationError(
                f"ScriptedModel({self.name!r}) has {self._count} replies and was asked for number {asked}; "
                "script one more, or pass repeat_last=True."
            )
        play = script if isinstance(script, _Play) else _prepare(script(request))
        limit = request.settings.max_tokens
        if limit is not None and play.output_tokens > limit and play.reply.usage is None:
            return _capped(play, limit)
        return play

    def _frame(self, call: Call[ChatRequest], play: _Play) -> tuple[ChatStart, ChatEnd]:
        model = play.reply.model or ("" if call.route is None else call.route.model) or self.name
        response_id = f"{self.name}-{len(self.requests)}"
        usage = play.reply.usage
        if usage is None:
            usage = Usage(_input_tokens(call), play.output_tokens, 0, 0, 0, text_tokens(play.reply.reasoning))
        response = ChatResponse(
            play.message, usage, play.stop_reason, play.stop_reason, model, self.provider, response_id
        )
        return ChatStart(model, self.provider, response_id), ChatEnd(response)


def _input_tokens(call: Call[ChatRequest]) -> int:
    """Return the request's likely tokens, out of the run's account where it has weighed the history before."""
    account = getattr(call.ctx, "account", None)
    return request_tokens(call.request) if account is None else int(account.estimate_input(call.request))


def _prepare(script: Answer) -> _Play:
    if isinstance(script, Exception):
        return _ready(Reply(), 0, script)
    if isinstance(script, Fault):
        return _ready(script.reply, script.after, script.error)
    if isinstance(script, Hang):
        return _ready(script.reply, script.after, None)
    return _ready(_as_reply(script), -1, None)


def _as_reply(script: str | ToolCall | Sequence[str | ToolCall] | Reply) -> Reply:
    if isinstance(script, Reply):
        return script
    parts = [script] if isinstance(script, (str, ToolCall)) else script
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, (str, ToolCall)) for part in parts):
        raise ConfigurationError(
            f"ScriptedModel cannot play {script!r}: pass text, a ToolCall, a list of both, Reply, Fault, Hang, an "
            "exception instance, or a function of the request."
        )
    text = "".join(part for part in parts if isinstance(part, str))
    return Reply(text, tuple(part for part in parts if isinstance(part, ToolCall)))


def _ready(reply: Reply, cut: int, error: Exception | None) -> _Play:
    events: list[ChatEvent] = []
    if reply.reasoning:
        events.append(ReasoningDelta(reply.reasoning))
    events += [TextDelta(piece) for piece in _pieces(reply.text, reply.chunk)]
    for index, wish in enumerate(reply.tool_calls):
        events.append(ToolCallDelta(index, wish.id, wish.name, wish.arguments))
        events.append(ToolCallReady(index, wish))
    message = AssistantMessage(reply.text, reply.tool_calls, reply.reasoning, reply.opaque)
    tokens = text_tokens(reply.text) + text_tokens(reply.reasoning)
    tokens += sum(text_tokens(wish.name) + text_tokens(wish.arguments) for wish in reply.tool_calls)
    stop: StopReason = reply.stop_reason or ("tool_calls" if reply.tool_calls else "stop")
    return _Play(reply, tuple(events), message, tokens, stop, cut, error)


def _pieces(text: str, chunk: int | None) -> list[str]:
    if not text:
        return []
    if chunk is not None:
        return [text[start : start + chunk] for start in range(0, len(text), max(1, chunk))]
    pieces = text.split(" ")
    return [f"{piece} " for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _capped(play: _Play, limit: int) -> _Play:
    """Return the play as a provider would cut it at the request's own output cap."""
    reply = play.reply
    text = reply.text[: limit * 4]
    while text and text_tokens(text) > limit:
        text = text[:-1] if text.isascii() else text[:limit]
    cut = Reply(text, (), "", None, "length", reply.chunk, reply.delay, reply.model, (), reply.pause)
    return _ready(cut, play.cut, play.error)
