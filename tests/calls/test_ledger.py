"""The ledger of a runtime: a row before each call, settled after it, whatever happens; and ceilings that are shared."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, ModelSettings, RetryPolicy, Scope, UnpricedPolicy, Usage
from agentkit.core.contracts import CostQuery, SharedSpend
from agentkit.errors import ConfigurationError, MeterExceeded, Overloaded, StoreError
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store, open_store
from agentkit.testing import Fault, Hang, Reply, ScriptedModel

EVERYTHING = CostQuery(tenant=None)
USED = Usage(1_000, 100)
PRICE = "10/100"  # 0.01 for the input and 0.01 for the output of one call


def memory_store(ledger: MemoryLedgerStore) -> Store:
    """Return a durable store with this ledger."""
    return Store(MemoryRunLog(), MemoryKeyValueStore(), ledger, durable=True)


class Watching:
    """A model that remembers what the ledger held while it was asked."""

    provider, name = "test", "watching"

    def __init__(self, ledger: MemoryLedgerStore, *script: object) -> None:
        self.ledger = ledger
        self.model = ScriptedModel(list(script), repeat_last=True)
        self.seen: list[list[str]] = []

    async def stream(self, call):
        page = await self.ledger.entries(EVERYTHING)
        self.seen.append([entry.state for entry in page.entries])
        async for event in self.model.stream(call):
            yield event


async def test_a_row_is_there_before_the_call_and_settled_after_each_attempt():
    """Failed attempts and the good one leave a row each; every row was open while its attempt ran."""
    ledger = MemoryLedgerStore()
    model = Watching(ledger, Fault(Overloaded("busy")), Reply("yes", usage=USED))
    async with CallRuntime(store=memory_store(ledger), retry=RetryPolicy(base_delay=0)) as calls:
        ctx = calls.context("r", Scope(tenant="acme", user="ann", session="s1"))
        await Agent("clerk", Binding(model, price=PRICE)).run("q", ctx)
    assert model.seen == [["open"], ["settled", "open"]]
    first, second = (await ledger.entries(EVERYTHING)).entries
    assert (first.state, first.record.outcome, first.record.accepted) == ("settled", "error", False)
    assert (second.record.cost, second.record.agent) == (Decimal("0.02"), "clerk")
    assert (second.tenant, second.user, second.session) == ("acme", "ann", "s1")
    assert first.record.call_id == second.record.call_id
    (total,) = await ledger.totals(CostQuery(tenant="acme", by=("agent",)))
    assert (total.key, total.calls, total.attempts) == (("clerk",), 1, 2)


async def test_every_way_out_settles_its_row():
    """An early close, a cancelled call and a failure leave settled rows with what they cost; none stays open."""
    ledger = MemoryLedgerStore()
    async with CallRuntime(store=memory_store(ledger), retry=RetryPolicy(max_attempts=1)) as calls:
        async with calls.stream(Binding(ScriptedModel([Reply("one two three " * 500)]), price=PRICE), "q") as events:
            async for event in events:
                if getattr(getattr(event, "event", None), "text", ""):
                    break
        hanging = asyncio.ensure_future(calls.ask(Binding(ScriptedModel([Hang()]), price=PRICE), "q"))
        while len((await ledger.entries(EVERYTHING)).entries) < 2:
            await asyncio.sleep(0)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        with pytest.raises(Overloaded):
            await calls.ask(Binding(ScriptedModel([Fault(Overloaded("no"))]), price=PRICE), "q")
    rows = (await ledger.entries(EVERYTHING)).entries
    assert [row.state for row in rows] == ["settled"] * 3
    assert [row.record.outcome for row in rows] == ["closed", "cancelled", "error"]
    assert rows[0].record.usage.estimated
    assert rows[0].record.cost


class Broken(MemoryLedgerStore):
    """A ledger that cannot write for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = {"begin": 0, "settle": 0}
        self.settles = 0

    async def begin(self, entry, **how):
        if self.fails["begin"]:
            self.fails["begin"] -= 1
            raise StoreError("disk full")
        return await super().begin(entry, **how)

    async def settle(self, entries):
        self.settles += 1
        if self.fails["settle"]:
            self.fails["settle"] -= 1
            raise StoreError("disk full")
        await super().settle(entries)


