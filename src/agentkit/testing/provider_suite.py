"""What every provider has to hold, as checks that a test of your own model port runs against a scripted server.

@pytest.mark.parametrize("check", PROVIDER_CHECKS)
async def test_mine(check): await check(lambda url: MyModel(url))
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatResponse,
    ChatStart,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolMessage,
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
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer, Received
from agentkit.testing.provider_calls import (
    CALLS,
    EVENT_STREAM,
    TURN,
    Check,
    Host,
    MakeModel,
    call_of,
    closing,
    end_of,
    events_of,
    raises,
    served,
)
from agentkit.testing.provider_faults import FAULT_CHECKS
from agentkit.testing.turns import Turn, protocol_of, sse, write_turn

__all__ = ["PROVIDER_CHECKS", "Check", "MakeModel", "check_provider"]

_PARALLEL = 12


async def check_provider(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Run every check; raise AssertionError naming what the model port does wrong.

    `make` gets the server's base_url (it ends in /v1) and returns a model port with the key "secret-of-loopback" if
    it takes one. Its `aclose`, where it has one, is awaited. The server speaks Chat Completions, Messages and
    Responses; `host` MemoryServer runs the checks without a network, for a model over a MemoryTransport.
    """
    for check in PROVIDER_CHECKS:
        await check(make, host)


