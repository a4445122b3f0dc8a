"""Closing what is open: providers that fail while closing, two closers at once, twin attempts, bad callbacks."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Quota, RunContext, Scope, Usage
from agentkit.core.contracts import Call, ChatRequest, Quote, TextDelta, UserMessage
from agentkit.core.runtime import CancellationToken
from agentkit.testing import Hang, Reply, ScriptedModel

SCOPE = Scope(tenant="t")
USED = Usage(1000, 1000)
REQUEST = ChatRequest((UserMessage("hi"),))


class Sticky(ScriptedModel):
    """A model whose streams take long to close, or fail doing so."""

    failure: Exception | None = None

    async def stream(self, call, /):
        """Yield the events; then close with difficulty."""
        events = super().stream(call)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
            await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure


def opened(calls, ctx, model):
    """Return a stream of this model on the context."""
    route = calls.services.models.route(Binding(model, price="1/1"))
    return ctx.services.invoker.stream(REQUEST, ctx, route=route)


async def test_an_attempt_is_settled_when_its_provider_fails_to_close():
    """What arrived is booked and the reservation is gone, although closing raises."""
    model = Sticky([Reply("one two three", usage=USED)])
    model.failure = OSError("cannot close")
    budget, quota = Budget("1"), Quota(max_usd="1")
    async with CallRuntime(quota=quota) as calls:
        ctx = calls.context("r", SCOPE, budget=budget)
        with pytest.raises(OSError, match="cannot close"):
            async with opened(calls, ctx, model) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
    (row,) = ctx.account.records
    assert budget.held() == 0
    assert budget.spent() == quota.spent_in_window(SCOPE.key()) == row.cost > 0


async def test_two_tasks_may_close_one_stream():
    """Both return when it is closed, also while a third waits for the next event."""
    async with CallRuntime() as calls:
        for reading in (False, True):
            budget = Budget("1")
            ctx = calls.context(None, SCOPE, budget=budget)
            model = Sticky([Hang(2)])
            async with opened(calls, ctx, model) as events:
                await anext(events)
                await anext(events)
                waiting = [asyncio.ensure_future(anext(events))] if reading else []
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                await asyncio.gather(events.aclose(), events.aclose())
                ended = await asyncio.gather(*waiting, return_exceptions=True)
                assert all(isinstance(error, StopAsyncIteration) for error in ended)
            assert budget.held() == 0
            assert budget.spent() > 0
            assert model.open_streams == 0


async def test_twin_attempts_of_one_call_are_both_given_back():
    """A layer that sends the same call twice at once, a hedge, leaves nothing reserved."""

    async def hedge(call, call_next):
        first, second = call_next(call), call_next(call)
        start = await anext(first)
        await anext(second)
        await second.aclose()
        yield start
        async for event in first:
            yield event

    budget, quota = Budget("1"), Quota(max_usd="1")
    async with CallRuntime(chat_middleware=[hedge], quota=quota) as calls:
        ctx = calls.context("r", SCOPE, budget=budget)
        model = ScriptedModel([Reply("a", usage=USED), Reply("b", usage=USED)])
        await calls.ask(Binding(model, price="1/1"), "hi", ctx=ctx)
    rows = ctx.account.records
    assert len(rows) == 2
    assert budget.held() == 0
    assert budget.spent() == quota.spent_in_window(SCOPE.key()) == sum((row.cost for row in rows), Decimal(0))


def test_a_failing_callback_keeps_nobody_from_being_cancelled():
    """All callbacks of a token are called; the first failure is raised afterwards."""
    token, called = CancellationToken(), []

    def fail():
        raise ValueError("no")

    token.on_cancel(fail)
    token.on_cancel(lambda: called.append(1))
    with pytest.raises(ValueError, match="no"):
        token.cancel()
    assert called == [1]


async def test_a_waiter_whose_loop_was_closed_does_not_block_the_queue():
    """A budget shared by event loops serves the living when a waiter died with its loop."""
    budget = Budget("0.003")
    ctx = RunContext("r", SCOPE, budget)
    calls = [Call(ctx, REQUEST, f"call-{number}", quote=Quote(cost=Decimal("0.002"))) for number in range(3)]
    holder = asyncio.create_task(budget.guard(calls[0]))
    assert (await holder).ok
    dead = asyncio.new_event_loop()
    orphan = budget.guard(calls[1])
    waiting = dead.create_task(orphan)
    await asyncio.to_thread(dead.run_until_complete, _a_few_turns())
    dead.close()
    living = asyncio.create_task(budget.guard(calls[2]))
    await _a_few_turns()
    budget.release(calls[0])
    assert (await living).ok
    assert not waiting.done()
    waiting._log_destroy_pending = False
    orphan.close()
    budget.release(calls[2])
    assert budget.held() == 0


async def _a_few_turns():
    for _ in range(5):
        await asyncio.sleep(0)
