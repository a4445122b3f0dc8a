"""The context of a run and its children."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from agentkit.core.contracts import Observed, Scope, Usage
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.context import UNSET, RunContext
from agentkit.core.runtime.deadline import Deadline
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.metering.quota import Quota
from agentkit.core.runtime.services import AppData, Key, Services
from agentkit.core.runtime.signals import SignalChannel
from agentkit.core.runtime.telemetry.observation import NoopSpan
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, MeterExceeded, ToolError
from agentkit.testing import capture_events, make_context


def context(**changes):
    """Return a context."""
    return RunContext("run-1", Scope("acme"), **changes)


def test_a_child_shares_everything_by_reference():
    """Scope, budget, services, meters, token and deadline are the parent's; depth and path are its own."""
    budget, services, meters, token = Budget(), Services(), [Quota(max_rpm=1)], CancellationToken()
    parent = context(budget=budget, services=services, meters=meters, cancel=token, deadline=10, autonomy="gated")
    child = parent.child(name="sub")
    for name in ("correlation_id", "scope", "budget", "services", "meters", "cancel", "deadline", "autonomy", "mode"):
        assert getattr(child, name) is getattr(parent, name)
    assert (child.depth, child.path) == (1, "sub")
    assert (parent.depth, parent.path) == (0, "")
    assert child.child(name="leaf").path == "sub/leaf"
    assert list(parent.all_meters) == [budget, *meters]


async def test_pools_belong_to_the_depth():
    """`semaphore()` is the budget's pool of this depth."""
    parent = context()
    assert parent.semaphore() is parent.budget.semaphore(0)
    assert parent.child().semaphore() is parent.budget.semaphore(1)


def test_unset_keeps_none_takes_away_and_a_value_overrides():
    """The sentinel propagates, None unsets for the whole subtree, a value replaces."""
    actor, channel = ActorBudget(), SignalChannel()
    parent = context(actor_budget=actor, signal_channel=channel)
    assert parent.child(actor_budget=UNSET).actor_budget is actor
    bare = parent.child(actor_budget=None, signal_channel=None)
    assert bare.child().actor_budget is None and bare.child().signal_channel is None
    other = ActorBudget(max_steps=1)
    assert parent.child(actor_budget=other).child().actor_budget is other
    assert repr(UNSET) == "UNSET"


def test_only_depth_is_checked_for_a_child():
    """A tripped token or an exhausted budget does not stop making a child; the depth does."""
    token = CancellationToken()
    token.cancel()
    parent = context(cancel=token, budget=Budget(0, max_depth=1, spent_usd=5))
    child = parent.child()
    with pytest.raises(MeterExceeded, match="depth 2 > 1"):
        child.child()
    with pytest.raises(Cancelled):
        child.check_cancelled()


def test_children_of_one_name_are_numbered_also_across_copies():
    """A path is used once in a run, whether children come from the context or from a copy of it."""
    ctx = context()
    under = ctx.under(NoopSpan())
    paths = [ctx.child(name="a"), under.child(name="a"), ctx.branch().child(name="a"), ctx.child(), under.child()]
    assert [child.path for child in paths] == ["a", "a#2", "a#3", "child", "child#2"]
    assert ctx.tool_child("search", 3, 1).path == "search@3.1"
    for bad in ("", "a/b", "a@1", "a#2"):
        with pytest.raises(ConfigurationError, match="name"):
            ctx.tool_child(bad, 1, 0)


@pytest.mark.parametrize(("what", "order"), [("autonomy", ["auto", "gated", "manual"]), ("mode", ["act", "plan"])])
def test_autonomy_and_mode_only_narrow(what, order):
    """A child may be narrower than the run, never wider, and an unknown word is refused."""
    narrow = context(**{what: order[0]}).child(**{what: order[-1]})
    assert getattr(narrow, what) == order[-1]
    with pytest.raises(ConfigurationError, match="only narrow"):
        narrow.child(**{what: order[0]})
    with pytest.raises(ConfigurationError, match=what):
        context(**{what: "loose"})


def test_deadlines_in_all_spellings(clock):
    """Seconds, a timedelta, an aware datetime or a Deadline; naive times and non-durations are refused."""
    services = Services(clock=clock)
    at = clock.wall() + timedelta(seconds=5)
    for value in (5, 5.0, timedelta(seconds=5), at, Deadline.after(5, clock)):
        ctx = context(services=services, deadline=value)
        assert ctx.remaining_time() == 5
    clock.advance(5)
    with pytest.raises(DeadlineExceeded) as caught:
        ctx.check_cancelled()
    assert caught.value.run_id == "run-1"
    assert context().remaining_time() is None
    for bad in (at.replace(tzinfo=None), True, "soon", float("nan")):
        with pytest.raises(ConfigurationError, match="deadline"):
            context(services=services, deadline=bad)


def test_bad_arguments_are_named():
    """A missing run id, a scope that is none, a negative depth."""
    for bad in ("", "  ", None, 3):
        with pytest.raises(ConfigurationError, match="correlation_id"):
            RunContext(bad, Scope("t"))
    with pytest.raises(ConfigurationError, match="scope"):
        RunContext("r", "acme")
    with pytest.raises(ConfigurationError, match="depth"):
        RunContext("r", Scope("t"), depth=-1)
    with pytest.raises(ConfigurationError, match="tenant"):
        Scope("")
    assert RunContext("r", Scope("t"), depth=3).depth == 3


