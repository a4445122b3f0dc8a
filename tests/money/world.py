"""A whole runtime under meters that watch themselves, and the jobs a program starts, moves on and cuts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from decimal import Decimal

from money.gates import GatedLedger, GatedModel, Gates
from money.watched import WatchedBudget, WatchedQuota
from msgspec import Struct

from agentkit import Agent, Binding, CallRuntime, Scope, tool
from agentkit.core.contracts import ChatRequest, HedgePolicy, RetryPolicy, UserMessage
from agentkit.core.runtime import ActorBudget, CancellationToken
from agentkit.core.runtime.services import Services
from agentkit.stores import MemoryKeyValueStore, MemoryLedgerStore, MemoryRunLog, Store
from agentkit.testing import ManualClock

KEY = "acme/2026-12"
SCOPES = (Scope(tenant="a"), Scope(tenant="b", user="u"))
PROMPT = "Tell me all that you know about " + "umbrellas and rain " * 12
PLENTY = Decimal(1_000_000)
LONG = 100_000.0  # seconds of a quota's window


class Setup(Struct, frozen=True):
    """What limits a world: ceilings in dollars (None: none) and how they are kept."""

    strict: bool = False
    life: str | None = None
    group: str | None = None
    shared: str | None = None
    own: str | None = None
    quota: str | None = None
    quota_waits: bool = False
    on_exceeded: str = "raise"
    max_wait: float = 0.0
    midstream: bool = False
    max_calls: int | None = None
    hedge: str | None = None
    slow_ledger: bool = False
    slow_host: bool = False
    unlisted: bool = False  # the second model has no price, only a declared one


class World:
    """One runtime; `job` starts something, the gates and the clock move it on, `drain` brings all to an end."""

    def __init__(self, setup, store=None):
        self.setup = setup
        self.clock = ManualClock()
        self.gates = Gates()
        self.seen = []
        self.contexts = {}
        self.tokens = {}
        self.tasks = {}
        self.results = {}
        self.kinds = {}
        self.cut = set()
        self.actors = {}
        self.life = self._budget(setup.life, max_calls=setup.max_calls)
        self.group = self._budget(setup.group)
        self.shared = self._budget(setup.shared, shared=None if setup.shared is None else KEY, max_wait=0)
        self.budgets = [self.life, self.group, self.shared]
        waits = "wait" if setup.quota_waits else setup.on_exceeded
        self.quota = WatchedQuota(max_usd=setup.quota, window=LONG, clock=self.clock, on_exceeded=waits)
        self.ledger = GatedLedger(store or MemoryLedgerStore(clock=self.clock), self.gates, slow=setup.slow_ledger)
        self.binding = self._binding()
        self.calls = None
        child = Agent("child", self._binding(), tools=self._tools())
        self.lead = Agent("lead", self.binding, tools=[*self._tools(), child.as_tool()])

    def _budget(self, ceiling, **more):
        setup = self.setup
        how = {"strict": setup.strict, "on_exceeded": setup.on_exceeded, "max_wait": setup.max_wait, **more}
        return WatchedBudget(ceiling, clock=self.clock, stop_midstream=setup.midstream, **how)

    def _binding(self):
        dear = {"input": "2000.3", "output": "9000.7", "cache_read": "100"}
        cheap = {"input": "1000.1", "output": "5000.9", "cache_read": "50"}
        unlisted = self.setup.unlisted
        second = GatedModel("second", self.gates, self.seen, None if unlisted else (dear["input"], dear["output"]))
        first = GatedModel("first", self.gates, self.seen, (cheap["input"], cheap["output"]))
        return Binding(first, price=cheap, fallback=[Binding(second, price=None if unlisted else dear)])

    def _tools(self):
        @tool(effect="read")
        async def look(task: str) -> str:
            """Look."""
            await self.gates.park("tool")
            return task

        @tool(effect="read")
        async def fail(task: str) -> str:
            """Fail."""
            raise ValueError(task)

        return [look, fail]

    async def play(self, program, check):
        """Do what the program says, one step after the other, and check all after each; then end everything."""
        setup = self.setup
        store = Store(MemoryRunLog(), MemoryKeyValueStore(), self.ledger, durable=True)
        retry = RetryPolicy(max_attempts=2, base_delay=0)
        hedge = None if setup.hedge is None else HedgePolicy(after=5, to=setup.hedge)
        services = Services(clock=self.clock)
        how = {"budget": self.life, "quota": self.quota, "breaker": None, "services": services}
        async with AsyncExitStack() as stack:
            if setup.unlisted:
                how["fallback_price"] = "2000.3/9000.7"
            if setup.slow_host:
                how["acquire"] = self.acquire
            self.calls = await stack.enter_async_context(CallRuntime(store=store, retry=retry, hedge=hedge, **how))
            stack.callback(self.gates.drain)
            for name, *args in program:
                getattr(self, name)(*args)
                await self.quiet()
                await check(self)
            await self.drain()

    @asynccontextmanager
    async def acquire(self, mode):
        """Hold each attempt back, as a host may."""
        await self.gates.park("acquire")
        yield

    async def quiet(self):
        """Let everything run until all wait for a gate or the clock."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)
            self.at_every_turn()
            if not loop._ready:  # nothing is left to run
                if not self.ledger.busy:
                    return
                await self.ledger.idle()

    def at_every_turn(self):
        """Check what holds at any time."""
        for budget in self.budgets:
            budget.check()
        self.quota.check(SCOPES)

    def job(self, kind, place=0):
        """Start a call of some kind; the place says under which budgets, and whether there is a deadline."""
        run = f"r{len(self.tasks)}"
        self.tokens[run] = CancellationToken()
        budget = (self.group, self.shared)[place % 2]
        deadline = 25 if place // 2 % 2 else None
        scope = SCOPES[place // 4 % 2]
        ctx = self.calls.context(run, scope, budget=budget, cancel=self.tokens[run], deadline=deadline)
        self.contexts[run] = [ctx]
        self.kinds[run] = kind
        self.tasks[run] = asyncio.get_running_loop().create_task(self._do(kind, run, ctx))

    async def _do(self, kind, run, ctx):
        if kind in ("ask", "number"):
            own = None
            if self.setup.own is not None:
                own = self._budget(self.setup.own)
                self.budgets.append(own)
            self.results[run] = await self.calls.ask(
                self.binding, PROMPT, int if kind == "number" else None, ctx=ctx, budget=own
            )
        elif kind == "lead":
            self.results[run] = await self.lead.run(PROMPT, ctx)
        elif kind == "run":
            self.results[run] = await self.calls.run(self.binding, PROMPT, self._tools(), ctx=ctx, max_turns=2)
        elif kind == "slice":
            await self._sliced(run, ctx)
        elif kind in ("bare", "peek"):
            await self._bare(kind, run, ctx)
        else:
            await self._read(kind, run, ctx)

    async def _bare(self, kind, run, ctx):
        """Call the Invoker itself, and leave at the first piece when only to `peek`."""
        route = self.calls.services.models.route(self.binding)
        async with ctx.invoker.stream(ChatRequest((UserMessage(PROMPT),)), ctx, route=route) as events:
            async for event in events:
                if kind == "peek" and event.visible:
                    self.cut.add(run)
                    return

    async def _read(self, events, run, ctx):
        """Read that many events, then leave."""
        async with self.calls.stream(self.binding, PROMPT, self._tools(), ctx=ctx) as stream:
            async for _ in stream:
                events -= 1
                if events < 0:
                    self.cut.add(run)
                    return
            self.results[run] = stream.result

    async def _sliced(self, run, ctx):
        """Work as an actor with a slice of another one's budget."""
        whole = ActorBudget(max_cost_usd="50", clock=self.clock)
        part = whole.reserve_for_child(max_cost_usd="6")
        self.actors[run] = whole, part
        try:
            await self.lead.run(PROMPT, ctx.child(name="actor", actor_budget=part))
        finally:
            whole.settle_child(part)

    def answer(self, index, kind, whole):
        """Have a model that was asked answer, in one go or step by step."""
        self.gates.open(index, (kind, whole), "asked")

    def write(self, index, end):
        """Have an answer go on, or break."""
        self.gates.open(index, end, "writing")

    def let(self, index):
        """Let a tool or the ledger go on."""
        self.gates.open(index, None, "tool", "acquire", "begin", "begun", "settle", "settled")

    def cancel(self, index):
        """Cancel one of the jobs."""
        run = self._pick(index)
        if run is not None:
            self.cut.add(run)
            self.tasks[run].cancel()

    def trip(self, index):
        """Trip the token of one of the jobs."""
        run = self._pick(index)
        if run is not None:
            self.cut.add(run)
            self.tokens[run].cancel()

    def _pick(self, index):
        running = [run for run, task in self.tasks.items() if not task.done()]
        return running[index % len(running)] if running else None

    def tick(self, seconds):
        """Let time pass."""
        self.clock.advance(seconds)

    def more(self, dollars):
        """Raise a ceiling."""
        if self.group.max_cost_usd is not None:
            self.group.max_cost_usd += Decimal(dollars)

    async def drain(self):
        """Let everything go on to its end, suspended runs under ceilings that are high enough."""
        self.gates.drain()
        await self._finish()
        for budget in self.budgets:
            budget.max_cost_usd = PLENTY if budget.max_cost_usd is not None else None
            budget.max_calls = None
        self.quota.max_usd = None
        for run, (ctx, *_) in self.contexts.items():
            if self.kinds[run] == "lead" and run not in self.cut and self._unfinished(run):
                again = self.calls.context(run, ctx.scope, budget=ctx.budget)
                self.contexts[run].append(again)
                self.tasks[run] = asyncio.get_running_loop().create_task(self._resume(run, again))
        await self._finish()

    def _unfinished(self, run):
        result = self.results.get(run)
        return result is None or result.is_suspended

    async def _resume(self, run, ctx):
        self.results[run] = await self.lead.resume(run, ctx)

    async def _finish(self):
        for _ in range(20):
            await self.quiet()
            if all(task.done() for task in self.tasks.values()):
                break
            self.clock.advance(40)
        for task in self.tasks.values():
            task.cancel()
        for task in self.tasks.values():
            with suppress(BaseException):
                await task
        await self.quiet()
