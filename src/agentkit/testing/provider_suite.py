"""What every provider has to hold, as checks that a test of your own model port runs against a scripted server.

@pytest.mark.parametrize("check", PROVIDER_CHECKS)
async def test_mine(check): await check(lambda url: MyModel(url))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias, TypeVar

import msgspec

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    LLMPort,
    Message,
    ModelSettings,
    ReasoningDelta,
    Route,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ConfigurationError,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamBroken,
)
from agentkit.testing.context import make_context
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer, Received
from agentkit.testing.turns import Protocol, Turn, protocol_of, sse, write_turn

__all__ = ["PROVIDER_CHECKS", "Check", "MakeModel", "check_provider"]

MakeModel: TypeAlias = Callable[[str], LLMPort]
Check: TypeAlias = Callable[[MakeModel], Awaitable[None]]
E = TypeVar("E", bound=Exception)

_SSE = {"content-type": "text/event-stream"}
_TOOL = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
_CALLS = (ToolCall("call_1", "add", '{"a": 1, "b": "é\\n"}'), ToolCall("call_2", "add", '{"a": 2}'))
_TURN = Turn(
    text="It is forty two, naïvely.", reasoning="Six sevens.", calls=_CALLS, usage=Usage(20, 9, cache_read_tokens=8)
)
_PARALLEL = 12


async def check_provider(make: MakeModel) -> None:
    """Run every check; raise AssertionError naming what the model port does wrong.

    `make` gets the server's base_url (it ends in /v1) and returns a model port with the key "secret-of-loopback" if
    it takes one. Its `aclose`, where it has one, is awaited. The server speaks Chat Completions, Messages and
    Responses.
    """
    for check in PROVIDER_CHECKS:
        await check(make)


async def events_in_order(make: MakeModel) -> None:
    """Check that a turn comes as start, deltas, ready calls, end; and that the end holds what the deltas said."""
    async with _served(make, _TURN) as (model, _):
        events = await _events(model)
    assert isinstance(events[0], ChatStart), f"the first event is {events[0]!r}, not ChatStart"
    end = events[-1]
    assert isinstance(end, ChatEnd), f"the last event is {end!r}, not ChatEnd"
    message = end.response.message
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == message.content == _TURN.text, f"the deltas say {text!r}, the message {message.content!r}"
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert reasoning == message.reasoning == _TURN.reasoning, f"reasoning is {message.reasoning!r}"
    ready = [event.call for event in events if isinstance(event, ToolCallReady)]
    assert tuple(ready) == message.tool_calls, f"ready are {ready!r}, the message holds {message.tool_calls!r}"
    assert _parsed(ready) == _parsed(_CALLS), f"the server told {_CALLS!r}, ready are {ready!r}"
    for place, call in enumerate(_CALLS):
        pieces = [event for event in events if isinstance(event, ToolCallDelta) and event.index == place]
        assert "".join(piece.arguments for piece in pieces) == call.arguments, f"deltas of call {place}: {pieces!r}"
        assert all(piece.id == call.id and piece.name == call.name for piece in pieces), f"call {place}: {pieces!r}"
    assert end.response.usage == _TURN.usage, f"usage is {end.response.usage!r}"
    assert end.response.stop_reason == "tool_calls", f"stop_reason is {end.response.stop_reason!r}"
    assert end.response.request_id == "req-loopback", f"request_id is {end.response.request_id!r}"


async def whole_equals_streamed(make: MakeModel) -> None:
    """Check that an answer in one piece folds to the same response as a streamed one."""
    for turn in (_TURN, Turn(text="Plain."), Turn(calls=_CALLS), Turn(text="Cut", stop="length")):
        async with _served(make, turn) as (model, server):
            streamed, whole = _end(await _events(model)), _end(await _events(model, stream=False))
        asked = [received.body.get("stream") is True for received in server.requests]
        assert asked == [True, False], f"the bodies asked for streams: {asked}"
        assert _as_one(streamed) == _as_one(whole), f"streamed {streamed!r}, whole {whole!r}"


async def cut_call_is_not_ready(make: MakeModel) -> None:
    """Check that a call cut by the token limit stays in the message and is not offered for execution."""
    cut = ToolCall("call_9", "add", '{"a": 1, "b": "#!/usr/b')
    async with _served(make, Turn(calls=(_CALLS[0], cut), stop="length")) as (model, _):
        events = await _events(model)
    ready = [event.call for event in events if isinstance(event, ToolCallReady)]
    assert _parsed(ready) == _parsed(_CALLS[:1]), f"ready are {ready!r}"
    kept = _end(events).message.tool_calls
    assert kept == (*ready, cut), f"the message holds {kept!r}"
    assert _end(events).stop_reason == "length", f"stop_reason is {_end(events).stop_reason!r}"


async def early_end_is_an_error(make: MakeModel) -> None:
    """Check that a body that ends without its end marker, by any way, is StreamBroken and never a short answer."""
    for then in ("end", "close", "reset"):
        for left_out in (2, 3, 6):

            def cut(received: Received, left_out: int = left_out, then: str = then) -> Given:
                pieces = write_turn(_TURN, _protocol(received))
                drop = left_out + (_protocol(received) == "chat")
                return HttpAnswer(headers=_SSE, pieces=pieces[:-drop], then=then)  # type: ignore[arg-type]

            async with _served(make, cut) as (model, _):
                error = await _raises(StreamBroken, model)
            assert error.retryable, "a broken stream is worth another try"
            assert error.accepted is not False, "the server had accepted the request"


async def refused_connection_is_not_accepted(make: MakeModel) -> None:
    """Check that no connection means StreamBroken with accepted=False: nothing can have been charged."""
    async with LoopbackServer([_TURN]) as server:
        url = server.url
    async with _closing(make(url)) as model:
        error = await _raises(StreamBroken, model)
    assert error.accepted is False, f"accepted is {error.accepted}"


async def statuses_become_errors(make: MakeModel) -> None:
    """Check the error's kind, retry_after, request id and texts for each status; nothing is sent twice."""
    cases: tuple[tuple[int, type[ProviderError], bool], ...] = (
        (400, BadRequest, False),
        (401, AuthFailed, False),
        (403, AuthFailed, False),
        (404, BadRequest, False),
        (429, RateLimited, True),
        (500, Overloaded, True),
        (503, Overloaded, True),
        (529, Overloaded, True),
    )
    body = sse({"error": {"type": "x", "message": "no: secret-of-loopback"}})[6:]
    headers = {"retry-after": "7", "x-request-id": "req-1"}
    for status, kind, retryable in cases:
        async with _served(make, HttpAnswer(status=status, headers=headers, pieces=(body,))) as (model, server):
            error = await _raises(kind, model)
        assert (error.status, error.retryable) == (status, retryable), f"{status}: {error!r}"
        assert error.retry_after == 7, f"{status}: retry_after is {error.retry_after}"
        assert error.request_id == "req-1", f"{status}: request_id is {error.request_id}"
        assert len(server.requests) == 1, (
            f"{status}: the provider sent {len(server.requests)} requests, its own retries"
        )
        _no_secret(error)


