"""How the provider checks reach a model: a scripted server, one call, its events or its error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol, TypeAlias, TypeVar

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    LLMPort,
    Message,
    ModelSettings,
    Route,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.testing.context import make_context
from agentkit.testing.loopback import Given, LoopbackServer, Received
from agentkit.testing.turns import Turn

__all__ = [
    "CALLS",
    "EVENT_STREAM",
    "TURN",
    "Check",
    "Host",
    "MakeModel",
    "call_of",
    "closing",
    "end_of",
    "events_of",
    "raises",
    "served",
]

MakeModel: TypeAlias = Callable[[str], LLMPort]
Host: TypeAlias = type[LoopbackServer]
E = TypeVar("E", bound=Exception)

EVENT_STREAM = {"content-type": "text/event-stream"}
CALLS = (ToolCall("call_1", "add", '{"a": 1, "b": "é\\n"}'), ToolCall("call_2", "add", '{"a": 2}'))
TURN = Turn(
    text="It is forty two, naïvely.", reasoning="Six sevens.", calls=CALLS, usage=Usage(20, 9, cache_read_tokens=8)
)
_TOOL = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})


class Check(Protocol):
    """One check of a model port; `host` is the kind of scripted server it runs against."""

    __name__: str

    def __call__(self, make: MakeModel, host: Host = LoopbackServer) -> Awaitable[None]:
        """Raise AssertionError naming what the model port does wrong."""
        ...


@asynccontextmanager
async def served(
    make: MakeModel, given: Given | Callable[[Received], Given], host: Host
) -> AsyncGenerator[tuple[LLMPort, LoopbackServer], None]:
    """Give a model of a server that answers so, and the server; both are closed on exit."""
    script = given if callable(given) else [given]
    async with host(script) as server, closing(make(server.url)) as model:
        yield model, server


@asynccontextmanager
async def closing(model: LLMPort) -> AsyncGenerator[LLMPort, None]:
    """Give the model and close it on exit, when it can be closed."""
    try:
        yield model
    finally:
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()


def call_of(model: LLMPort, *, stream: bool = True, messages: tuple[Message, ...] = ()) -> Call[ChatRequest]:
    """Return a call with one tool, at most 100 tokens and these messages."""
    settings = ModelSettings(max_tokens=100)
    request = ChatRequest(messages or (UserMessage("What is 6 * 7?"),), (_TOOL,), settings=settings, stream=stream)
    return Call(make_context(model), request, "call-1", Route(model, "loopback-model", "loopback"))


async def events_of(model: LLMPort, *, stream: bool = True, messages: tuple[Message, ...] = ()) -> list[ChatEvent]:
    """Return all events of one call."""
    async with aclosing(model.stream(call_of(model, stream=stream, messages=messages))) as events:
        return [event async for event in events]


async def raises(kind: type[E], model: LLMPort, *, messages: tuple[Message, ...] = ()) -> E:
    """Return the error of this kind that one call raises; any other outcome is an AssertionError."""
    try:
        events = await events_of(model, messages=messages)
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{kind.__name__} was due, not {error!r}") from error
    raise AssertionError(f"{kind.__name__} was due, not the answer {events[-1]!r}")


def end_of(events: list[ChatEvent]) -> ChatResponse:
    """Return the response of the last event."""
    end = events[-1]
    assert isinstance(end, ChatEnd), f"the last event is {end!r}, not ChatEnd"
    return end.response
