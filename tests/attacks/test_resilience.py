"""Failing, slow and dying models under retries, breaker, fallbacks and hedges: all counters agree and nothing is left."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit import Binding, Budget, CallRuntime
from agentkit.catalog import parse_price
from agentkit.core.contracts import (
    AttemptEnded,
    BreakerPolicy,
    Call,
    ChatEnd,
    ChatRequest,
    ChatStart,
    HedgePolicy,
    RetryPolicy,
    Route,
    TextDelta,
    UserMessage,
)
from agentkit.core.runtime.breaker import Breaker
from agentkit.core.runtime.services import Services
from agentkit.errors import AgentkitError, AuthFailed, BadRequest, Overloaded, ProviderError, RateLimited, StreamBroken
from agentkit.middleware.fallback import fallback
from agentkit.middleware.hedge import hedge
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel, make_context
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import Turn

REQUEST = ChatRequest((UserMessage("hi"),))
PRICE = parse_price("1/1")
ERRORS = [
    lambda: Overloaded("busy", status=503),
    lambda: Overloaded("full", status=529, accepted=False, retry_after=2.0),
    lambda: RateLimited("slow down", retry_after=1.5, accepted=False),
    lambda: RateLimited("no credit", retryable=False, accepted=False),
    lambda: StreamBroken("reset"),
    lambda: StreamBroken("refused", accepted=False),
    lambda: AuthFailed("wrong key", accepted=False),
    lambda: BadRequest("no such field", accepted=False),
    lambda: BadRequest("no such model", status=404, accepted=False),
]


class World:
    """Three models whose every reply is drawn from a seed, under all layers, on a clock by hand."""

    def __init__(self, seed) -> None:
        self.draw = draw = random.Random(seed)
        self.clock = ManualClock()
        self.said = []
        self.models = [ScriptedModel(self.reply, name=f"m{number}", clock=self.clock) for number in range(3)]
        one, two, three = (Route(model, model.name, "p", PRICE) for model in self.models)
        self.routes = [Route(one.port, "m0", "p", PRICE, fallback=(two, three)), two]
        breaker = Breaker(BreakerPolicy(failures=draw.randint(1, 4), cooldown=draw.choice([1, 5])))
        policy = RetryPolicy(max_attempts=draw.randint(1, 3), base_delay=draw.choice([0, 1]))
        to = draw.choice(["same", "fallback"])
        self.layers = [
            fallback(),
            retry(policy, random=draw.random, breaker=draw.choice([None, breaker])),
            *(
                [hedge(HedgePolicy(after=draw.choice([0, 1, 3]), to=to), breaker=breaker)]
                if draw.random() < 0.7
                else []
            ),
            meter(),
        ]
        ceiling = draw.choice(["1", "0.004"])
        self.budget = Budget(ceiling, clock=self.clock, max_wait=draw.choice([0, 5]))

    def reply(self, _):
        """Return an answer, a failure at any place, or a hang."""
        draw = self.draw
        number = len(self.said)
        text = " ".join(f"{number}.{word}" for word in range(draw.randint(0, 5)))
        self.said.append(text)
        reply = Reply(text, delay=draw.choice([0, 0, 1, 4]), pause=draw.choice([0, 0, 1]))
        dice = draw.random()
        if dice < 0.45:
            after = min(draw.choice([0, 0, 0, 1, 1, 2, 3]), 1 + len(text.split()))
            return Fault(draw.choice(ERRORS)(), after=after, reply=reply)
        return Hang(draw.randint(0, 1), reply) if dice < 0.55 else reply

    async def call(self):
        """Make one call, read it to its end, and check what was seen of it."""
        ctx = make_context("x", middleware=self.layers, clock=self.clock, budget=self.budget, deadline=60)
        seen, failure = [], None
        try:
            async with ctx.invoker.stream(REQUEST, ctx, route=self.draw.choice(self.routes)) as events:
                async for event in events:
                    seen.append(event)
        except AgentkitError as error:
            failure = error
        self.check(ctx, seen, failure)
        return ctx.account.records

    def check(self, ctx, seen, failure):
        """One start before one prefix of one reply, and every attempt told once under a number of its own."""
        told = [event.record for event in seen if isinstance(event, AttemptEnded)]
        answer = [event for event in seen if not isinstance(event, AttemptEnded)]
        assert [type(event) for event in answer].count(ChatStart) == (1 if answer else 0)
        assert not answer or isinstance(answer[0], ChatStart)
        shown = "".join(event.text for event in answer if isinstance(event, TextDelta))
        assert any(text.startswith(shown) for text in self.said)
        assert isinstance(seen[-1], ChatEnd) if failure is None else not any(isinstance(e, ChatEnd) for e in seen)
        if failure is None:
            assert shown in self.said and seen[-1].response.message.content == shown
        rows = ctx.account.records
        assert sorted(row.attempt for row in rows) == list(range(1, len(rows) + 1))
        if failure is None or isinstance(failure, ProviderError):
            assert sorted(row.attempt for row in told) == sorted(row.attempt for row in rows)
        if isinstance(failure, ProviderError) and failure.attempts:  # one attempt that nobody repeats is not counted
            assert failure.attempts == len(rows)

    async def play(self, calls):
        """Make so many calls, some side by side, and check the sums."""
        tasks = []
        for _ in range(calls):
            tasks.append(asyncio.create_task(self.call()))
            await self.clock.run_for(self.draw.choice([0, 0, 1, 10]))
        await self.clock.run_for(400)
        rows = [row for task in tasks for row in await task]
        assert sum(len(model.requests) for model in self.models) == len(rows)
        assert self.budget.spent() == sum((row.cost for row in rows), Decimal(0))
        assert not self.budget.held() and not self.budget._room.busy
        assert not any(model.open_streams for model in self.models)
        assert self.clock.pending == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


@given(seed=st.integers(0, 2**32), calls=st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_requests_are_rows_and_no_prefix_is_seen_twice(seed, calls):
    """For any script of failures and delays: requests, rows and events agree, money adds up, nothing is open."""
    asyncio.run(World(seed).play(calls))


OPS = st.lists(
    st.tuples(st.sampled_from(["enter", "ok", "down", "busy", "leave", "forget", "wait"]), st.integers(0, 5)),
    max_size=60,
)


@given(ops=OPS, failures=st.integers(1, 3))
def test_a_breaker_never_lets_two_probes_through(ops, failures):
    """Whatever calls do in whatever order: while a circuit is open at most one of them is under way as its probe."""
    clock = ManualClock()
    breaker = Breaker(BreakerPolicy(failures=failures, cooldown=10))
    call = Call(make_context("x", clock=clock), REQUEST, "c", Route(ScriptedModel("x"), "m", "p"))
    inside = []
    for name, number in ops:
        if name == "wait":
            clock.advance(number * 3)
            continue
        if name == "enter":
            try:
                inside.append(breaker.enter(call))
            except Overloaded as error:
                assert error.code == "circuit_open" and error.retry_after <= 10
        elif inside:
            probe = inside.pop(number % len(inside))
            if name == "ok":
                breaker.succeeded(call)
            elif name in ("down", "busy"):
                error = StreamBroken("x") if name == "down" else Overloaded("x", status=503)
                breaker.failed(call, error, probe)
            elif name == "leave" and probe is not None:
                breaker.left(probe)
            probe = None
        for circuit in breaker.circuits.values():
            mine = [one for one in inside if one is not None and circuit in one.circuits]
            current = [one for one in mine if circuit.probe is not None and circuit.probe() is one]
            assert len(current) <= 1
            assert len(mine) <= 1 or circuit.opened is None or len(mine) - len(current) >= 1
            assert circuit.opened is not None or circuit.failures < failures


async def test_calls_go_on_while_servers_go_down_and_up():
    """Over real sockets, one address dead for good and two servers that fail in turn: every call is answered once."""
    down, draw = {"a": False, "b": False}, random.Random(7)

    def answers(name):
        def answer(_):
            if not down[name]:
                return Turn(text=f"from {name}")
            return draw.choice([HttpAnswer(status=503), HttpAnswer(then="reset"), HttpAnswer(status=429)])

        return answer

    async with LoopbackServer([Turn()]) as gone:
        dead = gone.url
    async with LoopbackServer(answers("a")) as a, LoopbackServer(answers("b")) as b:
        last = Binding("openai:b", base_url=b.url, api_key="k", price="1/1")
        middle = Binding("openai:a", base_url=a.url, api_key="k", price="1/1", fallback=[last])
        binding = Binding("openai:x", base_url=dead, api_key="k", price="1/1", fallback=[middle])
        policy = RetryPolicy(max_attempts=2, base_delay=0)
        clock = ManualClock()
        services, patience = Services(clock=clock), BreakerPolicy(failures=3, cooldown=5)
        async with CallRuntime(retry=policy, breaker=patience, services=services) as calls:
            budget, rows = Budget("1.00"), []

            async def one(number):
                ctx = calls.context(f"r{number}", budget=budget)
                answer = await calls.ask(binding, "hi", ctx=ctx)
                rows.extend(answer.records)
                return answer.text

            for turn in range(12):
                clock.advance(5)  # what failed in the turn before is tried again
                down.update(a=False, b=False)
                assert await one(f"{turn}") == "from a"
                down.update(a=turn % 3 == 1, b=turn % 3 == 2)
                texts = await asyncio.gather(*(one(f"{turn}.{number}") for number in range(8)))
                assert set(texts) == {"from b" if down["a"] else "from a"}
            assert budget.spent() == sum(row.cost for row in rows) and budget.held() == 0
            sent = sum(row.model in ("a", "b") for row in rows)
            assert len(a.requests) + len(b.requests) == sent
            refused = sum(row.model == "x" for row in rows)
            assert 0 < refused < 40  # of 108 calls: the breaker spares most calls the dead address
            down.update(a=True, b=True)
            with pytest.raises(ProviderError) as raised:
                await one("last")
            assert [entry["model"] for entry in raised.value.tried] == ["x", "a", "b"]
