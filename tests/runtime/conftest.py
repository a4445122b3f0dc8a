"""What the runtime's tests share: calls with a bound, priced rows, and a clock that stands still."""

from __future__ import annotations

from decimal import Decimal
from itertools import count

import pytest

from agentkit.core.contracts import Call, ChatRequest, CostRecord, Quote, Scope, Usage, UserMessage
from agentkit.core.runtime.context import RunContext
from agentkit.testing import ManualClock

_IDS = count(1)
REQUEST = ChatRequest((UserMessage("hello"),))


class Maker:
    """Makes calls and rows for meters, without any model."""

    @staticmethod
    def call(cost="0.30", *, ctx=None, tenant="acme", tokens=(0, 0), attempt=1, quoted=True):
        """Return a call whose bound is `cost` dollars and `tokens` (input, output)."""
        ctx = ctx or RunContext(f"run-{next(_IDS)}", Scope(tenant))
        quote = Quote(*tokens, None if cost is None else Decimal(cost)) if quoted else None
        return Call(ctx, REQUEST, f"call-{next(_IDS)}", None, attempt, "main", quote)

    @staticmethod
    def row(call, cost="0.30", *, accepted=True, usage=Usage(10, 5), outcome="ok"):
        """Return the priced row of the call's attempt."""
        return CostRecord(
            run_id=call.ctx.correlation_id,
            path=call.ctx.path,
            call_id=call.id,
            attempt=call.attempt,
            purpose=call.purpose,
            provider="scripted",
            model="m",
            outcome=outcome,
            usage=usage,
            cost=None if cost is None else Decimal(cost),
            accepted=accepted,
        )


@pytest.fixture
def make():
    """Return the maker of calls and rows."""
    return Maker


@pytest.fixture
def clock():
    """Return a clock that stands still."""
    return ManualClock()
