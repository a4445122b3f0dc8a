"""Repeating what failed before anybody saw anything of it."""

from __future__ import annotations

import math
import random as _random
from collections.abc import AsyncGenerator, Callable
from typing import cast

from msgspec.structs import replace

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    CallNext,
    ChatEvent,
    ChatRequest,
    ChatStart,
    RetryPolicy,
    ToolEnded,
    ToolRequest,
    ToolStarted,
    ToolUpdate,
)
from agentkit.core.runtime.context import RunContext
from agentkit.errors import Cancelled, DeadlineExceeded, ProviderError, ToolError

__all__ = ["Retry", "RetryTools", "retry", "retry_tools"]

_LAST_DOUBLING = 60  # the cap is reached long before; larger powers would only overflow


class Retry:
    """Repeats a chat attempt that failed before its first visible event, when the error says that it may pass.

    The start of an answer is held back until something visible follows, so consumers see one start. Waits with full
    jitter, on top of what the server asked for; a wait that does not fit the deadline raises the error at once.
    Between attempts nothing is held.
    """

    __slots__ = ("_policy", "_random")

    def __init__(self, policy: RetryPolicy, random: Callable[[], float]) -> None:
        self._policy = policy
        self._random = random

    def __repr__(self) -> str:
        return f"retry(max_attempts={self._policy.max_attempts})"

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there is only one attempt."""
        if self._policy.max_attempts == 1:
            return call_next(call)
        return self._attempts(call, call_next)

    async def _attempts(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent]
    ) -> AsyncGenerator[ChatEvent, None]:
        tries = 1
        while True:
            visible = False
            start: ChatStart | None = None
            events = call_next(call)
            try:
                async for event in events:
                    if visible:
                        yield event
                    elif type(event) is ChatStart:
                        start = event
                    else:
                        visible = event.visible
                        if start is not None and (visible or _succeeded(event)):
                            yield start
                            start = None
                        yield event
                return
            except ProviderError as error:
                if visible or not error.retryable or tries >= self._policy.max_attempts:
                    raise
                wait = _wait(self._policy, tries, error.retry_after, self._random)
                if not _fits(call, wait):
                    raise
            finally:
                await events.aclose()
            await cast(RunContext, call.ctx).services.clock.sleep(wait)
            tries += 1
            call = replace(call, attempt=call.attempt + 1)


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

    def __call__(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate], /
    ) -> AsyncGenerator[ToolUpdate, None]:
        """Return the stream, directly when the tool may not be called twice."""
        tool = call.request.tool
        harmless = (tool.effect == "read" or tool.idempotent) and not tool.resumable
        if not harmless or self._policy.max_attempts == 1:
            return call_next(call)
        return self._attempts(call, call_next)

    async def _attempts(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate]
    ) -> AsyncGenerator[ToolUpdate, None]:
        tries = 1
        told = False
        while True:
            progressed = False
            events = call_next(call)
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
                if progressed or tries >= self._policy.max_attempts or not _passing(error):
                    raise
                wait = _wait(self._policy, tries, getattr(error, "retry_after", None), self._random)
                if not _fits(call, wait):
                    raise
            finally:
                await events.aclose()
            await cast(RunContext, call.ctx).services.clock.sleep(wait)
            tries += 1
            call = replace(call, attempt=call.attempt + 1)


def retry(policy: RetryPolicy = RetryPolicy(), *, random: Callable[[], float] = _random.random) -> Retry:  # noqa: B008
    """Return the chat layer; `random` returns numbers from 0 to 1 for the jitter."""
    return Retry(policy, random)


def retry_tools(
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008
    *,
    random: Callable[[], float] = _random.random,
) -> RetryTools:
    """Return the tool layer; `random` returns numbers from 0 to 1 for the jitter."""
    return RetryTools(policy, random)


def _succeeded(event: ChatEvent) -> bool:
    return isinstance(event, AttemptEnded) and event.record.outcome == "ok"


def _wait(policy: RetryPolicy, tries: int, asked: float | None, random: Callable[[], float]) -> float:
    ceiling = min(policy.max_delay, policy.base_delay * 2.0 ** min(tries - 1, _LAST_DOUBLING))
    least = asked if asked is not None and math.isfinite(asked) and asked > 0 else 0.0
    return least + random() * ceiling


def _fits(call: Call[ChatRequest] | Call[ToolRequest], wait: float) -> bool:
    left = call.ctx.remaining_time()
    return left is None or wait < left


def _passing(error: Exception) -> bool:
    if isinstance(error, (ProviderError, DeadlineExceeded, Cancelled)):
        return False
    if isinstance(error, ToolError) and isinstance(error.__cause__, Exception):
        return _passing(error.__cause__)
    return isinstance(error, (ConnectionError, TimeoutError)) or getattr(error, "retryable", False) is True
