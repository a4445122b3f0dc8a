"""Signals of sub-agents to who started them: delivered with backpressure, audited without."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from uuid import uuid4

from msgspec import Struct

from agentkit.core.runtime.checks import whole
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.errors import ConfigurationError

__all__ = ["Signal", "SignalChannel"]


class Signal(Struct, frozen=True):
    """One signal; `payload` is a frozen copy of data, `causation_id` the signal it answers."""

    kind: str
    payload: object
    sender: str
    id: str
    causation_id: str | None
    at: datetime


class _Inbox:
    """The bounded queue of one receiver."""

    __slots__ = ("closed", "items", "news", "room", "size")

    def __init__(self, size: int) -> None:
        self.items: deque[Signal] = deque()
        self.size = size
        self.closed = False
        self.news = asyncio.Event()
        self.room = asyncio.Event()


class SignalChannel:
    """A way up to the parent: `emit` waits while the parent's inbox is full, `receive` takes from it.

    Every emitted signal also goes to an audit tap of the sender's, which never blocks: it drops its oldest and counts
    them in `dropped`. Closing wakes everybody who waits; what was delivered can still be received.
    """

    __slots__ = ("_clock", "_inbox", "_tap", "dropped", "sender")

    def __init__(
        self,
        size: int = 64,
        *,
        tap_size: int = 256,
        sender: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        whole("SignalChannel", "size", size, 1)
        whole("SignalChannel", "tap_size", tap_size, 0)
        self._inbox = _Inbox(size)
        self._tap: deque[Signal] = deque(maxlen=tap_size)
        self._clock = clock
        self.sender = sender
        self.dropped = 0

    def child(self, sender: str) -> SignalChannel:
        """Return a channel of another sender into the same inbox, with a tap of its own."""
        child = SignalChannel(
            self._inbox.size,
            tap_size=self._tap.maxlen or 0,
            sender=sender,
            clock=self._clock,
        )
        child._inbox = self._inbox
        return child

    async def emit(self, kind: str, payload: object = None, *, causation_id: str | None = None) -> bool:
        """Deliver a signal, waiting for room in the inbox; returns False when the channel is closed.

        Raises ConfigurationError for a payload that is not plain data.
        """
        signal = Signal(
            kind,
            _frozen(payload),
            self.sender,
            uuid4().hex,
            causation_id,
            self._clock.wall(),
        )
        if len(self._tap) == self._tap.maxlen:
            self.dropped += 1
        self._tap.append(signal)
        inbox = self._inbox
        while len(inbox.items) >= inbox.size and not inbox.closed:
            inbox.room.clear()
            await inbox.room.wait()
        if inbox.closed:
            return False
        inbox.items.append(signal)
        inbox.news.set()
        return True

    async def receive(self) -> Signal | None:
        """Return the next signal in order of delivery, waiting for it; None when closed and empty."""
        inbox = self._inbox
        while not inbox.items:
            if inbox.closed:
                return None
            inbox.news.clear()
            await inbox.news.wait()
        inbox.room.set()
        return inbox.items.popleft()

    def audit(self) -> tuple[Signal, ...]:
        """Return the latest signals this sender emitted, delivered or not."""
        return tuple(self._tap)

    def close(self) -> None:
        """Close the inbox for all its senders; a second call does nothing."""
        inbox = self._inbox
        inbox.closed = True
        inbox.news.set()
        inbox.room.set()


def _frozen(value: object) -> object:
    if value is None or isinstance(value, (str, int, float, bool, bytes)):
        return value
    if isinstance(value, Mapping):
        return MappingProxyType({str(key): _frozen(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    raise ConfigurationError(f"A signal's payload is plain data; {type(value).__name__} is not. Pass a dict of it.")