async def events_in_order(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that a turn comes as start, deltas, ready calls, end; and that the end holds what the deltas said."""
    async with served(make, TURN, host) as (model, _):
        events = await events_of(model)
    assert isinstance(events[0], ChatStart), f"the first event is {events[0]!r}, not ChatStart"
    end = events[-1]
    assert isinstance(end, ChatEnd), f"the last event is {end!r}, not ChatEnd"
    message = end.response.message
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == message.content == TURN.text, f"the deltas say {text!r}, the message {message.content!r}"
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert reasoning == message.reasoning == TURN.reasoning, f"reasoning is {message.reasoning!r}"
    ready = [event.call for event in events if isinstance(event, ToolCallReady)]
    assert tuple(ready) == message.tool_calls, f"ready are {ready!r}, the message holds {message.tool_calls!r}"
    assert _parsed(ready) == _parsed(CALLS), f"the server told {CALLS!r}, ready are {ready!r}"
    for place, call in enumerate(CALLS):
        pieces = [event for event in events if isinstance(event, ToolCallDelta) and event.index == place]
        assert "".join(piece.arguments for piece in pieces) == call.arguments, f"deltas of call {place}: {pieces!r}"
        assert all(piece.id == call.id and piece.name == call.name for piece in pieces), f"call {place}: {pieces!r}"
    assert end.response.usage == TURN.usage, f"usage is {end.response.usage!r}"
    assert end.response.stop_reason == "tool_calls", f"stop_reason is {end.response.stop_reason!r}"
    assert end.response.request_id == "req-loopback", f"request_id is {end.response.request_id!r}"


async def whole_equals_streamed(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that an answer in one piece folds to the same response as a streamed one."""
    for turn in (TURN, Turn(text="Plain."), Turn(calls=CALLS), Turn(text="Cut", stop="length")):
        async with served(make, turn, host) as (model, server):
            streamed, whole = end_of(await events_of(model)), end_of(await events_of(model, stream=False))
        asked = [received.body.get("stream") is True for received in server.requests]
        assert asked == [True, False], f"the bodies asked for streams: {asked}"
        assert _as_one(streamed) == _as_one(whole), f"streamed {streamed!r}, whole {whole!r}"


async def cut_call_is_not_ready(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that a call cut by the token limit stays in the message and is not offered for execution."""
    cut = ToolCall("call_9", "add", '{"a": 1, "b": "#!/usr/b')
    async with served(make, Turn(calls=(CALLS[0], cut), stop="length"), host) as (model, _):
        events = await events_of(model)
    ready = [event.call for event in events if isinstance(event, ToolCallReady)]
    assert _parsed(ready) == _parsed(CALLS[:1]), f"ready are {ready!r}"
    kept = end_of(events).message.tool_calls
    assert kept == (*ready, cut), f"the message holds {kept!r}"
    assert end_of(events).stop_reason == "length", f"stop_reason is {end_of(events).stop_reason!r}"


async def early_end_is_an_error(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that a body that ends without its end marker, by any way, is StreamBroken and never a short answer."""
    for then in ("end", "close", "reset"):
        for left_out in (2, 3, 6):

            def cut(received: Received, left_out: int = left_out, then: str = then) -> Given:
                pieces = write_turn(TURN, protocol_of(received.path))
                drop = left_out + (protocol_of(received.path) == "chat")
                return HttpAnswer(headers=EVENT_STREAM, pieces=pieces[:-drop], then=then)  # type: ignore[arg-type]

            async with served(make, cut, host) as (model, _):
                error = await raises(StreamBroken, model)
            assert error.retryable, "a broken stream is worth another try"
            assert error.accepted is not False, "the server had accepted the request"


async def refused_connection_is_not_accepted(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that no connection means StreamBroken with accepted=False: nothing can have been charged."""
    async with host([TURN]) as server:
        url = server.url
    async with closing(make(url)) as model:
        error = await raises(StreamBroken, model)
    assert error.accepted is False, f"accepted is {error.accepted}"


async def statuses_become_errors(make: MakeModel, host: Host = LoopbackServer) -> None:
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
        async with served(make, HttpAnswer(status=status, headers=headers, pieces=(body,)), host) as (model, server):
            error = await raises(kind, model)
        assert (error.status, error.retryable) == (status, retryable), f"{status}: {error!r}"
        assert error.retry_after == 7, f"{status}: retry_after is {error.retry_after}"
        assert error.request_id == "req-1", f"{status}: request_id is {error.request_id}"
        assert len(server.requests) == 1, (
            f"{status}: the provider sent {len(server.requests)} requests, its own retries"
        )
        _no_secret(error)


async def errors_inside_a_stream(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that an error frame after status 200 raises its class, whatever was said before."""

    def fails(received: Received) -> Given:
        protocol = protocol_of(received.path)
        if protocol == "chat":
            frame = sse({"error": {"message": "queue full", "code": 429}}) + sse("[DONE]")
        elif protocol == "responses":
            frame = sse({"type": "error", "code": "rate_limit_exceeded", "message": "queue full"}, "error")
        else:
            frame = sse({"type": "error", "error": {"type": "rate_limit_error", "message": "queue full"}}, "error")
        return HttpAnswer(headers=EVENT_STREAM, pieces=(*write_turn(TURN, protocol)[:4], frame))

    async with served(make, fails, host) as (model, _):
        error = await raises(RateLimited, model)
    assert "queue full" in error.message, f"the server's reason is lost: {error.message!r}"
    assert error.accepted is not False, "the server had accepted the request"


async def leaving_releases_the_connection(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that closing after the first event, and cancelling while the server is silent, free the server at once."""

    def hangs(received: Received) -> Given:
        return HttpAnswer(headers=EVENT_STREAM, pieces=write_turn(TURN, protocol_of(received.path))[:6], then="hang")

    async with served(make, hangs, host) as (model, server):
        for _ in range(_PARALLEL):
            async with aclosing(model.stream(call_of(model))) as events:
                await anext(events)
        await asyncio.wait_for(server.until_busy(0), 10)
        reading = [asyncio.ensure_future(events_of(model)) for _ in range(_PARALLEL)]
        await asyncio.wait_for(server.until_busy(_PARALLEL), 10)
        for task in reading:
            task.cancel()
        ends = await asyncio.gather(*reading, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), f"cancelling came out as {ends!r}"
        await asyncio.wait_for(server.until_busy(0), 10)


async def closes_from_another_task(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that another task may close a stream that nobody reads at the moment."""

    def hangs(received: Received) -> Given:
        return HttpAnswer(headers=EVENT_STREAM, pieces=write_turn(TURN, protocol_of(received.path))[:6], then="hang")

    async with served(make, hangs, host) as (model, server):
        events = model.stream(call_of(model))
        await anext(events)
        await asyncio.create_task(events.aclose())
        await asyncio.wait_for(server.until_busy(0), 10)


async def connections_are_kept(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that answers read to their end give the connection back, so that the next request opens none."""
    async with served(make, TURN, host) as (model, server):
        for _ in range(5):
            await events_of(model)
        assert server.connections == 1, f"5 answers in a row took {server.connections} connections"


async def histories_are_repaired(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that an unanswered call gets an answer on the wire, and that a result without a call is refused."""
    asked = (UserMessage("hi"), AssistantMessage("", CALLS), ToolMessage("call_1", "3"), UserMessage("and?"))
    async with served(make, Turn(text="ok"), host) as (model, server):
        await events_of(model, messages=asked)
        wire = str(server.requests[0].body)
        assert wire.count("call_2") == 2, f"call_2 needs its call and one answer in {wire}"
        lost = (UserMessage("hi"), ToolMessage("nobody", "3"))
        error = await raises(ConfigurationError, model, messages=lost)
        assert "nobody" in error.message, f"the error does not name the result: {error.message!r}"
        assert len(server.requests) == 1, "a conversation that cannot be sent was sent"


async def odd_text_is_sent(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that lone surrogates and NUL in a conversation do not break it: they go out as U+FFFD."""
    async with served(make, Turn(text="ok"), host) as (model, server):
        await events_of(model, messages=(UserMessage("caf\udce9\x00 \ud83d\ude00"),))
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
    *FAULT_CHECKS,
)


def _as_one(response: ChatResponse) -> tuple[object, ...]:
    """Return what has to be the same streamed or not."""
    return response.message, response.usage, response.stop_reason, response.raw_stop_reason, response.model


def _parsed(calls: Sequence[ToolCall]) -> list[tuple[str, str, object]]:
    """Return the calls with their arguments as values: a provider may space JSON differently."""
    return [(call.id, call.name, msgspec.json.decode(call.arguments)) for call in calls]


def _no_secret(error: ProviderError) -> None:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        told = f"{cause!r} {cause} {vars(cause)}"
        assert "secret-of-loopback" not in told, f"the key shows in {type(cause).__name__}"
        cause = cause.__cause__ or cause.__context__
