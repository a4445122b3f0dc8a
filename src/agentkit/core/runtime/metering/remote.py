"""A quota whose windows are kept elsewhere, for all workers together."""

from __future__ import annotations

import asyncio
import logging
import threading
from decimal import Decimal
from typing import Literal

from agentkit.core.contracts import (
    ZERO,
    Call,
    ChatRequest,
    QuotaLimits,
    QuotaStanding,
    QuotaStore,
    Quote,
    add_money,
    render_money,
)
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.metering.admission import WaitingRoom
from agentkit.errors import StoreError

__all__ = ["RemoteWindows", "said"]

_LOG = logging.getLogger("agentkit")
_REFUSED = QuotaStanding("store")


class RemoteWindows:
    """Reserves in a store, waits in this process, and takes bounds back behind the caller's back.

    A bound counts until it is replaced or has left the window, so what a worker that died had reserved is free again
    a window later. `on_error` "open" lets calls through while the store cannot answer, "closed" refuses them.
    """

    def __init__(self, store: QuotaStore, on_error: Literal["open", "closed"], clock: Clock) -> None:
        self.store = store
        self._on_error = on_error
        self._clock = clock
        self._bounds: dict[tuple[str, int, int], tuple[str, int, Quote]] = {}
        self._rooms: dict[str, WaitingRoom] = {}
        self._lock = threading.Lock()
        self._settling: set[asyncio.Task[None]] = set()

    async def reserve(self, key: str, call: Call[ChatRequest], quote: Quote, limits: QuotaLimits) -> QuotaStanding:
        """Reserve once; the answer names the axis that refused, "store" when the store cannot answer."""
        try:
            standing = await self.store.reserve(key, quote, limits)
        except StoreError as error:
            _LOG.warning("The quota's store cannot answer, so it fails %s: %s", self._on_error, error.message)
            return QuotaStanding() if self._on_error == "open" else _REFUSED
        if not standing.axis:
            self._bounds[_name(call)] = (key, standing.slice, quote)
        return standing

    async def wait(
        self, key: str, call: Call[ChatRequest], quote: Quote, limits: QuotaLimits, priority: int, until: float
    ) -> QuotaStanding:
        """Reserve in one's turn, at most until the moment `until` of the clock."""
        with self._lock:
            room = self._rooms.setdefault(key, WaitingRoom())
            ticket = room.enter(call.ctx.scope.tenant, priority)
        standing = _REFUSED
        try:
            while True:
                at = until
                if room.is_first(ticket):
                    standing = await self.reserve(key, call, quote, limits)
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

    def settle(self, call: Call[ChatRequest], tokens: int, dollars: Decimal, window: float) -> None:
        """Replace an attempt's bound by what it used; the store hears of it soon, without anybody waiting."""
        bound = self._bounds.pop(_name(call), None)
        if bound is None:
            return
        key, slice_, quote = bound
        task = asyncio.ensure_future(self._tell(key, slice_, quote, tokens, dollars, window))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def bound(self, call: Call[ChatRequest]) -> Quote | None:
        """Return what the attempt has reserved."""
        found = self._bounds.get(_name(call))
        return None if found is None else found[2]

    async def flush(self) -> None:
        """Wait until the store has heard of everything that was settled."""
        while self._settling:
            await asyncio.wait(set(self._settling))

    async def _tell(self, key: str, slice_: int, bound: Quote, tokens: int, dollars: Decimal, window: float) -> None:
        try:
            await self.store.settle(key, slice_, bound, tokens, dollars, window)
        except StoreError as error:
            _LOG.warning("A bound stays counted for a window, since the quota's store failed: %s", error.message)


def _name(call: Call[ChatRequest]) -> tuple[str, int, int]:
    return call.id, call.attempt, id(call.quote)


def said(standing: QuotaStanding, limits: QuotaLimits, quote: Quote) -> str:
    """Return why a store refused the bound, for people."""
    if standing.axis == "store":
        return "the quota's store cannot answer"
    if standing.axis == "requests":
        return f"requests {standing.requests + 1} > {limits.requests} in {limits.window:g} s"
    if standing.axis == "tokens":
        tokens = standing.tokens + quote.input_tokens + quote.output_tokens
        return f"tokens up to {tokens} > {limits.tokens} in {limits.window:g} s"
    money = add_money(standing.dollars, quote.cost or ZERO)
    ceiling = limits.dollars or ZERO
    sign = ">" if money > ceiling else "reaches"
    return f"cost up to ${render_money(money)} {sign} ${render_money(ceiling)} in {limits.window:g} s"
