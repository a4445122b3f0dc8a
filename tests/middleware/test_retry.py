"""The retry layers: what is repeated, when, and what never is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Binding, CallRuntime
from agentkit.core.contracts import (
    AttemptEnded,
    Call,
    CallKey,
    ChatEnd,
    ChatRequest,
    ChatStart,
    CostQuery,
    RetryPolicy,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolEnded,
    ToolProgress,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStarted,
    UserMessage,
)
from agentkit.core.runtime.backoff import Backoff
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.services import Services
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    Cancelled,
    ContextOverflow,
    DeadlineExceeded,
    Overloaded,
    RateLimited,
    Refused,
    StreamBroken,
    ToolError,
)
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry, retry_tools
from agentkit.observe import OtelTrace
from agentkit.providers.model import build_model
from agentkit.providers.profiles import find_profile
from agentkit.providers.wire.failure import malformed_turn
from agentkit.stores.ledger_memory import MemoryLedgerStore
from agentkit.testing import Fault, ManualClock, Reply, ScriptedModel, capture_spans, make_context
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import Turn

REQUEST = ChatRequest((UserMessage("hi"),))
PERMANENT = [
    BadRequest("no such field"),
    ContextOverflow("too long"),
    AuthFailed("wrong key"),
    RateLimited("no credit", retryable=False, retry_after=1.0),
    Refused("I will not"),
]
HINTS = [
    ("retry-after-ms", "1500"),
    ("retry-after", "2"),
    ("retry-after", format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)),
    ("retry-after", "-1"),
    ("retry-after", "nan"),
    ("retry-after", "inf"),
    ("retry-after", "soon"),
    ("retry-after", "Sat, 01 Jan 2000 00:00:00 GMT"),
]


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


async def test_b71_a_failure_after_the_preamble_is_repeated_behind_one_start():
    """Start, then an overload: the second attempt's start is the only one seen, and both attempts are told."""
    clock, seen = ManualClock(), []
    model = ScriptedModel([Fault(Overloaded("busy"), after=1), Reply("fine", chunk=9)], clock=clock)
    ctx = a_context(model, clock)
    await finished(clock, streamed(ctx, seen))
    kinds = [type(event) for event in seen]
    assert kinds == [AttemptEnded, ChatStart, TextDelta, AttemptEnded, ChatEnd]
    assert [event.record.attempt for event in seen if isinstance(event, AttemptEnded)] == [1, 2]
    assert clock.slept == [0.25] and len(model.requests) == 2


async def test_b70_nothing_is_repeated_after_the_first_visible_event():
    """A stream that broke after a word raises; the words are not written twice."""
    clock, seen = ManualClock(), []
    model = ScriptedModel([Fault(StreamBroken("reset"), after=2)], clock=clock)
    task = await finished(clock, streamed(a_context(model, clock), seen))
    assert isinstance(task.exception(), StreamBroken) and len(model.requests) == 1
    assert [type(event) for event in seen] == [ChatStart, TextDelta, AttemptEnded]
    assert task.exception().attempts == 1


async def test_b70_arguments_of_a_call_are_never_begun_twice():
    """A stream that broke inside a tool call's arguments raises; no second run of them reaches the consumer."""
    clock, seen = ManualClock(), []
    wish = ToolCall("c1", "run", '{"code": "print(1)"}')
    model = ScriptedModel([Fault(StreamBroken("reset"), after=2, reply=Reply("", (wish,))), wish], clock=clock)
    task = await finished(clock, streamed(a_context(model, clock), seen))
    assert isinstance(task.exception(), StreamBroken) and len(model.requests) == 1
    assert [type(event) for event in seen] == [ChatStart, ToolCallDelta, AttemptEnded]


