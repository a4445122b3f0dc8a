"""Repeating what failed before anybody saw anything of it."""

from __future__ import annotations

import random as _random
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    CallNext,
    ChatEvent,
    ChatRequest,
    ChatStart,
    RetryPolicy,
    ToolCallRequest,
    ToolEnded,
    ToolRequest,
    ToolResult,
    ToolStarted,
    ToolUpdate,
)
from agentkit.core.runtime.backoff import Backoff
from agentkit.core.runtime.breaker import Breaker, Probe
from agentkit.core.runtime.tool_stream import ToolStream, result_of
from agentkit.errors import Cancelled, DeadlineExceeded, Overloaded, ProviderError, ToolError

__all__ = ["Retry", "RetryTools", "retry", "retry_tools"]

ToolEvents: TypeAlias = AsyncGenerator[ToolUpdate, None]
ToolNext: TypeAlias = CallNext[ToolRequest, ToolUpdate]


class Retry:
    """Repeats a chat attempt that failed before its first visible event, when the error says that it may pass.

    The start of an answer is held back until something visible follows, so consumers see one start. Waits with full
    jitter, on top of what the server asked for; a wait that does not fit raises the error at once, and so does a
    circuit that `breaker` has open. The error of the last attempt counts them. Between attempts nothing is held.
    """

    __slots__ = ("_breaker", "_policy", "_random")

    def __init__(self, policy: RetryPolicy, random: Callable[[], float], breaker: Breaker | None) -> None:
        self._policy = policy
        self._random = random
        self._breaker = breaker

    def __repr__(self) -> str:
        return f"retry(max_attempts={self._policy.max_attempts}, breaker={self._breaker!r})"

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there is only one attempt and nobody to tell of it."""
        if self._policy.max_attempts == 1 and self._breaker is None:
            return call_next(call)
        return self._attempts(call, call_next)

    async def _attempts(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent]
    ) -> AsyncGenerator[ChatEvent, None]:
        breaker = self._breaker
        attempts = _Attempts(Backoff(self._policy, call), call, breaker, call.attempt, call.attempt)
        while True:
            visible = False
            start: ChatStart | None = None
            probe = attempts.enter(call, breaker) if breaker is not None and breaker.circuits else None
            events = call_next(call)
            try:
                async for event in events:
                    if visible:
                        yield event
                    elif type(event) is ChatStart:
                        start = event
                    else:
                        visible = event.visible
                        if not visible or (breaker is not None and breaker.circuits):
                            attempts.note(event)
                        if start is not None and (visible or _succeeded(event)):
                            yield start
                            start = None
                        yield event
                return
            except ProviderError as error:
                wait = attempts.wait_after(error, probe, None if visible else self._random())
                if wait is None:
                    raise
            finally:
                await events.aclose()
                if probe is not None:
                    attempts.leave(probe)
            await attempts.backoff.clock.sleep(wait)
            call = replace(call, attempt=attempts.next_number())


class _Attempts(Struct):
    """The attempts of one call: how many were made, what the breaker hears of them, and whether one more follows."""

    backoff: Backoff
    call: Call[ChatRequest]
    breaker: Breaker | None
    number: int
    last: int
    error: ProviderError | None = None
    rows: int = 0
    overtaken: bool = False  # what is seen is a hedge's answer

    def enter(self, call: Call[ChatRequest], breaker: Breaker) -> Probe | None:
        """Pass the breaker; where it opened during a wait, the error that was waited for is raised again."""
        try:
            return breaker.enter(call)
        except Overloaded:
            if self.error is None:
                raise
            self.error.attempts = max(self.rows, self.backoff.tries - 1)
            raise self.error from None

    def note(self, event: ChatEvent) -> None:
        """Count an attempt that ended, whoever made it; anything else is the first of an answer."""
        if type(event) is AttemptEnded:
            record = event.record
            self.rows += 1
            self.last = max(self.last, record.attempt)
            self.overtaken |= record.attempt == self.number and record.outcome != "ok"
        elif self.breaker is not None and not self.overtaken:
            self.breaker.succeeded(self.call)

    def wait_after(self, error: ProviderError, probe: Probe | None, share: float | None) -> float | None:
        """Return the seconds before the next attempt, None when the error ends the call; a `share` of None does."""
        self.error = error
        error.attempts = max(self.rows + (share is None), self.backoff.tries)
        opened = False
        if self.breaker is not None and not (share is None and self.overtaken):
            opened = self.breaker.failed(self.call, error, probe)
        if share is None or opened or not error.retryable:
            return None
        route = self.call.route
        return self.backoff.next_wait(error.retry_after, share, alternative=route is not None and bool(route.fallback))

    def leave(self, probe: Probe) -> None:
        """Let another call probe, where this attempt did and told nothing."""
        if self.breaker is not None:
            self.breaker.left(probe)

    def next_number(self) -> int:
        """Begin another attempt and return its number: one above all that were seen."""
        self.backoff.tries += 1
        self.overtaken = False
        self.number = self.last = self.last + 1
        return self.number


class RetryTools:
    """Repeats a tool call that failed in passing, when the tool only reads or is idempotent.

    Passing are lost connections, time-outs of the tool's own, and errors that say `retryable`; not a model's failure
    inside the tool, which was retried there. After the first progress nothing is repeated.
    """

    __slots__ = ("_policy", "_random")

    def __init__(self, policy: RetryPolicy, random: Callable[[], float]) -> None:
        self._policy = policy
        self._random = random

    def __repr__(self) -> str:
        return f"retry_tools(max_attempts={self._policy.max_attempts})"

    def __call__(self, call: ToolCallRequest, call_next: ToolNext, /) -> ToolEvents:
        """Return the stream, directly when the tool may not be called twice."""
        tool = call.request.tool
        harmless = (tool.effect == "read" or tool.idempotent) and not tool.resumable
        events = call_next(call)
        if not harmless or self._policy.max_attempts == 1:
            return events
        if type(events) is not ToolStream:
            return self._attempts(call, events, call_next)
        return ToolStream(
            partial(self._result, call, events, call_next), partial(self._attempts, call, events, call_next)
        )

    async def _result(self, call: ToolCallRequest, events: ToolEvents, call_next: ToolNext) -> ToolResult:
        backoff = Backoff(self._policy, call)
        while True:
            try:
                return await result_of(events)
            except Exception as error:
                wait = self._wait_after(error, backoff)
                if wait is None:
                    raise
            await backoff.clock.sleep(wait)
            backoff.tries += 1
            call = replace(call, attempt=call.attempt + 1)
            events = call_next(call)

    async def _attempts(self, call: ToolCallRequest, events: ToolEvents, call_next: ToolNext) -> ToolEvents:
        backoff = Backoff(self._policy, call)
        told = False
        while True:
            progressed = False
            try:
                async for event in events:
                    if type(event) is ToolStarted:
                        if told:
                            continue
                        told = True
                    else:
                        progressed = progressed or type(event) is not ToolEnded
                    yield event
                return
            except Exception as error:
                wait = None if progressed else self._wait_after(error, backoff)
                if wait is None:
                    raise
            finally:
                await events.aclose()
            await backoff.clock.sleep(wait)
            backoff.tries += 1
            call = replace(call, attempt=call.attempt + 1)
            events = call_next(call)

    def _wait_after(self, error: Exception, backoff: Backoff) -> float | None:
        if not _passing(error):
            return None
        return backoff.next_wait(getattr(error, "retry_after", None), self._random())


def retry(
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008
    *,
    random: Callable[[], float] = _random.random,
    breaker: Breaker | None = None,
) -> Retry:
    """Return the chat layer; `random` returns numbers from 0 to 1 for the jitter, `breaker` is told of each attempt.

    A hedge layer below takes the same breaker: it tells of the second request, this one of the first.
    """
    return Retry(policy, random, breaker)


def retry_tools(
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008
    *,
    random: Callable[[], float] = _random.random,
) -> RetryTools:
    """Return the tool layer; `random` returns numbers from 0 to 1 for the jitter."""
    return RetryTools(policy, random)


def _succeeded(event: ChatEvent) -> bool:
    return isinstance(event, AttemptEnded) and event.record.outcome == "ok"


def _passing(error: Exception) -> bool:
    if isinstance(error, (ProviderError, DeadlineExceeded, Cancelled)):
        return False
    if isinstance(error, ToolError) and isinstance(error.__cause__, Exception):
        return _passing(error.__cause__)
    return isinstance(error, (ConnectionError, TimeoutError)) or getattr(error, "retryable", False) is True
