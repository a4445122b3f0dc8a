"""A second request beside a slow one: the answer that begins first wins, the other is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import cast

from msgspec.structs import replace

from agentkit.catalog import missing_capability
from agentkit.core.contracts import AttemptEnded, Call, CallNext, ChatEvent, ChatRequest, HedgePolicy
from agentkit.core.runtime.abort import Abort
from agentkit.core.runtime.breaker import Breaker, Probe
from agentkit.core.runtime.clock import Timer
from agentkit.core.runtime.context import RunContext
from agentkit.errors import AgentkitError, ProviderError

__all__ = ["Hedge", "hedge"]

_LOG = logging.getLogger("agentkit")
Next = CallNext[ChatRequest, ChatEvent]


class Hedge:
    """Sends a second request when the first has shown nothing visible after a while; at most one for a call.

    Only a call's first attempt is hedged. The second request has the next attempt's number and never waits for a
    meter: what does not fit beside the first is not sent. Whichever shows a visible event first is passed on; before
    that the other is cancelled, closed and charged, and its AttemptEnded told. When the first fails while the second
    is under way, the second decides; when both fail, the first one's error is raised.
    """

    __slots__ = ("_breaker", "_policy")

    def __init__(self, policy: HedgePolicy, breaker: Breaker | None) -> None:
        self._policy = policy
        self._breaker = breaker

    def __repr__(self) -> str:
        return f"hedge(after={self._policy.after:g}, to={self._policy.to!r})"

    def __call__(self, call: Call[ChatRequest], call_next: Next, /) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when no second request may follow."""
        second = self._second(call)
        return call_next(call) if second is None else self._race(call, second, call_next)

    def _second(self, call: Call[ChatRequest]) -> Call[ChatRequest] | None:
        if call.attempt != 1 or call.hedge:
            return None
        if self._policy.to == "same":
            return replace(call, attempt=2, hedge=True)
        route = call.route
        if route is None or not route.fallback or missing_capability(route.fallback[0], call.request) is not None:
            return None
        return replace(call, attempt=2, hedge=True, route=route.fallback[0])

    async def _race(
        self, call: Call[ChatRequest], second: Call[ChatRequest], call_next: Next
    ) -> AsyncGenerator[ChatEvent, None]:
        race = _Race(_Runner(call, call_next, None), _Runner(second, call_next, self._breaker), self._breaker)
        winner: _Runner | None = None
        try:
            winner = await race.run(self._policy.after)
            for event in race.told():
                yield event
            async for event in winner.events:
                yield event
        except ProviderError as error:
            if winner is not None:
                winner.broke(error)
            else:
                for event in race.told():
                    yield event
            raise
        finally:
            await race.aclose()


class _OvertakenError(Exception):
    """Ends the first request: the second one answers."""


class _Runner:
    """One of the two requests, read up to its first visible event."""

    __slots__ = ("_breaker", "_probe", "call", "error", "events", "lead")

    def __init__(self, call: Call[ChatRequest], call_next: Next, breaker: Breaker | None) -> None:
        self.call = call
        self.events = call_next(call)
        self.lead: list[ChatEvent] = []
        self.error: Exception | None = None
        self._breaker = breaker
        self._probe: Probe | None = None

    async def read(self) -> None:
        """Read up to and with the first visible event."""
        if self._breaker is not None:
            self._probe = self._breaker.enter(self.call)
        try:
            async for event in self.events:
                self.lead.append(event)
                if event.visible:
                    break
        except ProviderError as error:
            self.broke(error)
            raise
        if self._breaker is not None:
            self._breaker.succeeded(self.call)

    def broke(self, error: ProviderError) -> None:
        """Tell the breaker of a failure of this request."""
        if self._breaker is not None:
            self._breaker.failed(self.call, error, self._probe)

    async def aclose(self) -> None:
        """Close the request and give back what it holds; may be called twice."""
        try:
            await self.events.aclose()
        finally:
            if self._probe is not None and self._breaker is not None:
                self._breaker.left(self._probe)


class _Race:
    """Both requests of a call: the first in the caller's own task, the second in one that never outlives the race."""

    def __init__(self, first: _Runner, second: _Runner, breaker: Breaker | None) -> None:
        ctx = cast(RunContext, first.call.ctx)
        self._first = first
        self._second = second
        self._breaker = breaker
        self._clock = ctx.services.clock
        self._account = ctx.account
        self._mark = len(ctx.account.records)
        self._abort = Abort(None, None)
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._winner: _Runner | None = None

    async def run(self, after: float) -> _Runner:
        """Return the request that showed a visible event first, the other one closed; raises the first one's error."""
        self._timer = self._clock.call_at(self._clock.now() + after, self._start)
        try:
            with self._abort:
                await self._first.read()
            self._winner = self._first
        except _OvertakenError:
            self._winner = self._second
        except ProviderError as error:
            await self._decided_by_second(error)
        if self._winner is not self._second:
            await self._end_second()
        return self._winner or self._first

    async def _decided_by_second(self, error: ProviderError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._task is None or self._task.cancelled() or self._second.error is not None:
            raise error
        if self._breaker is not None:
            self._breaker.failed(self._first.call, error)
        self._winner = self._second

    def told(self) -> list[ChatEvent]:
        """Return what the stream begins with: the rows of what ended, and the winner's events so far."""
        lead = [] if self._winner is None else self._winner.lead
        known = {event.record.attempt for event in lead if isinstance(event, AttemptEnded)}
        ended: list[ChatEvent] = [
            AttemptEnded(record)
            for record in self._account.records[self._mark :]
            if record.call_id == self._first.call.id and record.attempt not in known
        ]
        return ended + lead

    async def aclose(self) -> None:
        """Close whatever is open; may be called twice."""
        try:
            await self._end_second()
        finally:
            await self._first.aclose()

    async def _end_second(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._task is not None:
                await _ended(self._task)
        finally:
            await self._second.aclose()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run_second(), name="agentkit hedge")

    async def _run_second(self) -> None:
        try:
            await self._second.read()
        except Exception as error:
            self._second.error = error
            if not isinstance(error, AgentkitError):
                _LOG.warning("A hedge of call %s failed", self._second.call.id, exc_info=True)
        else:
            self._abort.interrupt(_OvertakenError())


def hedge(policy: HedgePolicy, *, breaker: Breaker | None = None) -> Hedge:
    """Return the layer, for inside retry and outside of meter; `breaker` is the one that retry tells of its attempts.

    The first request is retry's to tell of, the second one this layer's.
    """
    return Hedge(policy, breaker)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait for its end; a cancellation meanwhile is passed on to it, and raised afterwards."""
    cut: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cut = error
    if cut is not None:
        raise cut