async def test_attempts_are_counted_by_the_policy_alone():
    """An endpoint that is always busy is asked three times for a policy of three, with growing waits; the error says so."""
    clock = ManualClock()
    model = ScriptedModel([RateLimited("slow down")] * 5, clock=clock)
    ctx = a_context(model, clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    error = task.exception()
    assert type(error) is RateLimited and error.attempts == 3 and str(error) == "slow down (after 3 attempts)"
    assert len(model.requests) == 3 == len(ctx.account.records) and clock.slept == [0.25, 0.5]


async def test_b73_requests_on_the_wire_are_the_attempts_that_are_told():
    """A server that answers 429 for ever gets exactly `max_attempts` requests, each in the account and on the span."""
    spans = capture_spans()
    services = Services(trace=OtelTrace(spans.provider))
    async with LoopbackServer([HttpAnswer(status=429, pieces=(b'{"error": {"message": "slow down"}}',))]) as server:
        binding = Binding("openai:m", base_url=server.url, api_key="k", price="1/1")
        policy = RetryPolicy(max_attempts=4, base_delay=0)
        async with CallRuntime(retry=policy, services=services) as calls:
            ctx = calls.context("r1")
            with pytest.raises(RateLimited) as raised:
                await calls.ask(binding, "hi", ctx=ctx)
        assert len(server.requests) == raised.value.attempts == 4
    assert [row.attempt for row in ctx.account.records] == [1, 2, 3, 4]
    told = [event.name for span in spans.spans for event in span.events if event.name == "retry.attempt"]
    assert len(told) == 4


@pytest.mark.parametrize("error", PERMANENT, ids=lambda error: f"{type(error).__name__} {error.code or ''}".strip())
async def test_permanent_errors_are_sent_once(error):
    """A bad request, a wrong key, a used-up account, an overflow and a refusal will not pass by waiting."""
    clock = ManualClock()
    model = ScriptedModel([error] * 2, clock=clock)
    ctx = a_context(model, clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert task.exception() is error and len(model.requests) == 1 and clock.slept == []


async def test_a_malformed_turn_is_asked_for_again_within_the_same_cap():
    """A turn the model got wrong counts as an attempt like any other."""
    clock = ManualClock()
    model = ScriptedModel([malformed_turn("no such call")] * 5, clock=clock)
    ctx = a_context(model, clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert task.exception().code == "malformed_turn" and len(model.requests) == task.exception().attempts == 3


@pytest.mark.parametrize("asked", [120.0, 1.5])
async def test_b74_a_wait_is_never_below_what_the_server_asked(asked):
    """Retry-After is waited out with the jitter on top of it, also beyond the policy's longest delay."""
    clock = ManualClock()
    ctx = a_context(ScriptedModel([RateLimited("later", retry_after=asked), "ok"], clock=clock), clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert task.result().message.content == "ok" and clock.slept == [asked + 0.25]


@pytest.mark.parametrize(
    ("asked", "deadline", "longest", "waits"),
    [
        (120, 60, None, False),  # it does not fit
        (120, 121, None, True),  # the hint fits, whatever the jitter
        (3600, None, None, False),  # nobody waits an hour unasked
        (3600, 7200, None, True),  # unless the run may take that long
        (3600, 7200, 600, False),  # or its host says how long is too long
        (3600, None, 3600, True),
    ],
)
async def test_b74_a_hint_is_waited_out_or_the_call_fails_at_once_with_it(asked, deadline, longest, waits):
    """Nothing is sent before the hint is over; a hint that is too long is on the error, and nobody sleeps."""
    clock = ManualClock()
    model = ScriptedModel([RateLimited("later", retry_after=asked), "ok"], clock=clock)
    layers = [retry(RetryPolicy(max_retry_after=longest), random=lambda: 1.0), meter()]
    ctx = make_context(model, middleware=layers, clock=clock, deadline=deadline)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx), seconds=4000)
    if waits:
        assert task.result().message.content == "ok"
        assert asked <= clock.slept[0] < (deadline or 4000)
    else:
        assert task.exception().retry_after == asked and clock.slept == [] and len(model.requests) == 1


async def test_b74_headers_of_all_kinds_reach_the_wait():
    """Milliseconds, seconds and a date are waited out; nonsense is no hint. The real server's answer carries them."""
    clock, waited = ManualClock(), []
    for name, value in HINTS:
        limited = HttpAnswer(status=429, headers={name: value}, pieces=(b'{"error": {"message": "later"}}',))
        async with LoopbackServer([limited, Turn(text="fine")]) as server:
            model = build_model(find_profile("openai"), base_url=server.url, api_key="k", default_model="m")
            ctx = a_context(model, clock, deadline=100_000)
            task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
            while len(clock.slept) == len(waited):  # until it backs off
                await asyncio.sleep(0.001)
            waited.append(clock.slept[-1] - 0.25)
            while not task.done():
                clock.advance(1000)
                await asyncio.sleep(0.001)
            assert (await task).message.content == "fine"
            await model.aclose()
    assert waited[:2] == [1.5, 2.0] and 3000 < waited[2] <= 3600 and waited[3:] == [0.0] * 5


async def test_the_time_of_all_attempts_can_be_capped():
    """`max_elapsed` is counted from the first attempt: no other begins after it."""
    clock = ManualClock()
    model = ScriptedModel([Overloaded("busy", retry_after=4)] * 9, clock=clock)
    layers = [retry(RetryPolicy(max_attempts=9, max_elapsed=10), random=lambda: 0.0), meter()]
    ctx = make_context(model, middleware=layers, clock=clock)
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    assert isinstance(task.exception(), Overloaded) and clock.slept == [4, 4] and len(model.requests) == 3


async def test_the_answer_has_the_rows_of_its_failed_attempts():
    """`ChatResponse.attempts`, the account and the ledger tell of every attempt behind an answer."""
    clock = ManualClock()
    ledger = MemoryLedgerStore()
    model = ScriptedModel([Overloaded("busy"), RateLimited("slow", accepted=False), "ok"], clock=clock)
    ctx = a_context(model, clock, services=Services(ledger=ledger))
    task = await finished(clock, ctx.invoker.chat(REQUEST, ctx))
    rows = task.result().attempts
    assert [(row.attempt, row.outcome) for row in rows] == [(1, "error"), (2, "error"), (3, "ok")]
    page = await ledger.entries(CostQuery(tenant="test"))
    assert list(rows) == ctx.account.records == [entry.record for entry in page.entries]


async def test_the_back_off_ends_with_its_caller():
    """Cancelled from outside while it waits, a call returns at once and leaves nothing behind."""
    clock = ManualClock()
    model = ScriptedModel([Overloaded("busy", retry_after=50), "ok"], clock=clock)
    ctx = a_context(model, clock, budget=Budget("1.00"))
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    await clock.run_for(1)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled() and clock.pending == 0
    assert model.open_streams == 0 and ctx.budget.held() == 0 and len(model.requests) == 1


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
    longest=st.one_of(st.none(), st.floats(0, 1e6)),
    left=st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_every_wait_is_at_least_the_hint_and_fits(tries, hint, share, longest, left):
    """Whatever is hinted and however often it failed: a wait covers the hint, is bounded, and ends before the deadline.

    There is none exactly when the hint alone is too long.
    """
    clock = ManualClock()
    ctx = make_context("x", clock=clock, deadline=left)
    policy = RetryPolicy(max_attempts=3000, max_retry_after=longest)
    backoff = Backoff(policy, Call(ctx, REQUEST, "c1"))
    backoff.tries = tries
    wait = backoff.next_wait(hint, share)
    least = hint if hint is not None and 0 < hint < float("inf") else 0.0
    cap = longest if longest is not None else 120.0 if left is None else float("inf")
    remaining = ctx.remaining_time()
    if least > cap or (remaining is not None and least >= remaining):
        assert wait is None
        return
    assert least <= wait <= least + 30.0
    assert remaining is None or wait < remaining or wait == least


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
