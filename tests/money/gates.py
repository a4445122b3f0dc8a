"""A model and a ledger whose every await is a gate, which a test opens in the order it likes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal

from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatResponse,
    ChatStart,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    Usage,
)
from agentkit.errors import BadRequest, Overloaded, RateLimited, Refused, StreamBroken

MILLION = Decimal(1_000_000)
ANSWERS = (
    "plain",
    "tool",
    "child",
    "long",
    "silent",
    "odd",
    "rate limited",
    "overloaded",
    "broken",
    "bad",
    "refused",
    "number",
)
ENDS = (None, "cut", "cut with usage")


class Gates:
    """Places where somebody waits to be let on; `draining` lets everybody through."""

    def __init__(self):
        self.parked = []
        self.draining = False

    async def park(self, place, owner=None):
        """Wait to be let on, and return how."""
        if self.draining:
            await asyncio.sleep(0)
            return None
        gate = (place, owner, asyncio.get_running_loop().create_future())
        self.parked.append(gate)
        try:
            return await gate[2]
        finally:
            self.parked.remove(gate)

    def open(self, index, how, *places):
        """Let one of those that wait in these places on."""
        waiting = [future for place, _, future in self.parked if place in places and not future.done()]
        if waiting:
            waiting[index % len(waiting)].set_result(how)

    def drain(self):
        """Let everybody on, now and from now on."""
        self.draining = True
        for _, _, future in self.parked:
            if not future.done():
                future.set_result(None)


class Seen:
    """A request that reached a model, and what it was worth once it is over.

    `cost` is what its row has to say: dollars, or None for a price that is unknown beyond `least`. An `estimated` one
    costs `least` or more, and more than nothing.
    """

    def __init__(self, call, prices):
        self.call = call
        self.key = key_of(call)
        self.prices = prices
        self.live = True
        self.finished = False
        self.whole = False
        self.estimated = True
        self.heard = 0
        self.cost = None
        self.least = Decimal(0)

    def used(self, usage):
        """The provider told what was used."""
        self.estimated = False
        if self.prices is None:
            return
        fresh, written = self.prices
        odd = usage.cache_write_tokens
        self.least = ((usage.input_tokens - odd) * fresh + usage.output_tokens * written) / MILLION
        self.cost = None if odd else self.least

    def refused(self):
        """The provider provably did nothing."""
        self.estimated, self.cost, self.least = False, Decimal(0), Decimal(0)

    def over(self):
        """It ended; what nobody told is at least what was delivered."""
        self.live = False
        if self.estimated and self.prices is not None:
            self.least = -(-self.heard // 4) * self.prices[1] / MILLION


def key_of(call):
    """Return what names an attempt."""
    return call.ctx.correlation_id, call.id, call.attempt


class GatedModel:
    """Waits before it answers, before each piece and before its end; keeps what it was asked in `seen`."""

    def __init__(self, name, gates, seen, prices):
        self.name = self.provider = name
        self.prices = None if prices is None else tuple(Decimal(price) for price in prices)
        self._gates = gates
        self._seen = seen

    async def stream(self, call):
        """Answer as the gates are told."""
        one = Seen(call, self.prices)
        self._seen.append(one)
        try:
            kind, one.whole = await self._gates.park("asked", one) or ("plain", True)
            self._fail_early(kind, one)
            yield ChatStart(self.name, self.provider, "1")
            wishes = self._wishes(kind, call.request)
            for index, wish in enumerate(wishes):
                yield ToolCallDelta(index, wish.id, wish.name, wish.arguments)
                one.heard += len(wish.name) + len(wish.arguments)
                yield ToolCallReady(index, wish)
            pieces = () if wishes else self._pieces(kind, call.request)
            for piece in pieces:
                await self._write(one)
                one.heard += len(piece)
                yield TextDelta(piece)
            await self._write(one)
            usage = self._usage(kind, call.request)
            if usage.input_tokens is not None:
                one.used(usage)
            one.finished = True
            one.over()
            message = AssistantMessage("".join(pieces), wishes)
            stop = "tool_calls" if wishes else "stop"
            yield ChatEnd(ChatResponse(message, usage, stop, stop, self.name, self.provider, "1"))
        finally:
            if one.live:
                one.over()

    def _fail_early(self, kind, one):
        errors = {
            "rate limited": RateLimited("slow down", accepted=False, retry_after=2.0),
            "overloaded": Overloaded("busy"),
            "broken": StreamBroken("gone"),
            "bad": BadRequest("no", accepted=False),
            "refused": Refused("never"),
        }
        error = errors.get(kind)
        if error is not None:
            if error.accepted is False:
                one.refused()
            raise error

    async def _write(self, one):
        end = None if one.whole else await self._gates.park("writing", one)
        if end is not None:
            error = StreamBroken("cut")
            if end == "cut with usage":
                told = Usage(50, 40)
                one.used(told)
                error.usage = {"input_tokens": told.input_tokens, "output_tokens": told.output_tokens}
            raise error

    @staticmethod
    def _wishes(kind, request):
        wanted = {"tool": ("look", "fail"), "child": ("child",)}.get(kind, ())
        offered = {spec.name for spec in request.tools}
        return tuple(
            ToolCall(f"c{place}", name, '{"task": "t"}') for place, name in enumerate(wanted) if name in offered
        )

    @staticmethod
    def _pieces(kind, request):
        if kind == "long":
            cap = request.settings.max_tokens or 3_000
            return ("one two ", "word " * (min(cap, 3_000) * 4 // 5 - 2))
        return ("7",) if kind == "number" else ("one two ", "three four")

    @staticmethod
    def _usage(kind, request):
        if kind == "silent":
            return Usage(None, None)
        written = 3_000 if kind == "long" else 61
        cap = request.settings.max_tokens
        return Usage(53, written if cap is None else min(written, cap), cache_write_tokens=20 if kind == "odd" else 0)


class GatedLedger:
    """A ledger before and after whose writes one waits at a gate, when it is `slow`; `busy` counts what it works on."""

    def __init__(self, store, gates, *, slow):
        self.store = store
        self._gates = gates
        self._slow = slow
        self._idle = asyncio.Event()
        self._idle.set()
        self.busy = 0

    async def begin(self, entry, **how):
        """Begin the attempt."""
        await self._pause("begin", entry)
        refusal = await self._work(self.store.begin(entry, **how))
        await self._pause("begun", entry)
        return refusal

    async def settle(self, entries):
        """Tell the ends."""
        await self._pause("settle")
        await self._work(self.store.settle(entries))
        await self._pause("settled")

    async def entries(self, query, **page):
        """Return the rows."""
        return await self.store.entries(query, **page)

    async def totals(self, query):
        """Return the sums."""
        return await self.store.totals(query)

    async def standing(self, key):
        """Return what stands under a key."""
        return await self.store.standing(key)

    async def idle(self):
        """Wait until it works on nothing."""
        await self._idle.wait()

    async def _pause(self, place, entry=None):
        if self._slow:
            await self._gates.park(place, entry)

    async def _work(self, doing):
        self.busy += 1
        self._idle.clear()
        try:
            return await doing
        finally:
            self.busy -= 1
            if not self.busy:
                self._idle.set()


async def all_rows(store, query):
    """Return every row of a ledger that the query asks for."""
    page = await store.entries(query)
    rows = list(page.entries)
    while page.next is not None:
        page = await store.entries(query, after=page.next)
        rows += page.entries
    return rows


async def ended(task):
    """Wait for a task, whatever its end."""
    with suppress(BaseException):
        await task
