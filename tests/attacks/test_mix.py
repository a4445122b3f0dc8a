"""Many calls of every kind at once, cut at arbitrary moments: all counters agree afterwards and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import random
from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, Quota, Scope, ToolCall, Usage, tool
from agentkit.core.contracts import ChatRequest, RetryPolicy, UserMessage
from agentkit.core.runtime import CancellationToken
from agentkit.errors import AgentkitError, BadRequest, Overloaded, RateLimited, StreamBroken
from agentkit.testing import Fault, Hang, Reply, ScriptedModel

SCOPES = [Scope(tenant=f"t{number}") for number in range(3)]
JOBS = 24


async def turns(number):
    """Give way that often."""
    for _ in range(number):
        await asyncio.sleep(0)


class Mix:
    """One runtime, its meters, and models and jobs drawn from a seed."""

    def __init__(self, seed, *, strict):
        self.draw = random.Random(seed)
        self.strict = strict
        limits = {"on_exceeded": self.draw.choice(["raise", "stop"]), "strict": strict, "max_wait": 0}
        self.life = Budget(self.draw.choice(["0.01", "0.03", "1"]), **limits)
        self.shared = Budget(self.draw.choice(["0.01", "0.04", None]), **limits)
        self.quota = Quota(max_usd=self.draw.choice(["0.02", None]), on_exceeded=self.draw.choice(["raise", "stop"]))
        self.models, self.contexts = [], []
        self.bindings = [self.binding() for _ in range(3)]
        tools = [self.noted("look", "read"), self.noted("save", "write")]
        child = Agent("child", self.binding(), tools=tools)
        self.lead = Agent("lead", self.binding(), tools=[*tools, child.as_tool()])

    def noted(self, name, effect):
        """Return a tool that sometimes fails."""

        @tool(name=name, effect=effect)
        async def act(task: str) -> str:
            """Act."""
            await turns(self.draw.randint(0, 2))
            if self.draw.random() < 0.1:
                raise ValueError(task)
            return task

        return act

    def binding(self):
        """Return a binding to a model of its own, sometimes with a fallback."""
        model = ScriptedModel(self.reply)
        self.models.append(model)
        return Binding(model, price="1/1", fallback=[self.binding()] if self.draw.random() < 0.3 else [])

    def reply(self, request):
        """Return an answer of any kind, good or bad."""
        draw, dice = self.draw, self.draw.random()
        used = None if self.strict else draw.choice([None, None, Usage(20, draw.randint(1, 1500))])
        if dice < 0.08:
            return Hang(draw.randint(0, 4))
        if dice < 0.2:
            errors = [Overloaded("o"), RateLimited("r", accepted=False), StreamBroken("s"), BadRequest("b")]
            return Fault(draw.choice(errors), after=draw.randint(0, 4))
        if dice < 0.4 and request.tools:
            names = [draw.choice(request.tools).name for _ in range(draw.randint(1, 3))]
            wishes = (ToolCall(f"c{place}", name, '{"task": "t"}') for place, name in enumerate(names))
            return Reply("", tuple(wishes), usage=used)
        return Reply("word " * draw.randint(1, 200), usage=used)

    async def job(self, calls, number):
        """Make one call of some kind and read it as far as it comes to."""
        draw, token = self.draw, CancellationToken()
        budget = self.shared if draw.random() < 0.5 else Budget()
        ctx = calls.context(f"r{number}", draw.choice(SCOPES), budget=budget, cancel=token)
        self.contexts.append(ctx)
        place = ctx.child(name="x") if draw.random() < 0.3 else ctx
        if draw.random() < 0.2:
            asyncio.get_running_loop().call_soon(token.cancel)
        binding, kind = draw.choice(self.bindings), draw.randint(0, 3)
        if kind == 0:
            await calls.ask(binding, "hello", ctx=place)
        elif kind == 1:
            await self.lead.run("go", place)
        elif kind == 2:
            await self.read(self.lead.stream("go", place))
        else:
            route = calls.services.models.route(binding)
            await self.read(place.services.invoker.stream(ChatRequest((UserMessage("q"),)), place, route=route))

    async def read(self, stream):
        """Read some events, then stop, fail, or read on."""
        left = self.draw.randint(0, 30)
        async with stream as events:
            async for _ in events:
                left -= 1
                if left < 0:
                    break
                if self.draw.random() < 0.02:
                    raise KeyError("reader")

    async def play(self):
        """Run all jobs, cut some, and end what hangs."""
        policy = RetryPolicy(max_attempts=3, base_delay=0)
        async with CallRuntime(budget=self.life, quota=self.quota, retry=policy) as calls:
            tasks = [asyncio.create_task(self.job(calls, number)) for number in range(JOBS)]
            for task in tasks:
                if self.draw.random() < 0.3:
                    await turns(self.draw.randint(0, 6))
                    task.cancel()
            await turns(2000)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            gc.collect()
            await turns(10)
            assert asyncio.all_tasks() == {asyncio.current_task()}
        for outcome in outcomes:
            assert not isinstance(outcome, Exception) or isinstance(outcome, (AgentkitError, KeyError))

    def spent(self, wanted=lambda _: True):
        """Return what the rows of the wanted contexts cost."""
        rows = (row.cost for ctx in self.contexts if wanted(ctx) for row in ctx.account.records)
        return sum(rows, Decimal(0))


@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
async def test_all_counters_agree_after_any_mix(strict):
    """Budgets and quota equal the rows, nothing is held or open, and a strict ceiling was never crossed."""
    rows = 0
    for seed in range(25):
        mix = Mix(seed, strict=strict)
        await mix.play()
        rows += sum(len(ctx.account.records) for ctx in mix.contexts)
        assert mix.life.spent() == mix.spent()
        assert mix.shared.spent() == mix.spent(lambda ctx: ctx.budget is mix.shared)
        for scope in SCOPES:
            assert mix.quota.spent_in_window(scope.key()) == mix.spent(lambda ctx: ctx.scope == scope)
        for budget in (mix.life, mix.shared):
            assert budget.held() == 0
            assert not budget._room.busy
            assert not strict or budget.ceiling() is None or budget.spent() <= budget.ceiling()
        assert not any(model.open_streams for model in mix.models)
        assert not mix.life._accounts
    assert rows > 200
