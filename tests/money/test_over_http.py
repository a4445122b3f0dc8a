"""Whole runtimes against a server that fails in every way: its own count of requests is the ledger's."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from money.gates import all_rows

from agentkit import Agent, Binding, Budget, CallRuntime, Quota, RetryPolicy, Scope, ToolCall, Usage
from agentkit.core.contracts import CostQuery
from agentkit.errors import AgentkitError
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store
from agentkit.testing.loopback import HttpAnswer, LoopbackServer, answer_of
from agentkit.testing.turns import Turn

pytestmark = pytest.mark.timeout(300)  # a failure takes a while to shrink
SCOPE = Scope(tenant="t")
REFUSED = {"429": 429, "400": 400}  # provably not worked on
CUTS = ("cut", "reset", "reset at once", "hang")
WAYS = ("whole", "whole", "child", "500", *REFUSED, *CUTS)


class Server:
    """A loopback server that answers the n-th request in the n-th way, and counts by run what it gave."""

    def __init__(self, ways):
        self.ways = ways
        self.server = LoopbackServer(self.answer)
        self.whole = {}
        self.refused = Counter()
        self.tasks = {}

    @property
    def requests(self):
        """Return how many requests each run made."""
        return Counter(map(run_of, self.server.requests))

    def answer(self, received):
        """Return the next answer."""
        number, run = len(self.server.requests), run_of(received)
        way = self.ways[number % len(self.ways)]
        if way in REFUSED:
            self.refused[run] += 1
        if way.isdigit():
            return HttpAnswer(status=int(way), pieces=(b'{"error": {"message": "no"}}',))
        used = Usage(100 + number, 7 * number)
        calls = ()
        if way == "child" and "tools" in received.body:
            calls = (ToolCall(f"c{number}", "child", f'{{"task": "job {run}"}}'),)
        turn = Turn(text="" if calls else "one two three four", calls=calls, usage=used)
        if way not in CUTS:
            self.whole.setdefault(run, Counter())[used.input_tokens, used.output_tokens] += 1
            return turn
        whole = answer_of(turn, received)
        if way == "hang":
            asyncio.get_running_loop().call_later(0.005, self.tasks[run].cancel)
        kept = 0 if way == "reset at once" else len(whole.pieces) // 2
        then = {"cut": "close", "hang": "hang"}.get(way, "reset")
        return HttpAnswer(headers=whole.headers, pieces=whole.pieces[:kept], then=then)


def run_of(received):
    """Return the run a request belongs to."""
    return re.search(r"job (r\d+)", str(received.body["messages"]))[1]


async def read(calls, binding, prompt, ctx, events):
    """Read some events of a stream, then leave."""
    async with calls.stream(binding, prompt, ctx=ctx) as stream:
        async for _ in stream:
            events -= 1
            if events < 0:
                return None
        return stream.result


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from(WAYS), min_size=3, max_size=12),
    st.lists(st.sampled_from(["ask", "lead", 2, 6]), min_size=1, max_size=6),
)
def test_the_ledger_has_a_row_of_each_request_the_server_got(ways, jobs):
    """Each request has one row, whole answers cost what the server counted, refusals nothing, and the sums agree."""
    asyncio.run(check(Server(ways), jobs))


async def check(server, jobs):
    """Run the jobs and compare."""
    ledger, life, quota = MemoryLedgerStore(), Budget("1000"), Quota(max_usd="1000")
    store = Store(MemoryRunLog(), MemoryKeyValueStore(), ledger, durable=True)
    how = {"retry": RetryPolicy(max_attempts=2, base_delay=0), "breaker": None, "budget": life, "quota": quota}
    async with server.server as loopback, CallRuntime(store=store, **how) as calls:
        binding = Binding("openai:m", base_url=loopback.url, api_key="k", price="1000.1/3000.3")
        lead = Agent("lead", binding, tools=[Agent("child", binding).as_tool()])
        for number, kind in enumerate(jobs):
            run, ctx = f"r{number}", calls.context(f"r{number}", SCOPE)
            work = {
                "ask": lambda: calls.ask(binding, f"job {run}", ctx=ctx),
                "lead": lambda: lead.run(f"job {run}", ctx),
            }
            doing = work[kind]() if kind in work else read(calls, binding, f"job {run}", ctx, kind)
            server.tasks[run] = asyncio.create_task(doing)
        results = dict(
            zip(server.tasks, await asyncio.gather(*server.tasks.values(), return_exceptions=True), strict=True)
        )
    rows = [row.record for row in await all_rows(ledger, CostQuery(tenant=None)) if row.state == "settled"]
    for run, result in results.items():
        assert not isinstance(result, Exception) or isinstance(result, AgentkitError)
        compare(server, run, [row for row in rows if row.run_id == run], result)
    assert sum(server.requests.values()) == len(rows)
    total = sum((row.cost for row in rows), Decimal(0))
    assert life.spent() == quota.spent_in_window(SCOPE.key()) == total
    assert life.held() == quota.held(SCOPE.key()) == 0


def compare(server, run, rows, result):
    """What the server counted for a run is in its rows."""
    assert len(rows) == server.requests[run]
    assert sum(row.cost == 0 for row in rows) == server.refused[run]
    exact = Counter(
        (row.usage.input_tokens, row.usage.output_tokens) for row in rows if row.cost and not row.usage.estimated
    )
    told = server.whole.get(run, Counter())
    assert exact <= told
    if result is not None and not isinstance(result, BaseException):
        assert exact == told
        assert result.cost == sum((row.cost for row in rows), Decimal(0))
    for row in rows:
        if not row.usage.estimated and row.cost:
            used = row.usage
            assert (
                row.cost == (used.input_tokens * Decimal("1000.1") + used.output_tokens * Decimal("3000.3")) / 1_000_000
            )