async def errors_inside_a_stream(make: MakeModel) -> None:
    """Check that an error frame after status 200 raises its class, whatever was said before."""

    def fails(received: Received) -> Given:
        protocol = _protocol(received)
        if protocol == "chat":
            frame = sse({"error": {"message": "queue full", "code": 429}}) + sse("[DONE]")
        elif protocol == "responses":
            frame = sse({"type": "error", "code": "rate_limit_exceeded", "message": "queue full"}, "error")
        else:
            frame = sse({"type": "error", "error": {"type": "rate_limit_error", "message": "queue full"}}, "error")
        return HttpAnswer(headers=_SSE, pieces=(*write_turn(_TURN, protocol)[:4], frame))

    async with _served(make, fails) as (model, _):
        error = await _raises(RateLimited, model)
    assert "queue full" in error.message, f"the server's reason is lost: {error.message!r}"
    assert error.accepted is not False, "the server had accepted the request"


async def leaving_releases_the_connection(make: MakeModel) -> None:
    """Check that closing after the first event, and cancelling while the server is silent, free the server at once."""

    def hangs(received: Received) -> Given:
        return HttpAnswer(headers=_SSE, pieces=write_turn(_TURN, _protocol(received))[:6], then="hang")

    async with _served(make, hangs) as (model, server):
        for _ in range(_PARALLEL):
            async with aclosing(model.stream(_call(model))) as events:
                await anext(events)
        await asyncio.wait_for(server.until_busy(0), 10)
        reading = [asyncio.ensure_future(_events(model)) for _ in range(_PARALLEL)]
        await asyncio.wait_for(server.until_busy(_PARALLEL), 10)
        for task in reading:
            task.cancel()
        ends = await asyncio.gather(*reading, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), f"cancelling came out as {ends!r}"
        await asyncio.wait_for(server.until_busy(0), 10)


async def closes_from_another_task(make: MakeModel) -> None:
    """Check that another task may close a stream that nobody reads at the moment."""

    def hangs(received: Received) -> Given:
        return HttpAnswer(headers=_SSE, pieces=write_turn(_TURN, _protocol(received))[:6], then="hang")

    async with _served(make, hangs) as (model, server):
        events = model.stream(_call(model))
        await anext(events)
        await asyncio.create_task(events.aclose())
        await asyncio.wait_for(server.until_busy(0), 10)


