"""Meters that keep a second account of themselves, by what they were told to do."""

from __future__ import annotations

from decimal import Decimal

from money.gates import key_of

from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.metering.quota import Quota


class Watch:
    """Keeps the calls it let in until they end, and the rows it was given."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.live = {}
        self.entering = []
        self.booked = []
        self.unsure = Decimal(0)

    async def reserve(self, call):
        """Reserve, and remember it."""
        self.entering.append(key_of(call))
        try:
            verdict = await super().reserve(call)
        finally:
            self.entering.remove(key_of(call))
        if verdict is None:
            assert key_of(call) not in self.live
            self.live[key_of(call)] = (call, call.quote)
            self.admitted(call)
        return verdict

    def settle(self, call, record):
        """Settle, and remember the row."""
        super().settle(call, record)
        _, quote = self.live.pop(key_of(call), (call, None))
        self.booked.append((call, record))
        if record.cost is None and record.accepted and quote is not None:
            self.unsure += max(Decimal(0), (quote.cost or Decimal(0)) - record.known_cost)

    def release(self, call):
        """Release, and forget the call."""
        super().release(call)
        self.live.pop(key_of(call))

    def resize(self, call, quote):
        """Resize, and remember the bound."""
        super().resize(call, quote)
        if key_of(call) in self.live:
            self.live[key_of(call)] = (call, quote)

    def admitted(self, call):
        """Check what holds right after a call was let in."""

    def reserved(self, wanted=lambda _: True):
        """Return the dollars of the bounds of those let in."""
        quotes = [quote for call, quote in self.live.values() if wanted(call)]
        return sum((quote.cost or Decimal(0) for quote in quotes if quote is not None), Decimal(0))

    def settled(self, wanted=lambda _: True):
        """Return the dollars of the rows."""
        return sum((record.at_least for call, record in self.booked if wanted(call)), Decimal(0))


class WatchedBudget(Watch, Budget):
    """A budget that checks its counter."""

    def admitted(self, call):
        """A bound fits when it is reserved: only answers beyond their bounds can cross the ceiling."""
        assert self.max_cost_usd is None or self.taken() <= self.max_cost_usd

    def taken(self):
        """Return what is settled, uncertain and reserved."""
        return self.spent() + self.uncertain() + self.held()

    def check(self):
        """The counter is what was settled and what is reserved, and a strict ceiling is never crossed."""
        assert self.spent() == self.settled()
        assert self.held() == self.reserved()
        assert self.uncertain() == self.unsure
        if self.strict and self.max_cost_usd is not None:
            assert self.taken() <= self.max_cost_usd
        if self.max_calls is not None:
            assert self.calls <= self.max_calls


class WatchedQuota(Watch, Quota):
    """A quota that checks its counters."""

    def check(self, scopes):
        """The counter of each key is what was settled and what is reserved."""
        for scope in scopes:

            def mine(call, key=scope.key()):
                return call.ctx.scope.key() == key

            assert self.spent_in_window(scope.key()) == self.settled(mine)
            assert self.held(scope.key()) == self.reserved(mine)
