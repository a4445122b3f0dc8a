"""An open call: however it is left, it is closed and charged before control returns."""

from __future__ import annotations

import asyncio
import gc
import threading
from decimal import Decimal

import pytest

from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    ChatEnd,
    ChatRequest,
    ChatStart,
    Rates,
    Route,
    TextDelta,
    UserMessage,
)
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.deadline import Deadline
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import (
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    MeterExceeded,
    Overloaded,
    StreamBroken,
)
from agentkit.middleware.meter import meter
from agentkit.testing import Fault, Hang, Reply, ScriptedModel, make_context

REQUEST = ChatRequest((UserMessage("Count to ten."),))
RATES = Rates(Decimal(1), Decimal(10))
TEN = Reply("one two three four five six seven eight nine ten")


def run_of(replies, clock, **changes):
    """Return a metered context, its model and the priced route to it."""
    model = ScriptedModel(replies, clock=clock)
    ctx = make_context(model, middleware=[meter()], clock=clock, **changes)
    return ctx, model, Route(model, "m", "scripted", RATES)


def settled(ctx, model):
    """Assert that nothing is open and that exactly what was accepted is charged and on the account."""
    assert model.open_streams == 0
    assert ctx.budget.held() == 0
    assert ctx.budget.spent() == ctx.account.tally.spent == sum(row.cost for row in ctx.account.records)


async def turns(count=20):
    """Let the other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_whole_stream_is_settled(clock):
    """Iterated to the end: start, deltas, the priced row before the end, then nothing more."""
    ctx, model, route = run_of([TEN], clock)
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        seen = [type(event) async for event in events]
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert seen == [ChatStart] + [TextDelta] * 10 + [AttemptEnded, ChatEnd]
    settled(ctx, model)
    assert ctx.budget.calls == 1 and ctx.budget.spent() > 0


async def test_left_after_one_event_it_is_closed_and_charged_before_control_returns(clock):
    """`break` after the first delta: right after the block the provider is closed and what arrived is charged (B65)."""
    ctx, model, route = run_of([TEN], clock, budget=Budget("1.00"))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                assert model.open_streams == 1 and ctx.budget.held() > 0
                break
    settled(ctx, model)
    (row,) = ctx.account.records
    assert (row.outcome, row.usage.output_tokens, row.usage.estimated) == ("closed", 1, True)
    assert row.usage.input_tokens > 0 and row.cost > 0


async def test_left_by_an_error_or_a_cancellation_it_is_closed_and_charged(clock):
    """An exception in the block, and a cancelled task inside the provider's wait, settle too."""
    ctx, model, route = run_of([TEN, Hang(after=3)], clock)
    with pytest.raises(KeyError):
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            await anext(events)
            raise KeyError
    settled(ctx, model)

    async def consume():
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            async for _ in events:
                pass

    task = asyncio.create_task(consume())
    await turns()
    assert model.open_streams == 1
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    settled(ctx, model)
    assert [row.outcome for row in ctx.account.records] == ["closed", "cancelled"]


async def test_inside_a_generator_that_another_task_closes(clock):
    """A streaming HTTP response: its generator is closed by another task; the call inside is closed and charged."""
    ctx, model, route = run_of([TEN], clock)

    async def response():
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    body = response()
    assert await asyncio.create_task(anext(body)) == "one "
    assert await asyncio.create_task(anext(body)) == "two "
    await asyncio.create_task(body.aclose())
    settled(ctx, model)
    assert ctx.account.records[0].outcome == "closed"


async def test_a_deadline_that_passes_while_the_reader_is_busy_closes_the_provider(clock):
    """The provider's stream is closed at the deadline, not at the next step; the next step raises DeadlineExceeded."""
    ctx, model, route = run_of([TEN], clock, deadline=Deadline.after(5, clock))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        await anext(events)
        await anext(events)
        clock.advance(5)
        await turns()
        assert model.open_streams == 0 and ctx.budget.held() == 0 and ctx.budget.spent() > 0
        for _ in range(2):
            with pytest.raises(DeadlineExceeded) as caught:
                await anext(events)
    settled(ctx, model)
    assert caught.value.run_id == ctx.correlation_id
    assert caught.value.known_cost == ctx.budget.spent()


