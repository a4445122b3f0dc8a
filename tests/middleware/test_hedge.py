"""The hedge layer: when a second request is sent, who wins, what is charged, and that nothing is left."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Quota, Usage
from agentkit.catalog import FREE, Capabilities, parse_price
from agentkit.core.contracts import (
    AttemptEnded,
    BreakerPolicy,
    ChatEnd,
    ChatRequest,
    ChatStart,
    HedgePolicy,
    ImagePart,
    RetryPolicy,
    Route,
    TextDelta,
    UserMessage,
)
from agentkit.core.runtime.breaker import Breaker
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, MeterExceeded, Overloaded, StreamBroken
from agentkit.middleware.fallback import fallback
from agentkit.middleware.hedge import hedge
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel, make_context

REQUEST = ChatRequest((UserMessage("hi"),))
USED = Usage(1000, 1000)  # costs 0.002 at 1/1
PRICE = parse_price("1/1")


class World:
    """Default layers with a hedge after two seconds, over one scripted model and a clock by hand."""

    def __init__(
        self, *script, to="same", second=None, attempts=3, failures=10, budget=None, clock=None, **fields
    ) -> None:
        self.clock = clock or ManualClock()
        self.model = ScriptedModel(list(script), clock=self.clock, name="one")
        self.breaker = Breaker(BreakerPolicy(failures=failures))
        self.second = None if second is None else ScriptedModel(second, clock=self.clock, name="two")
        other = () if second is None else (Route(self.second, "two", "p", PRICE),)
        self.route = Route(self.model, "one", "p", PRICE, fallback=other)
        layers = [
            fallback(),
            retry(RetryPolicy(max_attempts=attempts), random=lambda: 0.5, breaker=self.breaker),
            hedge(HedgePolicy(after=2, to=to), breaker=self.breaker),
            meter(),
        ]
        self.budget = budget or Budget("1.00", clock=self.clock)
        self.ctx = make_context("x", middleware=layers, clock=self.clock, budget=self.budget, **fields)
        self.events = []

    async def read(self):
        """Read the whole stream into `events`."""
        async with self.ctx.invoker.stream(REQUEST, self.ctx, route=self.route) as events:
            async for event in events:
                self.events.append(event)

    async def run(self, seconds=100):
        """Read it while so much time passes; return the task."""
        task = asyncio.create_task(self.read())
        await self.clock.run_for(seconds)
        await asyncio.wait([task], timeout=5)
        return task

    @property
    def rows(self):
        """Return number and outcome of each attempt the stream told."""
        told = [event.record for event in self.events if isinstance(event, AttemptEnded)]
        assert sorted(told, key=id) == sorted(self.ctx.account.records, key=id)
        return [(record.attempt, record.outcome) for record in told]

    @property
    def text(self):
        """Return the text that was shown."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    def settled(self):
        """Nothing is open, held, planned or running, and the budget is the rows."""
        models = [self.model] if self.second is None else [self.model, self.second]
        assert not any(model.open_streams for model in models)
        assert not self.budget.held() and not self.budget._room.busy
        assert self.clock.pending == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.budget.spent() == sum((row.cost for row in self.ctx.account.records), Decimal(0))


async def test_a_quick_answer_is_never_hedged():
    """What begins in time gets no second request."""
    world = World(Reply("quick words " * 9, delay=1, pause=0.9, usage=USED))
    assert (await world.run()).exception() is None
    assert world.text == "quick words " * 9 and len(world.model.requests) == 1 and world.rows == [(1, "ok")]
    world.settled()


async def test_the_second_request_wins_over_a_slow_first_one():
    """It answers under the number 2; the first is closed before, charged, and told in front. One start is seen."""
    world = World(Reply("slow", delay=60), Reply("swift answer", delay=1, usage=USED))
    assert (await world.run()).exception() is None
    assert world.text == "swift answer" and world.rows == [(1, "cancelled"), (2, "ok")]
    kinds = [type(event) for event in world.events]
    assert kinds == [AttemptEnded, ChatStart, TextDelta, TextDelta, AttemptEnded, ChatEnd]
    assert world.events[0].record.usage.input_tokens and world.events[0].record.cost > 0
    assert world.model.calls[1].hedge and not world.model.calls[0].hedge
    world.settled()


