"""What a stream has to withstand: any cut of its bytes, and every fault after each of its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from msgspec import Struct

from agentkit.core.contracts import ChatEvent, LLMPort, ToolCallReady
from agentkit.errors import ProviderError, RateLimited, StreamBroken
from agentkit.testing.loopback import HttpAnswer, LoopbackServer, Received
from agentkit.testing.provider_calls import (
    EVENT_STREAM,
    TURN,
    Check,
    Host,
    MakeModel,
    call_of,
    end_of,
    events_of,
    served,
)
from agentkit.testing.turns import Protocol, protocol_of, sse, write_turn

__all__ = ["FAULT_CHECKS", "Fault"]

_HEADERS = {**EVENT_STREAM, "x-request-id": "req-loopback"}
_PATIENCE = 60.0  # seconds until a test calls it a hang
_STEPS = 40  # turns of the event loop in which a client reads what has arrived
_LAST = 3  # events at the end of a stream after which the answer may be complete already

Make = Callable[[tuple[bytes, ...], int, Protocol], HttpAnswer]


class Fault(Struct, frozen=True):
    """One way to fail after the first `events` of a stream; `error` is what has to come of it, None for no harm."""

    name: str
    answer: Make
    error: type[ProviderError] | None = StreamBroken


def _then(how: str) -> Make:
    return lambda pieces, events, _: HttpAnswer(headers=_HEADERS, pieces=pieces[:events], then=how)  # type: ignore[arg-type]


def _with(frame: Callable[[Protocol], bytes]) -> Make:
    return lambda pieces, events, protocol: HttpAnswer(
        headers=_HEADERS, pieces=(*pieces[:events], frame(protocol), *pieces[events:])
    )


def _torn(pieces: tuple[bytes, ...], events: int, _: Protocol) -> HttpAnswer:
    half = [piece[: len(piece) // 2] for piece in pieces[events : events + 1]]
    return HttpAnswer(headers=_HEADERS, pieces=(*pieces[:events], *half))


def _error_frame(protocol: Protocol) -> bytes:
    if protocol == "chat":
        return sse({"error": {"message": "queue full", "code": 429}})
    if protocol == "messages":
        return sse({"type": "error", "error": {"type": "rate_limit_error", "message": "queue full"}}, "error")
    return sse({"type": "error", "code": "rate_limit_exceeded", "message": "queue full"}, "error")


FAULTS = (
    Fault("a reset", _then("reset")),
    Fault("a lost connection", _then("close")),
    Fault("a clean early end", _then("end")),
    Fault("half an event", _torn),
    Fault("an error frame", _with(_error_frame), RateLimited),
    Fault("a line that is no JSON", _with(lambda _: b"data: {oops\n\n")),
    Fault("lines that mean nothing", _with(lambda _: b"oops\n\n: note\n\nid: 7\n\n"), None),
)


async def bytes_may_come_in_any_pieces(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that a stream in small pieces gives the events of the whole: byte by byte where the server can."""
    stream = b""

    def cut(received: Received) -> HttpAnswer:
        nonlocal stream
        stream = b"".join(write_turn(TURN, protocol_of(received.path)))
        size = len(stream) if len(server.requests) == 1 else host.grain
        pieces = tuple(stream[start : start + size] for start in range(0, len(stream), size))
        return HttpAnswer(headers=_HEADERS, pieces=pieces)

    async with served(make, cut, host) as (model, server):
        whole = await events_of(model)
        assert await events_of(model) == whole, f"in pieces of {host.grain} bytes the events differ"


async def faults_after_any_event(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check each fault after each event: its error with the usage so far, no call ready, the connection released."""
    answer = HttpAnswer()

    async with served(make, lambda _: answer if len(server.requests) > 1 else TURN, host) as (model, server):
        whole = await events_of(model)
        protocol = protocol_of(server.requests[0].path)
        pieces = write_turn(TURN, protocol)
        for events in range(0, len(pieces) + 1, host.grain):
            for fault in FAULTS:
                answer = fault.answer(pieces, events, protocol)
                where = f"{fault.name} after {events} of {len(pieces)} events"
                told, error = await asyncio.wait_for(_outcome(model), _PATIENCE)
                _judge(told, error, fault, where, whole, late=events > len(pieces) - _LAST)
                if error is not None and any(b"_tokens" in piece for piece in pieces[:events]):
                    assert error.usage, f"{where}: the usage that was told is lost"
                await asyncio.wait_for(server.until_busy(0), _PATIENCE)


async def a_stall_after_any_event_can_be_cancelled(make: MakeModel, host: Host = LoopbackServer) -> None:
    """Check that a stream that goes silent after any of its events ends at once by cancelling, without a trace."""
    answer = HttpAnswer()

    async with served(make, lambda _: answer if len(server.requests) > 1 else TURN, host) as (model, server):
        await events_of(model)
        pieces = write_turn(TURN, protocol_of(server.requests[0].path))
        for events in range(0, len(pieces) - _LAST, host.grain):
            answer = HttpAnswer(headers=_HEADERS, pieces=pieces[:events], then="hang")
            reading = asyncio.ensure_future(events_of(model))
            await asyncio.wait_for(server.until_busy(1), _PATIENCE)
            for _ in range(_STEPS):
                await asyncio.sleep(0)
            reading.cancel()
            (end,) = await asyncio.wait_for(asyncio.gather(reading, return_exceptions=True), _PATIENCE)
            assert isinstance(end, asyncio.CancelledError), f"after {events} events, cancelling came out as {end!r}"
            await asyncio.wait_for(server.until_busy(0), _PATIENCE)


async def _outcome(model: LLMPort) -> tuple[list[ChatEvent], ProviderError | None]:
    told: list[ChatEvent] = []
    try:
        async with aclosing(model.stream(call_of(model))) as events:
            async for event in events:
                told.append(event)  # noqa: PERF401  (what came before an error is wanted too)
    except ProviderError as error:
        return told, error
    return told, None


def _judge(
    told: list[ChatEvent], error: ProviderError | None, fault: Fault, where: str, whole: list[ChatEvent], *, late: bool
) -> None:
    if error is None:
        assert fault.error is None or late, f"{where}: taken for an answer: {told[-1]!r}"
        assert end_of(told).message == end_of(whole).message, f"{where}: the answer is {told[-1]!r}"
        assert fault.error is not None or told == whole, f"{where}: the events differ"
        return
    assert fault.error is not None, f"{where}: {error!r}"
    assert isinstance(error, fault.error) or (late and isinstance(error, StreamBroken)), f"{where}: {error!r}"
    assert error.retryable, f"{where}: is worth another try"
    assert error.accepted is not False or isinstance(error, RateLimited), f"{where}: the server had accepted"
    assert not any(isinstance(event, ToolCallReady) for event in told), f"{where}: a call was offered to be run"


FAULT_CHECKS: tuple[Check, ...] = (
    bytes_may_come_in_any_pieces,
    faults_after_any_event,
    a_stall_after_any_event_can_be_cancelled,
)