async def test_a_deadline_that_passes_inside_the_providers_wait(clock):
    """A hanging provider is interrupted at the deadline: stream and chat raise DeadlineExceeded, a TimeoutError."""
    ctx, model, route = run_of([Hang(after=2), Hang()], clock, deadline=Deadline.after(5, clock))

    async def consume():
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            return [event async for event in events]

    tasks = [asyncio.create_task(consume()), asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route))]
    await turns()
    assert model.open_streams == 2
    await clock.run_for(5)
    for task in tasks:
        with pytest.raises(TimeoutError) as caught:
            await task
        assert isinstance(caught.value, DeadlineExceeded)
        assert task.cancelling() == 0
    settled(ctx, model)


async def test_a_finished_answer_is_not_lost_to_a_late_deadline(clock):
    """The last event was delivered before the deadline: reading on afterwards ends the stream without an error."""
    ctx, model, route = run_of([TEN], clock, deadline=Deadline.after(5, clock))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        async for event in events:
            if isinstance(event, ChatEnd):
                clock.advance(10)
                await turns()
    settled(ctx, model)
    assert ctx.account.records[0].outcome == "ok"


@pytest.mark.parametrize("busy", [False, True])
async def test_a_token_tripped_from_another_thread(clock, busy):
    """A trip from any thread aborts the stream, whether its reader waits inside or is busy outside."""
    token = CancellationToken()
    ctx, model, route = run_of([Hang(after=2)], clock, cancel=token)
    tripping = threading.Thread(target=token.cancel, args=("user left",))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        await anext(events)
        await anext(events)
        if busy:
            await asyncio.to_thread(tripping.start)
            await asyncio.to_thread(tripping.join)
            await turns()
            assert model.open_streams == 0
        else:
            tripping.start()
        with pytest.raises(Cancelled, match="user left"):
            await anext(events)
    tripping.join()
    settled(ctx, model)
    assert asyncio.current_task().cancelling() == 0


async def test_an_outside_cancellation_stays_a_cancellation(clock):
    """When the task is cancelled by others at the moment the token trips, CancelledError wins."""
    token = CancellationToken()
    ctx, model, route = run_of([Hang()], clock, cancel=token)
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route))
    await turns()
    token.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    settled(ctx, model)


async def test_closing_while_another_task_waits(clock):
    """Aclose during another task's __anext__ ends that wait with StopAsyncIteration first; twice is fine (B85)."""
    ctx, model, route = run_of([Hang(after=1)], clock)
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        await anext(events)

        async def rest():
            return [event async for event in events]

        waiting = asyncio.create_task(rest())
        await turns()
        await asyncio.gather(events.aclose(), events.aclose(), asyncio.create_task(events.aclose()))
        assert model.open_streams == 0
        assert await waiting == []
        await events.aclose()
    settled(ctx, model)


async def test_no_generator_is_left_to_the_collector(clock):
    """Whatever way out: the loop's asyncgen hooks never see a stream that was not closed by its block."""
    loop = asyncio.get_running_loop()
    ctx, model, route = run_of([TEN, TEN, Fault(Overloaded("busy"), after=3), Hang(after=2)], clock)
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        await anext(events)
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        _ = [event async for event in events]
    with pytest.raises(Overloaded):
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            _ = [event async for event in events]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            _ = [event async for event in events]
    del events
    gc.collect()
    assert [generator for generator in loop._asyncgens if generator.ag_frame is not None] == []
    settled(ctx, model)


async def test_a_refused_context_opens_nothing(clock):
    """With a tripped token or a passed deadline nothing is sent, and the error carries the run id."""
    token = CancellationToken()
    token.cancel()
    for changes, kind in (({"cancel": token}, Cancelled), ({"deadline": Deadline.after(-1, clock)}, DeadlineExceeded)):
        ctx, model, route = run_of([TEN], clock, **changes)
        with pytest.raises(kind) as caught:
            async with ctx.invoker.stream(REQUEST, ctx, route=route):
                pass
        assert caught.value.run_id == ctx.correlation_id
        with pytest.raises(kind):
            await ctx.invoker.chat(REQUEST, ctx, route=route)
        assert model.calls == []


async def test_a_stream_outside_its_block_says_how_to_use_it(clock):
    """Iterating without `async with` would leave the clean-up to chance: refused."""
    ctx, model, _ = run_of([TEN], clock)
    with pytest.raises(ConfigurationError, match="async with"):
        await anext(ctx.invoker.stream(REQUEST, ctx))
    assert model.calls == []