async def test_a_start_without_anything_visible_is_no_answer():
    """The first one's start is held back: it hangs after it, and the second one's is the one that is seen."""
    world = World(Hang(after=1), Reply("second", usage=USED))
    assert (await world.run()).exception() is None
    assert [type(event) for event in world.events][:2] == [AttemptEnded, ChatStart]
    assert world.text == "second" and world.events[1].response_id.endswith("2")
    world.settled()


async def test_the_first_request_may_still_win():
    """It begins after the second was sent, and before that one does: the second is closed, charged and told."""
    world = World(Reply("first wins", delay=3, usage=USED), Reply("late", delay=60))
    assert (await world.run()).exception() is None
    assert world.text == "first wins" and world.rows == [(2, "cancelled"), (1, "ok")]
    world.settled()


async def test_the_second_decides_when_the_first_fails_and_the_first_when_the_second_does():
    """One failure of two is no failure."""
    late = Fault(Overloaded("late", accepted=False), reply=Reply("x", delay=3))
    world = World(late, Reply("second", delay=5, usage=USED))
    assert (await world.run()).exception() is None
    assert world.text == "second" and world.rows == [(1, "error"), (2, "ok")] and world.clock.slept.count(0.25) == 0
    world.settled()
    world = World(Reply("first", delay=5, usage=USED), Overloaded("second fails"))
    assert (await world.run()).exception() is None
    assert world.text == "first" and world.rows == [(2, "error"), (1, "ok")]
    world.settled()


async def test_when_both_fail_retry_goes_on_from_the_highest_number_unhedged():
    """The first one's error counts; the next attempt is the third, and it is not hedged however slow it is."""
    late = Fault(Overloaded("late"), reply=Reply("x", delay=3))
    world = World(late, StreamBroken("second"), Reply("third", delay=50, usage=USED))
    assert (await world.run()).exception() is None
    assert world.text == "third" and world.rows == [(2, "error"), (1, "error"), (3, "ok")]
    assert len(world.model.requests) == 3
    world.settled()
    world = World(late, StreamBroken("second"), attempts=1)
    error = (await world.run()).exception()
    assert isinstance(error, Overloaded) and error.attempts == 2
    world.settled()


async def test_a_first_that_failed_before_is_not_hedged_afterwards():
    """A failure before the delay is over goes to retry, and the planned second request is given up."""
    world = World(Overloaded("at once", retry_after=30), Reply("again", usage=USED))
    assert (await world.run()).exception() is None
    assert world.text == "again" and world.rows == [(1, "error"), (2, "ok")] and len(world.model.requests) == 2
    world.settled()


async def test_a_break_after_the_answer_began_is_raised_whoever_gave_it():
    """After the first visible event of either nothing is repeated."""
    broken = Fault(StreamBroken("reset"), after=2)
    world = World(Hang(), broken, "never")
    error = (await world.run()).exception()
    assert isinstance(error, StreamBroken) and error.attempts == 2
    assert world.rows == [(1, "cancelled"), (2, "error")]
    world.settled()


async def test_it_can_go_to_the_first_fallback():
    """Another server answers; where there is no fallback, or one that lacks something, nothing is hedged."""
    world = World(Hang(), to="fallback", second=[Reply("other", usage=USED)])
    assert (await world.run()).exception() is None
    assert world.text == "other" and len(world.model.requests) == 1
    assert [row.model for row in world.ctx.account.records] == ["one", "two"]
    world.settled()
    world = World(Reply("alone", delay=50), to="fallback")
    assert (await world.run()).exception() is None and len(world.model.requests) == 1
    blind = Route(ScriptedModel("x"), "blind", "p", FREE, capabilities=Capabilities(tools=False, vision=False))
    request = ChatRequest((UserMessage((ImagePart(url="https://example.org/a.png"),)),))
    world = World(Reply("alone", delay=50), to="fallback")
    route = Route(world.model, "one", "p", PRICE, fallback=(blind,))
    task = asyncio.create_task(world.ctx.invoker.chat(request, world.ctx, route=route))
    await world.clock.run_for(60)
    assert (await task).message.content == "alone" and not blind.port.requests