async def test_what_cannot_be_written_down_is_not_sent():
    """A ledger that cannot take the beginning blocks the call, and the budget has its reservation back."""
    ledger = Broken()
    ledger.fails["begin"] = 1
    model = ScriptedModel([Reply("yes", usage=USED)], repeat_last=True)
    budget = Budget("1.00")
    async with CallRuntime(store=memory_store(ledger)) as calls:
        with pytest.raises(StoreError, match="disk full"):
            await calls.ask(Binding(model, price=PRICE), "q", budget=budget)
        assert not model.requests
        assert (budget.held(), budget.spent()) == (0, 0)
        await calls.ask(Binding(model, price=PRICE), "q", budget=budget)
    assert len((await ledger.entries(EVERYTHING)).entries) == 1


async def test_an_end_that_cannot_be_written_is_told_again_and_the_call_is_not():
    """The answer is kept, the provider is asked once, and the same row is settled with the next chance, once."""
    ledger = Broken()
    ledger.fails["settle"] = 1
    model = ScriptedModel([Reply("yes", usage=USED)], repeat_last=True)
    async with CallRuntime(store=memory_store(ledger)) as calls:
        answer = await calls.ask(Binding(model, price=PRICE), "q")
        assert answer.text == "yes"
        assert [row.state for row in (await ledger.entries(EVERYTHING)).entries] == ["open"]
        await calls.ask(Binding(model, price=PRICE), "q")
        ledger.fails["settle"] = 1
        await calls.ask(Binding(model, price=PRICE), "q")
    rows = (await ledger.entries(EVERYTHING)).entries
    assert [(row.state, row.record.cost) for row in rows] == [("settled", Decimal("0.02"))] * 3
    assert len(model.requests) == 3


async def test_workers_share_a_ceiling_over_one_file(tmp_path):
    """Three runtimes over a file spend together what the shared ceiling allows, and say what is in the way."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    answers = 0
    refusals = []

    async def work() -> None:
        nonlocal answers
        model = ScriptedModel([Reply("yes", usage=Usage(100, 10))], repeat_last=True)
        async with CallRuntime(
            store=url, budget=Budget("0.50", shared="acme/2026-12", strict=True, max_wait=60)
        ) as calls:
            while True:
                try:
                    await calls.ask(Binding(model, price="100/1000", settings=ModelSettings(max_tokens=10)), "q" * 40)
                except MeterExceeded as error:
                    refusals.append(error)
                    return
                answers += 1

    await asyncio.gather(work(), work(), work())
    store = open_store(url)
    standing = await store.ledger.standing("acme/2026-12")
    await store.aclose()
    assert standing == SharedSpend(Decimal("0.02") * answers)
    assert answers > 3
    assert standing.spent <= Decimal("0.50")
    assert {error.axis for error in refusals} == {"cost"}
    assert any("shared as 'acme/2026-12' (spent $" in str(error) for error in refusals)


async def test_what_another_worker_holds_is_waited_for(tmp_path):
    """A call that fits only when another worker's is over waits for that one, and then runs."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    gate = asyncio.Event()

    class Slow:
        provider, name = "test", "slow"

        async def stream(self, call):
            await gate.wait()
            async for event in ScriptedModel([Reply("slow", usage=Usage(10, 1))]).stream(call):
                yield event

    async with CallRuntime(store=url) as first, CallRuntime(store=url) as second:
        budgets = [Budget("0.15", shared="k", max_wait=60) for _ in range(2)]
        slow = asyncio.ensure_future(first.ask(Binding(Slow(), price="1/100"), "q", budget=budgets[0]))
        while not (await first.services.ledger.standing("k")).held:
            await asyncio.sleep(0)
        quick = ScriptedModel([Reply("quick", usage=Usage(10, 1))])
        waiting = asyncio.ensure_future(second.ask(Binding(quick, price="1/100"), "q", budget=budgets[1]))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        gate.set()
        assert [(await each).text for each in (slow, waiting)] == ["slow", "quick"]