def test_no_invoker_says_what_to_pass():
    """Reaching for models without an invoker names the services."""
    with pytest.raises(ConfigurationError, match=r"Services\(invoker="):
        _ = context().invoker


def test_rows_count_here_and_in_every_parent(make):
    """A child's row is its own, its parents', and not its sibling's; the cost is None once a part is unpriced."""
    ctx = context()
    left, right = ctx.child(), ctx.child()
    left.record(make.row(make.call(ctx=left), "0.25"))
    assert (left.account.cost, ctx.account.cost, right.account.cost) == (Decimal("0.25"), Decimal("0.25"), 0)
    right.record(make.row(make.call(ctx=right), None))
    assert ctx.account.cost is None and ctx.account.tally.spent == Decimal("0.25")
    error = ToolError("broken")
    ctx.describe(error)
    assert (error.run_id, error.cost, error.known_cost) == ("run-1", None, Decimal("0.25"))
    assert error.usage["input_tokens"] == 20
    again = ToolError("other")
    again.run_id = "elsewhere"
    ctx.describe(again)
    assert again.run_id == "elsewhere" and again.known_cost is None


def test_the_bound_learns_from_the_runs_answers(make):
    """The likely output is the 95th percentile of this run's answers; the weight of a history is carried on."""
    ctx = context()
    assert ctx.account.likely_output("m") is None
    for tokens in range(1, 101):
        ctx.record(make.row(make.call(ctx=ctx), "0", usage=Usage(1, tokens)))
    assert ctx.account.likely_output("m") == 97
    assert ctx.account.likely_output("other") is None


class Witness:
    """An observer, and a span that notes events."""

    def __init__(self):
        self.seen = []
        self.noted = []

    async def observe(self, observation):
        """Keep it."""
        self.seen.append(observation)


class Span(NoopSpan):
    """A span with a name and notes."""

    trace_context = "00-trace-span-01"

    def __init__(self):
        self.notes = []

    def event(self, name, attributes=None):
        """Note it."""
        self.notes.append((name, attributes))


async def test_emit_reaches_observer_stream_and_span():
    """An observation carries run, path, time and trace; results are noted on the span; any kind is passed on."""
    witness, sink, span = Witness(), capture_events(), Span()
    ctx = make_context(services=Services(observer=witness), sink=sink).child(name="sub").under(span)
    await ctx.emit("progress", "half", payload={"n": 1}, agent="a", parent_id="p")
    await ctx.emit("result", "done")
    await ctx.emit("a kind of my own")
    first, second, third = witness.seen
    assert (first.run_id, first.path, first.kind, first.render, first.payload) == (
        "test-run",
        "sub",
        "progress",
        "half",
        {"n": 1},
    )
    assert (first.agent, first.parent_id, first.trace_context) == ("a", "p", "00-trace-span-01")
    assert span.notes == [("observation.emitted", {"kind": "result"})]
    assert third.kind == "a kind of my own" and second.at.tzinfo is not None
    assert [(event.seq, event.kind, event.path) for event in sink.of(Observed)] == [
        (0, "progress", "sub"),
        (1, "result", "sub"),
        (2, "a kind of my own", "sub"),
    ]


async def test_emit_never_raises_into_the_run():
    """A broken observer, sink and span are each contained, and one does not silence the others."""

    class Broken:
        async def observe(self, observation):
            raise ValueError("observer")

        async def put(self, event):
            raise ValueError("sink")

        def next_seq(self):
            return 0

    class BrokenSpan(NoopSpan):
        def event(self, name, attributes=None):
            raise ValueError("span")

    witness = Witness()
    ctx = make_context(services=Services(observer=witness), sink=Broken()).under(BrokenSpan())
    await ctx.emit("result", "done")
    assert len(witness.seen) == 1
    await make_context(services=Services(observer=Broken())).emit("error", "x")


def test_app_data_is_typed_and_never_shown():
    """The app's objects are found under their key, copies do not change the original, a missing key is named."""
    database: Key[list] = Key("database")
    app = AppData().put(database, ["secret"])
    ctx = context(services=Services(app=app))
    assert ctx.services.app[database] == ["secret"] and database in app
    assert "secret" not in repr(app) and "database" in repr(app)
    with pytest.raises(ConfigurationError, match="'user'"):
        app.get(Key("user"))
    assert database not in AppData()


def test_limited_adds_a_budget_and_the_earlier_deadline(clock):
    """A narrower copy: a further meter, the earlier deadline, another sink; the original stays."""
    ctx = make_context(clock=clock, deadline=Deadline.after(10, clock))
    extra, sink = Budget("0.10"), capture_events()
    narrow = ctx.limited(budget=extra, deadline=5, sink=sink)
    assert list(narrow.all_meters) == [ctx.budget, extra] and narrow.remaining_time() == 5 and narrow.sink is sink
    assert list(ctx.all_meters) == [ctx.budget] and ctx.remaining_time() == 10 and ctx.sink is None
    assert ctx.limited(deadline=50).remaining_time() == 10


def test_a_token_trips_once_for_everybody():
    """Callbacks are called once, forgotten ones not at all, late ones at once; the reason is told."""
    token, called = CancellationToken(), []
    token.on_cancel(lambda: called.append("kept"))
    token.on_cancel(lambda: called.append("forgotten"))()
    token.raise_if_cancelled()
    token.cancel("enough")
    token.cancel("later")
    token.on_cancel(lambda: called.append("late"))()
    assert called == ["kept", "late"] and token.cancelled and token.reason == "enough"
    with pytest.raises(Cancelled, match="enough"):
        token.raise_if_cancelled()