@pytest.mark.parametrize("meters", ["budget", "quota", "calls"])
async def test_what_does_not_fit_beside_the_first_is_not_sent(meters):
    """A hedge takes what is free and waits for nothing, and it never stands before others in a queue."""
    clock = ManualClock()
    fields = {"budget": Budget("1.00", max_calls=1, clock=clock)} if meters == "calls" else {}
    if meters == "budget":
        fields = {"budget": Budget("0.0015", max_wait=1000, clock=clock)}  # one bound of some 0.0011
    if meters == "quota":
        fields = {"meters": [Quota(max_rpm=1, on_exceeded="wait", clock=clock)]}
    world = World(Reply("slow", delay=50, usage=Usage(10, 10)), "never", clock=clock, **fields)
    assert (await world.run()).exception() is None
    assert world.text == "slow" and len(world.model.requests) == 1 and world.rows == [(1, "ok")]
    world.settled()


@pytest.mark.parametrize("meters", ["budget", "quota"])
async def test_a_hedge_does_not_queue_for_what_comes_free_later(meters):
    """Room that another call gives back, or the next window brings, is not used for a second request."""
    clock = ManualClock()
    if meters == "budget":
        fields = {"budget": Budget("0.0025", max_wait=1000, clock=clock)}  # two bounds of some 0.0011
    else:
        fields = {"meters": [Quota(max_rpm=2, on_exceeded="wait", clock=clock)]}
    tiny = Usage(10, 10)
    world = World(
        Reply("short", delay=5, usage=tiny),
        Reply("long", delay=150, usage=tiny),
        "never",
        "never",
        clock=clock,
        **fields,
    )
    calls = [asyncio.create_task(world.read()) for _ in range(2)]
    await world.clock.run_for(200)
    for call in calls:
        await asyncio.wait([call], timeout=5)
        assert call.exception() is None
    assert len(world.model.requests) == 2 and not world.budget.held()


async def test_a_failed_first_request_is_followed_by_no_hedge_while_its_row_is_read():
    """The plan for the second request ends with the first one's failure, however long the consumer takes."""
    world = World(Fault(Overloaded("gone"), reply=Reply(delay=1)), "never", attempts=1)
    seen = asyncio.Event()

    async def read():
        async with world.ctx.invoker.stream(REQUEST, world.ctx, route=world.route) as events:
            async for _ in events:
                seen.set()
                await world.clock.sleep(50)

    task = asyncio.create_task(read())
    await world.clock.run_for(100)
    await asyncio.wait([task], timeout=5)
    assert seen.is_set() and isinstance(task.exception(), Overloaded) and len(world.model.requests) == 1
    world.settled()


async def test_a_waiter_is_not_overtaken_by_a_hedge():
    """Money that comes free goes to the call that waited for it."""
    budget = Budget("0.0015", max_wait=1000)
    world = World(Reply("slow", delay=50, usage=Usage(10, 10)), Reply("the waiter", usage=Usage(10, 10)), budget=budget)
    first = asyncio.create_task(world.read())
    await world.clock.run_for(1)
    waiter = asyncio.create_task(world.ctx.invoker.chat(REQUEST, world.ctx, route=world.route))
    await world.clock.run_for(200)
    while not waiter.done():
        await world.clock.run_for(1)
        await asyncio.sleep(0)
    await first
    assert (await waiter).message.content == "the waiter" and len(world.model.requests) == 2


