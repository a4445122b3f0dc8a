"""Fifty agents for five tenants on a server that fails now and then: the ledger's report is the server's own bill.

Run it: python examples/ledger_report.py
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

from agentkit import Agent, Binding, CallRuntime, RetryPolicy, Scope, tool
from agentkit.cli.table import text_table
from agentkit.core.contracts import CostQuery, ToolCall, Usage
from agentkit.testing import HttpAnswer, LoopbackServer, Turn
from agentkit.testing.loopback import Received
from agentkit.testing.turns import write_turn

TENANTS = ("acme", "globex", "initech", "umbrella", "wonka")
AGENTS_EACH = 10
PRICE = {"input": "3", "cache_read": "0.30", "cache_write": "3.75", "output": "15"}
STREAM = {"content-type": "text/event-stream"}


class BillingServer:
    """Answers chat requests, counts what it bills to each key, and fails in three ways with a fixed dice."""

    def __init__(self) -> None:
        self.dice = random.Random(12)
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def __call__(self, received: Received) -> Turn | HttpAnswer:
        tenant = received.headers["authorization"].removeprefix("Bearer key-of-")
        read = 40 * len(received.body["messages"])
        usage = Usage(read + self.dice.randrange(900), self.dice.randrange(1, 300), read // 2)
        fault = self.dice.random()
        if fault < 0.10:
            self.faults["429 before any work"] += 1
            return HttpAnswer(
                status=429, headers={"retry-after": "0"}, pieces=(b'{"error":{"type":"rate_limit_error"}}',)
            )
        if fault < 0.16:
            self.faults["529 overloaded"] += 1
            return HttpAnswer(status=529, pieces=(b'{"error":{"type":"overloaded_error"}}',))
        if fault < 0.24:  # the prompt was read, and is billed; nothing of an answer was sent
            self.faults["reset after the prompt was read"] += 1
            broken = Usage(usage.input_tokens, 0, usage.cache_read_tokens)
            self.bill(tenant, broken, answered=False)
            pieces = write_turn(Turn(usage=broken), "chat")
            return HttpAnswer(headers=STREAM, pieces=(pieces[0], pieces[-2]), then="reset")
        self.bill(tenant, usage, answered=True)
        if received.body["messages"][-1]["role"] == "tool":
            return Turn(text="It is done.", usage=usage)
        return Turn(calls=(ToolCall("call_1", "stock", '{"item": "tea"}'),), usage=usage)

    def bill(self, tenant: str, usage: Usage, *, answered: bool) -> None:
        self.answers[tenant] += answered
        self.tokens[tenant, "ordinary"] += usage.input_tokens - usage.cache_read_tokens
        self.tokens[tenant, "cached"] += usage.cache_read_tokens
        self.tokens[tenant, "output"] += usage.output_tokens

    def dollars(self, tenant: str) -> Fraction:
        rates = {"ordinary": Fraction(3), "cached": Fraction(3, 10), "output": Fraction(15)}
        return sum(self.tokens[tenant, kind] * rate for kind, rate in rates.items()) / 1_000_000


@tool(effect="read")
async def stock(item: str) -> str:
    "How much of an item there is."
    return f"There are 7 of {item}."


async def one_agent(calls: CallRuntime, url: str, tenant: str, number: int) -> None:
    binding = Binding("openai:billed", base_url=url, api_key=f"key-of-{tenant}", price=PRICE)
    agent = Agent(f"clerk-{number}", binding, tools=[stock])
    await agent.run(
        "Is there tea?", calls.context(f"{tenant}-{number}", Scope(tenant=tenant, user=f"user-{number % 3}"))
    )


async def main() -> tuple[int, int]:
    "Run everything, compare both bills, and return how many attempts and calls the ledger holds."
    server = BillingServer()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:{Path(folder, 'runs.db')}"
        async with LoopbackServer(server) as loopback:
            retry = RetryPolicy(max_attempts=12, base_delay=0.001, max_delay=0.01)
            async with CallRuntime(store=store, retry=retry, breaker=None) as calls:
                await asyncio.gather(
                    *(one_agent(calls, loopback.url, name, number) for name in TENANTS for number in range(AGENTS_EACH))
                )
                sums = await calls.services.ledger.totals(CostQuery(tenant=None, by=("tenant",)))
    head = ["tenant", "who says so", "answers", "input", "cached", "output", "dollars"]
    rows = []
    for total in sums:
        (name,) = total.key
        bill = server.dollars(name)
        ordinary, cached, output = (server.tokens[name, kind] for kind in ("ordinary", "cached", "output"))
        ours = [total.calls, total.input_tokens, total.cache_read_tokens, total.output_tokens, Fraction(total.cost)]
        theirs = [server.answers[name], ordinary + cached, cached, output, bill]
        assert ours == theirs, f"{name}: the ledger says {ours}, the server {theirs}"
        rows.append([name, "ledger", *map(str, ours[:-1]), f"{total.cost:f}"])
        rows.append(["", "server", *map(str, theirs[:-1]), f"{bill.numerator / bill.denominator:.12f}"])
    print(text_table(head, rows, left=2))
    print(f"faults on the way: {dict(server.faults)}")
    attempts, answers = sum(total.attempts for total in sums), sum(total.calls for total in sums)
    print(f"{attempts} attempts of {answers} calls; both bills agree")
    return attempts, answers


if __name__ == "__main__":
    asyncio.run(main())