async def test_a_shared_ceiling_needs_a_ledger_and_a_ceiling():
    """Without a store there is nothing to share, and without dollars nothing to hold; both are said before a call."""
    model = ScriptedModel([Reply("yes", usage=USED)])
    budget = Budget("1.00", shared="k")
    async with CallRuntime() as calls:
        with pytest.raises(ConfigurationError, match="needs a ledger: pass store="):
            await calls.ask(Binding(model, price=PRICE), "q", budget=budget)
    assert not model.requests
    assert budget.held() == 0
    with pytest.raises(ConfigurationError, match="together with max_cost_usd"):
        Budget(shared="k")


async def test_a_price_table_by_its_path(tmp_path):
    """`pricing=` takes the file of a table; its rules price calls."""
    file = tmp_path / "prices.toml"
    file.write_text('[[rule]]\nprovider = "test"\nmodel = "watching"\ninput = "1"\noutput = "1"\n')
    ledger = MemoryLedgerStore()
    model = Watching(ledger, Reply("yes", usage=USED))
    async with CallRuntime(store=memory_store(ledger), pricing=str(file)) as calls:
        answer = await calls.ask(Binding(model), "q")
    assert answer.cost == Decimal("0.0011")


async def test_strict_workers_use_a_shared_ceiling_up(tmp_path):
    """What one worker's own view would let it write is lowered to what all of them have left, and nobody passes it."""
    url, ceiling = f"sqlite:{tmp_path / 'runs.db'}", Decimal("0.50")
    caps: list[int] = []

    def reply(request):
        caps.append(request.settings.max_tokens)
        return Reply("yes", usage=Usage(20, request.settings.max_tokens // 3))

    answers = [0, 0, 0]
    async with CallRuntime(store=url) as one, CallRuntime(store=url) as two, CallRuntime(store=url) as three:
        workers = {
            number: (calls, Budget(ceiling, shared="acme", strict=True))
            for number, calls in enumerate((one, two, three))
        }
        while workers:
            for number, (calls, budget) in list(workers.items()):
                try:
                    await calls.ask(Binding(ScriptedModel(reply), price="1/100"), "q" * 40, budget=budget)
                    answers[number] += 1
                except MeterExceeded:
                    del workers[number]
    assert min(answers) > 1
    store = open_store(url)
    standing = await store.ledger.standing("acme")
    await store.aclose()
    least = Decimal(64 * 100) / 1_000_000
    assert ceiling - 2 * least < standing.spent <= ceiling
    assert standing.held == standing.uncertain == 0
    assert min(caps) < 128 < max(caps)


@pytest.mark.parametrize("policy", UnpricedPolicy)
async def test_a_declared_fallback_price_bounds_what_has_no_price(policy):
    """The call runs under a ceiling and counts the most it can have cost; what it did cost stays unknown, for good."""
    unlisted = ScriptedModel([Reply("yes", usage=Usage(1000, 100))], repeat_last=True)
    binding = Binding(Unlisted(unlisted), settings=ModelSettings(max_tokens=100))
    budget = Budget("0.05")
    async with CallRuntime(unpriced_policy=policy, fallback_price="10/50") as calls:
        answer = await calls.ask(binding, "q", budget=budget)
        assert (answer.cost, answer.known_cost, answer.cost_complete) == (None, 0, False)
        assert (budget.spent(), budget.cost_complete) == (0, False)
        assert budget.remaining() == Decimal("0.035"), "1,000 read at 10 and 100 written at 50 dollars a million"
        for _ in range(2):
            await calls.ask(binding, "q", budget=budget)
        with pytest.raises(MeterExceeded, match="cost up to"):
            await calls.ask(binding, "q", budget=budget)
    with pytest.raises(ConfigurationError, match="cheap"):
        CallRuntime(fallback_price="cheap")


class Unlisted:
    """A model that nobody has a price for."""

    provider, name = "test", "unlisted"

    def __init__(self, model) -> None:
        self.stream = model.stream