async def test_a_dear_second_request_is_refused_and_the_first_goes_on():
    """A failure of the meter on the second request is nobody's failure."""
    world = World(Reply("slow", delay=50, usage=Usage(10, 10)), to="fallback", second=["never"])
    dear = Route(world.second, "two", "p", parse_price("10000/10000"))
    world.route = Route(world.model, "one", "p", PRICE, fallback=(dear,))
    assert (await world.run()).exception() is None
    assert world.text == "slow" and not world.second.requests
    world.settled()


async def test_an_open_circuit_is_not_hedged_to_and_each_request_counts_for_its_own_server():
    """The breaker hears of the second request as it does of the first."""
    down = StreamBroken("refused", accepted=False)
    world = World(*[Reply("slow", delay=9)] * 3, to="fallback", second=[down], failures=1)
    for _ in range(2):
        assert (await world.run(9.5)).exception() is None and len(world.second.requests) == 1
    world = World(Fault(down, reply=Reply(delay=3)), to="fallback", second=[Reply("two", delay=5)], failures=1)
    assert (await world.run()).exception() is None and world.text == "two"
    assert len(world.breaker.circuits) == 1  # the failure that the second request's answer hid


@pytest.mark.parametrize("how", ["task", "token", "deadline", "left"])
@pytest.mark.parametrize("at", [0, 1, 2, 2.5, 3, 3.5, 4, 5])
async def test_both_requests_end_with_their_caller(how, at):
    """Cancelled, tripped, out of time or left early at any moment of a race: both are closed and charged once."""
    token = CancellationToken()
    fields = {"cancel": token} if how == "token" else {"deadline": at + 0.1} if how == "deadline" else {}
    world = World(Reply("first " * 9, delay=4, pause=1), Reply("second " * 9, delay=1, pause=1), **fields)
    stream = world.ctx.invoker.stream(REQUEST, world.ctx, route=world.route)

    async def read():
        async with stream as events:
            async for event in events:
                world.events.append(event)
                if how == "left" and at >= 4:
                    return

    task = asyncio.create_task(read())
    await world.clock.run_for(at)
    if how == "task":
        task.cancel()
    elif how == "token":
        token.cancel("enough")
    elif how == "left" and at < 4:
        await stream.aclose()
    await world.clock.run_for(0.2 if how == "deadline" else 0)
    await asyncio.wait([task], timeout=5)
    assert task.done()
    if how == "task":
        assert task.cancelled()
    elif how != "left":
        assert isinstance(task.exception(), DeadlineExceeded if how == "deadline" else Cancelled)
    world.settled()
    assert len(world.model.requests) == len(world.ctx.account.records)


async def test_a_runtime_hedges_when_told_to():
    """`CallRuntime(hedge=...)`: over the real clock the hanging first request is overtaken; the answer has both rows."""
    model = ScriptedModel([Hang(), Reply("hello", usage=USED)])
    async with CallRuntime(hedge=HedgePolicy(after=0.01)) as calls:
        answer = await calls.ask(Binding(model, price="1/1"), "hi")
    assert answer.text == "hello"
    assert [(row.attempt, row.outcome) for row in answer.records] == [(1, "cancelled"), (2, "ok")]
    assert answer.cost == sum(row.cost for row in answer.records)


@pytest.mark.parametrize("fields", [{"after": -1}, {"after": float("nan")}, {"after": 1, "to": "other"}])
def test_a_policy_that_means_nothing_is_refused(fields):
    """The error names the field."""
    with pytest.raises(ConfigurationError, match="HedgePolicy"):
        HedgePolicy(**fields)


async def test_a_refusal_of_the_first_request_is_raised_at_once():
    """A budget that does not admit the first request is no failure to wait out."""
    world = World("never", budget=Budget("0", mode="enforce"))
    error = (await world.run()).exception()
    assert isinstance(error, MeterExceeded) and not world.model.requests
    world.settled()
