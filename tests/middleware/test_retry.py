"""The retry layers: what is repeated, when, and what never is."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import (
    AttemptEnded,
    CallKey,
    ChatEnd,
    ChatRequest,
    ChatStart,
    RetryPolicy,
    TextDelta,
    ToolCall,
    ToolEnded,
    ToolProgress,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStarted,
    UserMessage,
)
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import AuthFailed, Cancelled, DeadlineExceeded, Overloaded, RateLimited, StreamBroken, ToolError
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry, retry_tools
from agentkit.testing import Fault, ManualClock, Reply, ScriptedModel, make_context

REQUEST = ChatRequest((UserMessage("hi"),))


def a_context(model, clock, **fields):
    layers = [retry(RetryPolicy(), random=lambda: 0.5), meter()]
    return make_context(model, middleware=layers, clock=clock, **fields)


async def finished(clock, work, seconds=300):
    task = asyncio.create_task(work)
    await clock.run_for(seconds)
    await asyncio.wait([task], timeout=5)
    return task


async def streamed(ctx, into):
    async with ctx.invoker.stream(REQUEST, ctx) as events:
        async for event in events:
            into.append(event)


async def test_a_failure_after_the_preamble_is_repeated_behind_one_start():
    """Start, then an overload: the second attempt's start is the only one seen, and both attempts are told."""
    clock, seen = ManualClock(), []
    model = ScriptedModel([Fault(Overloaded("busy"), after=1), Reply("fine", chunk=9)], clock=clock)
    ctx = a_context(model, clock)
    await finished(clock, streamed(ctx, seen))
    kinds = [type(event) for event in seen]
    assert kinds == [AttemptEnded, ChatStart, TextDelta, AttemptEnded, ChatEnd]
    assert [event.record.attempt for event in seen if isinstance(event, AttemptEnded)] == [1, 2]
    assert clock.slept == [0.25] and len(model.requests) == 2


async def test_nothing_is_repeated_after_the_first_visible_event():
    """A stream that broke after a word raises; the words are not written twice."""
    clock, seen = ManualClock(), []
    model = ScriptedModel([Fault(StreamBroken("reset"), after=2)], clock=clock)
    task = await finished(clock, streamed(a_context(model, clock), seen))
    assert isinstance(task.exception(), StreamBroken) and len(model.requests) == 1
    assert [type(event) for event in seen] == [ChatStart, TextDelta, AttemptEnded]


