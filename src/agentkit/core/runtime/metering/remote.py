"""A quota whose windows are kept elsewhere, for all workers together."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

from agentkit.core.contracts import (
    ZERO,
    Call,
    Charge,
    ChatRequest,
    QuotaLimits,
    QuotaStanding,
    QuotaStore,
    Quote,
    Usage,
    add_money,
)
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.metering.admission import WaitingRoom
from agentkit.core.runtime.metering.feedback import Feedback
from agentkit.core.runtime.metering.limits import Refusal
from agentkit.core.runtime.metering.windows import (
    Priority,
    latest,
    over_dollars,
    over_requests,
    over_tokens,
    rank,
    tokens_used,
    unknown_rest,
)
from agentkit.errors import StoreError

__all__ = ["RemoteWindows"]

_LOG = logging.getLogger("agentkit")
_REFUSED = QuotaStanding("store")


class RemoteWindows:
    """Reserves in a store, waits in this process, and takes bounds back behind the caller's back.

    A bound counts until it is replaced or has left the window, so what a worker that died had reserved is free again
    a window later. `on_error` "open" lets calls through while the store cannot answer, "closed" refuses them.
    """

    def __init__(
        self,
        store: QuotaStore,
        on_error: Literal["open", "closed"],
        limits: Callable[[], QuotaLimits],
        clock: Clock,
        feedback: Feedback,
        priority: Priority | None,
    ) -> None:
        self.store = store
        self._on_error = on_error
        self._limits = limits
        self._clock = clock
        self._feedback = feedback
        self._priority = priority
        self._bounds: dict[tuple[str, int, int], tuple[str, int, Quote]] = {}
        self._rooms: dict[str, WaitingRoom] = {}
        self._lock = threading.Lock()
        self._settling: set[asyncio.Task[None]] = set()

    async def reserve(self, key: str, call: Call[ChatRequest], quote: Quote, *, waits: bool) -> Charge | None:
        """Reserve a bound, in turn when the call waits; None when it is admitted, else the verdict."""
        refusal = await self._opened(key, call, quote, waits=waits)
        if refusal is not None:
            return Charge(False, refusal.reason, axis=refusal.axis)
        standing = await self._reserve(key, call, quote)
        if standing.axis and waits and not _never_fits(quote, self._limits()):
            standing = await self._wait(key, call, quote)
        if not standing.axis:
            return None
        refusal = _refusal(standing, self._limits(), quote)
        return Charge(False, refusal.reason, standing.dollars, calls=standing.requests, axis=refusal.axis)

    def settle(
        self, key: str, call: Call[ChatRequest], usage: Usage, cost: Decimal, *, known: bool, accepted: bool
    ) -> None:
        """Replace an attempt's bound, when it has one, by what it used; the store hears of it soon.

        Where only a part of the dollars is `known`, the rest of the bound stays taken.
        """
        bound = self._bounds.get(_name(call)) if accepted else None
        quote = None if bound is None else bound[2]
        dollars = cost if known else add_money(cost, unknown_rest(cost, quote))
        self._replace(call, tokens_used(usage, quote), dollars)

    def release(self, key: str, call: Call[ChatRequest]) -> None:
        """Give an attempt's tokens and money back."""
        self._replace(call, 0, ZERO)

    def resize(self, key: str, call: Call[ChatRequest], quote: Quote) -> None:
        """Leave the first bound as it is until the attempt is settled."""

    def verdict(self, key: str) -> Charge:
        """Return a good verdict: where the key stands only the store knows."""
        return Charge(True)

    async def standing(self, key: str) -> QuotaStanding:
        """Return what counts for the key now; raises StoreError."""
        return await self.store.standing(key, self._limits().window)

    async def flush(self) -> None:
        """Wait until the store has heard of everything that was settled."""
        while self._settling:
            await asyncio.wait(set(self._settling))

    async def _opened(self, key: str, call: Call[ChatRequest], quote: Quote, *, waits: bool) -> Refusal | None:
        """Return why the provider would turn the call away, after waiting for that to pass where one may."""
        until = latest(call, self._clock)
        while True:
            now = self._clock.now()
            refusal = self._feedback.lacks(key, call.route, quote, 0, now)
            opens = None if refusal is None else self._feedback.until(key, call.route, now)
            if refusal is None or not waits or opens is None or now >= until:
                return refusal
            await self._clock.sleep(max(0.0, min(opens, until) - now))

    async def _reserve(self, key: str, call: Call[ChatRequest], quote: Quote) -> QuotaStanding:
        """Reserve once; the answer names the axis that refused, "store" when the store cannot answer."""
        try:
            standing = await self.store.reserve(key, quote, self._limits())
        except StoreError as error:
            _LOG.warning("The quota's store cannot answer, so it fails %s: %s", self._on_error, error.message)
            return QuotaStanding() if self._on_error == "open" else _REFUSED
        if not standing.axis:
            self._bounds[_name(call)] = (key, standing.slice, quote)
        return standing

    async def _wait(self, key: str, call: Call[ChatRequest], quote: Quote) -> QuotaStanding:
        """Reserve in one's turn, at most until the deadline."""
        until = latest(call, self._clock)
        with self._lock:
            room = self._rooms.setdefault(key, WaitingRoom())
            ticket = room.enter(call.ctx.scope.tenant, rank(call, self._priority))
        standing = _REFUSED
        try:
            while True:
                at = until
                if room.is_first(ticket):
                    standing = await self._reserve(key, call, quote)
                    if not standing.axis:
                        return standing
                    at = min(until, self._clock.now() + max(0.01, standing.wait))
                if self._clock.now() >= until:
                    return standing
                ticket.reset()
                await room.woken(ticket, at, self._clock)
        finally:
            with self._lock:
                room.leave(ticket, admitted=not standing.axis)
                room.wake()
                if not room.busy:
                    self._rooms.pop(key, None)

    def _replace(self, call: Call[ChatRequest], tokens: int, dollars: Decimal) -> None:
        bound = self._bounds.pop(_name(call), None)
        if bound is None:
            return
        key, slice_, quote = bound
        task = asyncio.ensure_future(self._tell(key, slice_, quote, tokens, dollars, self._limits().window))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _tell(self, key: str, slice_: int, bound: Quote, tokens: int, dollars: Decimal, window: float) -> None:
        try:
            await self.store.settle(key, slice_, bound, tokens, dollars, window)
        except StoreError as error:
            _LOG.warning("A bound stays counted for a window, since the quota's store failed: %s", error.message)


def _name(call: Call[ChatRequest]) -> tuple[str, int, int]:
    return call.id, call.attempt, id(call.quote)


def _never_fits(quote: Quote, limits: QuotaLimits) -> bool:
    """Return whether the bound is more than an empty window takes."""
    if limits.requests is not None and limits.requests < 1:
        return True
    if limits.tokens is not None and quote.input_tokens + quote.output_tokens > limits.tokens:
        return True
    return limits.dollars is not None and (quote.cost or ZERO) > limits.dollars


def _refusal(standing: QuotaStanding, limits: QuotaLimits, quote: Quote) -> Refusal:
    """Return what the store's answer says, in the words of a quota in memory."""
    if standing.axis == "store":
        return Refusal("store", "the quota's store cannot answer")
    if standing.axis == "requests":
        return over_requests(standing.requests + 1, limits)
    if standing.axis == "tokens":
        return over_tokens(standing.tokens + quote.input_tokens + quote.output_tokens, limits)
    return over_dollars(add_money(standing.dollars, quote.cost or ZERO), limits)