async def connections_are_kept(make: MakeModel) -> None:
    """Check that answers read to their end give the connection back, so that the next request opens none."""
    async with _served(make, _TURN) as (model, server):
        for _ in range(5):
            await _events(model)
        assert server.connections == 1, f"5 answers in a row took {server.connections} connections"


async def histories_are_repaired(make: MakeModel) -> None:
    """Check that an unanswered call gets an answer on the wire, and that a result without a call is refused."""
    asked = (UserMessage("hi"), AssistantMessage("", _CALLS), ToolMessage("call_1", "3"), UserMessage("and?"))
    async with _served(make, Turn(text="ok")) as (model, server):
        await _events(model, messages=asked)
        wire = str(server.requests[0].body)
        assert wire.count("call_2") == 2, f"call_2 needs its call and one answer in {wire}"
        lost = (UserMessage("hi"), ToolMessage("nobody", "3"))
        error = await _raises(ConfigurationError, model, messages=lost)
        assert "nobody" in error.message, f"the error does not name the result: {error.message!r}"
        assert len(server.requests) == 1, "a conversation that cannot be sent was sent"


async def odd_text_is_sent(make: MakeModel) -> None:
    """Check that lone surrogates and NUL in a conversation do not break it: they go out as U+FFFD."""
    async with _served(make, Turn(text="ok")) as (model, server):
        await _events(model, messages=(UserMessage("caf\udce9\x00 \ud83d\ude00"),))
    wire = str(server.requests[0].body)
    assert "caf\ufffd\ufffd 😀" in wire, f"the text went out as {wire!a}"


PROVIDER_CHECKS: tuple[Check, ...] = (
    events_in_order,
    whole_equals_streamed,
    cut_call_is_not_ready,
    early_end_is_an_error,
    refused_connection_is_not_accepted,
    statuses_become_errors,
    errors_inside_a_stream,
    leaving_releases_the_connection,
    closes_from_another_task,
    connections_are_kept,
    histories_are_repaired,
    odd_text_is_sent,
)


@asynccontextmanager
async def _served(
    make: MakeModel, given: Given | Callable[[Received], Given]
) -> AsyncGenerator[tuple[LLMPort, LoopbackServer], None]:
    script = given if callable(given) else [given]
    async with LoopbackServer(script) as server, _closing(make(server.url)) as model:
        yield model, server


@asynccontextmanager
async def _closing(model: LLMPort) -> AsyncGenerator[LLMPort, None]:
    try:
        yield model
    finally:
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()


def _call(model: LLMPort, *, stream: bool = True, messages: tuple[Message, ...] = ()) -> Call[ChatRequest]:
    settings = ModelSettings(max_tokens=100)
    request = ChatRequest(messages or (UserMessage("What is 6 * 7?"),), (_TOOL,), settings=settings, stream=stream)
    return Call(make_context(model), request, "call-1", Route(model, "loopback-model", "loopback"))


async def _events(model: LLMPort, *, stream: bool = True, messages: tuple[Message, ...] = ()) -> list[ChatEvent]:
    async with aclosing(model.stream(_call(model, stream=stream, messages=messages))) as events:
        return [event async for event in events]


async def _raises(kind: type[E], model: LLMPort, *, messages: tuple[Message, ...] = ()) -> E:
    try:
        events = await _events(model, messages=messages)
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{kind.__name__} was due, not {error!r}") from error
    raise AssertionError(f"{kind.__name__} was due, not the answer {events[-1]!r}")


def _end(events: list[ChatEvent]) -> ChatResponse:
    end = events[-1]
    assert isinstance(end, ChatEnd), f"the last event is {end!r}, not ChatEnd"
    return end.response


def _as_one(response: ChatResponse) -> tuple[object, ...]:
    """Return what has to be the same streamed or not."""
    return response.message, response.usage, response.stop_reason, response.raw_stop_reason, response.model


def _parsed(calls: Sequence[ToolCall]) -> list[tuple[str, str, object]]:
    """Return the calls with their arguments as values: a provider may space JSON differently."""
    return [(call.id, call.name, msgspec.json.decode(call.arguments)) for call in calls]


def _protocol(received: Received) -> Protocol:
    return protocol_of(received.path)


def _no_secret(error: ProviderError) -> None:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        told = f"{cause!r} {cause} {vars(cause)}"
        assert "secret-of-loopback" not in told, f"the key shows in {type(cause).__name__}"
        cause = cause.__cause__ or cause.__context__
