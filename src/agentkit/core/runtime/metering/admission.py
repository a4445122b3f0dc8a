"""Attempts in flight and those who wait for them to end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from agentkit.core.contracts import ZERO, Call, ChatRequest, Quote, add_money, subtract_money
from agentkit.core.runtime.clock import Clock

__all__ = ["NOTHING_HELD", "Held", "Ticket", "WaitingRoom"]


class Held(Struct, frozen=True):
    """What attempts in flight have reserved together; `cost` is dollars."""

    cost: Decimal = ZERO
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    def plus(self, quote: Quote) -> Held:
        """Return the sum with one more attempt."""
        return Held(
            self.cost if quote.cost is None else add_money(self.cost, quote.cost),
            self.input_tokens + quote.input_tokens,
            self.output_tokens + quote.output_tokens,
            self.calls + 1,
        )

    def minus(self, quote: Quote) -> Held:
        """Return the sum with one attempt less."""
        return Held(
            self.cost if quote.cost is None else subtract_money(self.cost, quote.cost),
            self.input_tokens - quote.input_tokens,
            self.output_tokens - quote.output_tokens,
            self.calls - 1,
        )


NOTHING_HELD = Held()


class Reservation(Struct):
    """One attempt in flight: its bound, and who would have to move on for it to end."""

    quote: Quote
    run_id: str
    path: str
    task: asyncio.Task[object] | None
    twin: Reservation | None = None  # another attempt under the same number, as a hedge makes

    def blocks_itself(self, call: Call[ChatRequest]) -> bool:
        """Return whether waiting for this attempt would be waiting for oneself: same task, or an ancestor's."""
        if self.task is not None and self.task is _task():
            return True
        ctx = call.ctx
        same_run = ctx.correlation_id == self.run_id
        return same_run and ctx.path != self.path and (not self.path or ctx.path.startswith(self.path + "/"))


class Ticket:
    """A place in the queue, woken on the loop that drew it."""

    __slots__ = ("future", "loop", "owner", "priority")

    def __init__(self, owner: str = "", priority: int = 0) -> None:
        self.owner = owner
        self.priority = priority
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()

    def reset(self) -> None:
        """Be ready to be woken again."""
        if self.future.done():
            self.future = self.loop.create_future()

    def wake(self, worth_it: bool = True) -> None:
        """Wake the waiter, from any thread; `worth_it` False says that its time is over."""
        future = self.future

        def finish() -> None:
            if not future.done():
                future.set_result(worth_it)

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(finish)


class WaitingRoom:
    """Reservations by (call id, attempt) and a fair queue; the owner's lock guards every method but `woken`.

    The lowest priority number comes first, then whose owner has waited longest since it was last let in, then who
    came first.
    """

    __slots__ = ("_queue", "_reservations", "_turns", "held")

    def __init__(self) -> None:
        self._reservations: dict[tuple[str, int], Reservation] = {}
        self._queue: deque[Ticket] | None = None  # most budgets never see a waiter
        self._turns: dict[str, int] | None = None  # when each waiting owner was last let in
        self.held = NOTHING_HELD

    @property
    def busy(self) -> bool:
        """Return whether anything is held or waited for."""
        return bool(self._reservations or self._queue)

    def hold(self, call: Call[ChatRequest], quote: Quote) -> None:
        """Reserve the attempt's bound."""
        ctx = call.ctx
        key = (call.id, call.attempt)
        twin = self._reservations.get(key)
        self._reservations[key] = Reservation(quote, ctx.correlation_id, ctx.path, _task(), twin)
        self.held = self.held.plus(quote)

    def drop(self, call: Call[ChatRequest]) -> Reservation | None:
        """Forget an attempt's reservation and return it, None when it had none."""
        reservation = self._reservations.pop((call.id, call.attempt), None)
        if reservation is None:
            return None
        if reservation.twin is not None:
            reservation = self._parted(reservation, call)
        self.held = self.held.minus(reservation.quote) if self._reservations else NOTHING_HELD
        return reservation

    def resize(self, call: Call[ChatRequest], quote: Quote) -> None:
        """Hold another bound for the attempt; the call is to carry that quote from then on."""
        newest = self._reservations.get((call.id, call.attempt))
        if newest is None:
            return
        one = next((one for one in _with_twins(newest) if one.quote is call.quote), newest)
        self.held = self.held.minus(one.quote).plus(quote)
        one.quote = quote

    def _parted(self, newest: Reservation, call: Call[ChatRequest]) -> Reservation:
        """Return that of the twins which has the call's own bound, the newest by default; the others stay."""
        twins = list(_with_twins(newest))
        gone = next((one for one in twins if one.quote is call.quote), newest)
        chain: Reservation | None = None
        for one in reversed(twins):
            if one is not gone:
                one.twin, chain = chain, one
        if chain is not None:
            self._reservations[(call.id, call.attempt)] = chain
        return gone

    def _all(self) -> Iterator[Reservation]:
        for newest in self._reservations.values():
            yield from _with_twins(newest)

    def may_pass(self, call: Call[ChatRequest]) -> bool:
        """Return whether a call may go ahead of the queue: nobody waits, or they wait for what itself keeps open."""
        return not self._queue or any(one.blocks_itself(call) for one in self._all())

    def own(self, call: Call[ChatRequest]) -> Held:
        """Return what is held by attempts that cannot end while this call waits."""
        held = NOTHING_HELD
        for one in self._all():
            if one.blocks_itself(call):
                held = held.plus(one.quote)
        return held

    def enter(self, owner: str = "", priority: int = 0) -> Ticket:
        """Join the queue."""
        ticket = Ticket(owner, priority)
        if self._queue is None:
            self._queue = deque()
        self._queue.append(ticket)
        return ticket

    def is_first(self, ticket: Ticket) -> bool:
        """Return whether it is this waiter's turn."""
        return self._next() is ticket

    def leave(self, ticket: Ticket, *, admitted: bool = False) -> None:
        """Give up the place; an owner that was let in stands behind the others then."""
        if self._queue and ticket in self._queue:
            self._queue.remove(ticket)
        if not self._queue:
            self._turns = None
        elif admitted:
            turns = self._turns = self._turns or {}
            turns[ticket.owner] = 1 + max(turns.values(), default=0)

    def wake(self) -> None:
        """Let the first waiter look again."""
        if not self._queue:
            return
        while (first := self._next()) is not None and first.loop.is_closed():  # its waiter ended with its loop
            self.leave(first)
        if first is not None:
            first.wake()

    def _next(self) -> Ticket | None:
        queue = self._queue
        if not queue or len(queue) == 1:
            return queue[0] if queue else None
        turns = self._turns or {}
        return min(queue, key=lambda ticket: (ticket.priority, turns.get(ticket.owner, 0)))

    def names(self) -> str:
        """Return who holds reservations, for a refusal."""
        holders = sorted({f"{r.run_id}/{r.path}" if r.path else r.run_id for r in self._reservations.values()})
        shown = ", ".join(holders[:5])
        return shown + (f" and {len(holders) - 5} more" if len(holders) > 5 else "") if holders else "nobody"

    @staticmethod
    async def woken(ticket: Ticket, until: float, clock: Clock) -> bool:
        """Wait until this place is woken; False when `until` came first."""
        timer = clock.call_at(until, lambda: ticket.wake(worth_it=False))
        try:
            return await ticket.future
        finally:
            timer.cancel()


def _with_twins(newest: Reservation) -> Iterator[Reservation]:
    one: Reservation | None = newest
    while one is not None:
        yield one
        one = one.twin


def _task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