async def test_attempts_are_counted_by_the_policy_alone():
    """An endpoint that is always busy is asked three times for a policy of three, with growing waits."""
    clock = ManualClock()
    model = ScriptedModel([RateLimited("slow down")] * 5, clock=clock)
    ctx = a_context(model, clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert isinstance(task.exception(), RateLimited)
    assert len(model.requests) == 3 == len(ctx.account.records) and clock.slept == [0.25, 0.5]


async def test_what_cannot_pass_is_not_repeated():
    """A wrong key fails at once."""
    clock = ManualClock()
    model = ScriptedModel([AuthFailed("no")] * 2, clock=clock)
    ctx = a_context(model, clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert isinstance(task.exception(), AuthFailed) and len(model.requests) == 1


@pytest.mark.parametrize("asked", [120.0, 1.5])
async def test_a_wait_is_never_below_what_the_server_asked(asked):
    """Retry-After is waited out with the jitter on top of it, also beyond the policy's longest delay."""
    clock = ManualClock()
    ctx = a_context(ScriptedModel([RateLimited("later", retry_after=asked), "ok"], clock=clock), clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert task.result().message.content == "ok" and clock.slept == [asked + 0.25]


async def test_a_wait_beyond_the_deadline_fails_at_once_with_the_hint():
    """A Retry-After of two minutes under a deadline of one raises without sleeping."""
    clock = ManualClock()
    ctx = a_context(ScriptedModel([RateLimited("later", retry_after=120), "ok"], clock=clock), clock, deadline=60)
    with pytest.raises(RateLimited) as error:
        await ctx.invoker.chat(REQUEST, ctx)
    assert error.value.retry_after == 120 and clock.slept == []


async def test_nothing_is_held_between_attempts():
    """While a call backs off, its budget holds nothing and no stream is open."""
    clock = ManualClock()
    model = ScriptedModel([Overloaded("busy"), "ok"], clock=clock)
    ctx = a_context(model, clock, budget=Budget("1.00"))
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    await clock.run_for(0)
    assert clock.pending and ctx.budget.held() == 0 and model.open_streams == 0
    await clock.run_for(1)
    assert (await task).message.content == "ok"


async def test_a_tripped_token_ends_the_back_off():
    """Cancelling the run wakes a call that waits for its next attempt."""
    clock, cancel = ManualClock(), CancellationToken()
    model = ScriptedModel([Overloaded("busy"), "ok"], clock=clock)
    ctx = a_context(model, clock, cancel=cancel)
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    await clock.run_for(0)
    cancel.cancel("enough")
    await asyncio.wait([task], timeout=5)
    assert isinstance(task.exception(), Cancelled) and clock.pending == 0


@given(
    tries=st.integers(1, 2000),
    hint=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    share=st.floats(0, 1),
)
def test_every_wait_lies_between_hint_and_hint_plus_cap(tries, hint, share):
    """Whatever the server hints and however often it failed, a wait is finite, not negative, and within bounds."""
    from agentkit.middleware.retry import _wait

    wait = _wait(RetryPolicy(), tries, hint, lambda: share)
    least = hint if hint is not None and 0 < hint < float("inf") else 0.0
    assert least <= wait <= least + 30.0


class Flaky:
    """A tool that fails first."""

    idempotent = False
    requires_approval = False
    timeout = None
    resumable = False

    def __init__(self, effect, errors) -> None:
        self.effect, self.errors, self.runs = effect, list(errors), 0
        self.spec = ToolSpec("flaky", "", {"type": "object"})

    def bind(self, arguments):
        return arguments

    async def invoke(self, bound, call):
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        return ToolResult("done")


def a_tool_request(tool) -> ToolRequest:
    return ToolRequest(tool, ToolCall("c1", "flaky"), CallKey("r", "", 1, 0))


def wrapped(error) -> ToolError:
    outer = ToolError("failed", tool="flaky")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize("error", [ConnectionError("gone"), wrapped(TimeoutError("slow"))])
async def test_a_read_that_failed_in_passing_is_repeated_behind_one_start(error):
    """A lost connection in a read is tried again; ToolStarted is told once."""
    clock, tool, seen = ManualClock(), Flaky("read", [error]), []
    ctx = make_context(tool_middleware=[retry_tools(random=lambda: 0.5)], clock=clock)

    async def watch(event):
        seen.append(type(event))

    task = await finished(clock, ctx.invoker.invoke_tool(a_tool_request(tool), ctx, watch=watch))
    assert task.result() == ToolResult("done") and tool.runs == 2
    assert seen == [ToolStarted, ToolEnded]


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        ("write", ConnectionError("gone")),
        ("unknown", ConnectionError("gone")),
        ("sub-agent read", ConnectionError("gone")),
        ("read", ValueError("wrong")),
        ("read", Overloaded("the model inside was retried there")),
        ("read", DeadlineExceeded("the run is over")),
    ],
)
async def test_what_may_have_had_an_effect_or_will_not_pass_runs_once(effect, error):
    """Only harmless tools and passing failures are repeated."""
    tool = Flaky(effect.removeprefix("sub-agent "), [error])
    tool.resumable = effect.startswith("sub-agent")
    ctx = make_context(tool_middleware=[retry_tools()])
    with pytest.raises(type(error)):
        await ctx.invoker.invoke_tool(a_tool_request(tool), ctx)
    assert tool.runs == 1


async def test_an_idempotent_write_is_repeated_and_progress_commits_it():
    """Idempotent tools may run again, but not once they told of progress."""
    clock, tool = ManualClock(), Flaky("write", [ConnectionError("gone")])
    tool.idempotent = True
    ctx = make_context(tool_middleware=[retry_tools()], clock=clock)
    task = await finished(clock, ctx.invoker.invoke_tool(a_tool_request(tool), ctx))
    assert task.result() == ToolResult("done")

    async def telling(call, call_next):
        yield ToolProgress(call.request.call, "half")
        async for event in call_next(call):
            yield event

    tool.errors = [ConnectionError("gone")]
    ctx = make_context(tool_middleware=[retry_tools(), telling], clock=clock)
    with pytest.raises(ConnectionError):
        await ctx.invoker.invoke_tool(a_tool_request(tool), ctx)