async def test_a_call_on_the_same_budget_while_a_stream_is_open(clock):
    """Inside an open stream a second call goes when it fits and is refused at once, not hung, when it does not."""
    ctx, model, route = run_of([TEN, "small", TEN], clock, budget=Budget("1.00", clock=clock))
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        await anext(events)
        response = await ctx.invoker.chat(REQUEST, ctx, route=route)
        assert response.message.content == "small"
        ctx.budget.max_cost_usd = ctx.budget.spent() + ctx.budget.held()
        with pytest.raises(MeterExceeded, match="held by"):
            await ctx.invoker.chat(REQUEST, ctx, route=route)
        rest = [event async for event in events]
    assert isinstance(rest[-1], ChatEnd)
    settled(ctx, model)
    assert ctx.budget.calls == 2


async def test_interrupting_from_inside_the_running_task(clock):
    """A deadline that passes while the task itself moves the clock never cancels code outside the call."""

    def late(request):
        clock.advance(10)
        return "done"

    ctx, model, route = run_of([late], clock, deadline=Deadline.after(5, clock))
    response = await ctx.invoker.chat(REQUEST, ctx, route=route)
    assert response.message.content == "done"
    await turns()
    assert asyncio.current_task().cancelling() == 0
    settled(ctx, model)


async def test_every_await_of_a_call_may_be_the_last(clock):
    """Cancel a metered call after any number of turns: nothing is held, open or charged twice."""
    for steps in range(25):
        pauses = Reply("a b c d", delay=1, pause=1)
        ctx, model, route = run_of([pauses], clock, budget=Budget("1.00", clock=clock))
        task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route))
        for _ in range(steps):
            await asyncio.sleep(0)
            clock.advance(0.5)
        task.cancel()
        await asyncio.wait([task])
        settled(ctx, model)
        assert len(ctx.account.records) <= 1
        assert clock.pending == 0


def test_one_invoker_serves_two_event_loops(clock):
    """Invoker, budget, token and model work in a second loop after the first is closed."""
    token = CancellationToken()
    ctx, model, route = run_of([TEN, TEN], clock, cancel=token, budget=Budget("1.00", clock=clock))

    async def once():
        async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
            return [event async for event in events][-1]

    assert isinstance(asyncio.run(once()), ChatEnd)
    assert isinstance(asyncio.run(once()), ChatEnd)
    assert ctx.budget.calls == 2
    settled(ctx, model)


async def test_a_chain_that_loses_the_end_is_an_error(clock):
    """A middleware that drops ChatEnd makes `chat` fail loudly, and a missing model is named."""

    async def drop(call, call_next):
        from contextlib import aclosing

        async with aclosing(call_next(call)) as events:
            async for event in events:
                if not isinstance(event, ChatEnd):
                    yield event

    ctx = make_context(["hello"], middleware=[drop])
    with pytest.raises(StreamBroken, match="without a ChatEnd"):
        await ctx.invoker.chat(REQUEST, ctx)
    from agentkit.core.runtime.invoker import Invoker

    with pytest.raises(ConfigurationError, match="No model for this call"):
        await Invoker().chat(REQUEST, ctx)


async def test_watch_sees_each_event_and_the_response_has_its_attempts(clock):
    """`chat(watch=)` is awaited with every event; the response carries the priced rows."""
    ctx, _, route = run_of([TEN], clock)
    seen = []

    async def watch(event):
        seen.append(type(event))

    response = await ctx.invoker.chat(REQUEST, ctx, route=route, watch=watch, purpose="correction")
    assert seen[0] is ChatStart and seen[-1] is ChatEnd and len(seen) == 13
    assert response.attempts == tuple(ctx.account.records)
    assert response.attempts[0].purpose == "correction"


async def test_routes_beat_the_invokers_own_model(clock):
    """A call with a route streams its port; ids of calls are unique."""
    own, other = ScriptedModel(["own"]), ScriptedModel(["other", "again"])
    ctx = make_context(own)
    route = Route(other, "m2", "x")
    assert (await ctx.invoker.chat(REQUEST, ctx)).message.content == "own"
    assert (await ctx.invoker.chat(REQUEST, ctx, route=route)).model == "m2"
    await ctx.invoker.chat(REQUEST, ctx, route=route)
    ids = [call.id for call in own.calls + other.calls]
    assert len(set(ids)) == 3 and all(isinstance(call, Call) for call in other.calls)
