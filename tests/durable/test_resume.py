"""Suspending and resuming: exhausted budgets, approvals, conflicts; nothing is paid or done twice."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import (
    Agent,
    AssistantMessage,
    Binding,
    Budget,
    CallRuntime,
    Decision,
    RunContext,
    Scope,
    ToolCall,
    ToolMessage,
    Usage,
    tool,
)
from agentkit.core.contracts import ApprovalRequested, Checkpointed, RunEnded, RunStarted
from agentkit.errors import ConfigurationError, MeterExceeded, Overloaded, RunConflict
from agentkit.stores import open_store
from agentkit.testing import Reply, ScriptedModel

USED = Usage(1000, 1000)  # costs 0.002 at 1/1
SCOPE = Scope(tenant="acme")


def say(text):
    """Return an answer that costs 0.002 dollars."""
    return Reply(text, usage=USED)


def wish(*names, arguments="{}"):
    """Return a turn that calls these tools and costs 0.002 dollars."""
    calls = tuple(ToolCall(f"{name}-{place}", name, arguments) for place, name in enumerate(names))
    return Reply("", calls, usage=USED)


def noted(log, name, effect="write", **more):
    """Return a tool that notes that it ran."""

    @tool(name=name, effect=effect, **more)
    async def act() -> str:
        """Note it."""
        log.append(name)
        return f"{name} done"

    return act


def answered(messages):
    """Return the contents of the tool answers, after checking that each call has one, in order."""
    calls = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    answers = [m for m in messages if isinstance(m, ToolMessage)]
    assert [m.call_id for m in answers] == calls
    return [m.content for m in answers]


class Place:
    """Where runs are kept: one runtime in memory, or a new runtime on the same file each time, as after a restart."""

    def __init__(self, url):
        self.url = url
        self.kept = None

    async def __aenter__(self):
        if self.url is None:
            self.kept = CallRuntime()
            await self.kept.__aenter__()
        return self

    async def __aexit__(self, *exc):
        if self.kept is not None:
            await self.kept.aclose()

    async def context(self, budget, run_id="req-1", **more):
        """Return the run's context, on a new runtime when the place outlives one."""
        if self.url is not None:
            if self.kept is not None:
                await self.kept.aclose()
            self.kept = CallRuntime(store=self.url)
        return self.kept.context(run_id, SCOPE, budget=budget, **more)


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    """Return a place of each kind."""
    return Place(None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}")


async def test_an_exhausted_budget_suspends_and_a_raised_one_finishes(place):
    """The run stops where money ends; with a higher ceiling it goes on; no turn is bought and no tool run twice."""
    log = []
    model = ScriptedModel([wish("act"), wish("act"), wish("act"), say("done")])
    agent = Agent("lead", Binding(model, price="1/1"), tools=[noted(log, "act")])
    async with place:
        first = await agent.run("go", await place.context(Budget("0.005", on_exceeded="stop")))
        assert (first.stop_reason, first.is_suspended, first.output) == ("budget_exhausted", True, None)
        assert first.reason
        assert first.cost == Decimal("0.004")
        assert log == ["act"] * len(log)
        before = len(log)
        again = await agent.resume("req-1", await place.context(Budget("0.005", on_exceeded="stop")))
        assert again.stop_reason == "budget_exhausted"
        assert again.cost == Decimal("0.004")
        assert len(log) == before
        budget = Budget("1.00", on_exceeded="stop")
        last = await agent.resume("req-1", await place.context(budget))
        assert (last.output, last.stop_reason) == ("done", "complete")
        assert last.cost == Decimal("0.008") == budget.spent()
        assert last.calls == 4
        assert log == ["act"] * 3
        assert len(answered(last.messages)) == 3
        assert len(model.requests) == 4


async def test_the_same_budget_object_is_not_charged_again_on_resume(place):
    """Raising the ceiling of the budget that ran out and resuming with it counts what was spent once."""
    budget = Budget("0.003", on_exceeded="stop")
    log = []
    model = ScriptedModel([wish("act"), say("done")])
    agent = Agent("lead", Binding(model, price="1/1"), tools=[noted(log, "act")])
    async with place:
        first = await agent.run("go", await place.context(budget))
        assert first.stop_reason == "budget_exhausted"
        budget.max_cost_usd = "0.01"
        last = await agent.resume("req-1", await place.context(budget))
        assert last.output == "done"
        assert budget.spent() == last.cost == Decimal("0.004")
        assert log == ["act"]


async def test_raise_writes_the_checkpoint_too(place):
    """With on_exceeded="raise" MeterExceeded leaves bare, and the run can still be resumed."""
    log = []
    model = ScriptedModel([wish("act"), say("done")])
    agent = Agent("lead", Binding(model, price="1/1"), tools=[noted(log, "act")])
    async with place:
        with pytest.raises(MeterExceeded) as raised:
            await agent.run("go", await place.context(Budget("0.003")))
        assert raised.value.axis == "cost"
        assert raised.value.run_id == "req-1"
        assert raised.value.cost == Decimal("0.002")
        last = await agent.resume("req-1", await place.context(Budget("1.00")))
        assert (last.output, last.cost, log) == ("done", Decimal("0.004"), ["act"])


def family(log, *, lead, researcher):
    """Return a lead agent over a researcher that writes."""
    sub = Agent("researcher", Binding(ScriptedModel(researcher), price="1/1"), tools=[noted(log, "save")])
    return Agent("lead", Binding(ScriptedModel(lead), price="1/1"), tools=[sub.as_tool(), noted(log, "look", "read")])


TASK = '{"task": "dig"}'


@pytest.mark.parametrize("on_exceeded", ["stop", "raise"])
async def test_exhausted_inside_a_sub_agent_resume_descends(place, on_exceeded):
    """The child stops after its write; resuming goes on inside the child, and the write happened once."""
    log = []
    agent = family(
        log,
        lead=[wish("researcher", arguments=TASK), say("lead done")],
        researcher=[wish("save"), say("dug")],
    )
    async with place:
        low = await place.context(Budget("0.005", on_exceeded=on_exceeded))
        if on_exceeded == "stop":
            first = await agent.run("go", low)
            assert (first.stop_reason, first.cost) == ("budget_exhausted", Decimal("0.004"))
        else:
            with pytest.raises(MeterExceeded):
                await agent.run("go", low)
        assert log == ["save"]
        budget = Budget("1.00", on_exceeded=on_exceeded)
        last = await agent.resume("req-1", await place.context(budget))
        assert last.output == "lead done"
        assert answered(last.messages) == ["dug"]
        assert last.cost == budget.spent() == Decimal("0.008")
        assert log == ["save"]


@pytest.mark.parametrize("on_exceeded", ["stop", "raise"])
async def test_exhausted_inside_a_parallel_batch(place, on_exceeded):
    """Two sub-agents and a read side by side: the ceiling stops both children, each resumes where it was, once."""
    log = []

    def child(name):
        model = ScriptedModel([wish(f"save_{name}"), say(f"{name} dug")])
        return Agent(name, Binding(model, price="1/1"), tools=[noted(log, f"save_{name}")]).as_tool()

    lead = ScriptedModel(
        [
            Reply(
                "",
                (ToolCall("1", "ann", TASK), ToolCall("2", "look"), ToolCall("3", "bob", TASK)),
                usage=USED,
            ),
            say("lead done"),
        ]
    )
    agent = Agent("lead", Binding(lead, price="1/1"), tools=[child("ann"), noted(log, "look", "read"), child("bob")])
    async with place:
        low = await place.context(Budget("0.007", on_exceeded=on_exceeded))
        if on_exceeded == "stop":
            first = await agent.run("go", low)
            assert first.stop_reason == "budget_exhausted"
        else:
            with pytest.raises(MeterExceeded) as raised:
                await agent.run("go", low)
            assert not isinstance(raised.value, BaseExceptionGroup)
        budget = Budget("1.00", on_exceeded=on_exceeded)
        last = await agent.resume("req-1", await place.context(budget))
        assert last.output == "lead done"
        assert answered(last.messages) == ["ann dug", "look done", "bob dug"]
        assert sorted(log) == ["look", "save_ann", "save_bob"]
        assert last.cost == budget.spent() == Decimal("0.012")


async def test_a_ceiling_lets_the_siblings_come_to_their_own_end(place):
    """One child meets the ceiling while another is inside a write: that write finishes and is recorded as done."""
    log = []

    @tool(effect="write")
    async def save() -> str:
        """Save, slowly."""
        for _ in range(200):
            await asyncio.sleep(0)
        log.append("save")
        return "saved"

    ann = Agent("ann", Binding(ScriptedModel([wish("save"), say("ann dug")]), price="1/1"), tools=[save])
    bob = Agent("bob", Binding(ScriptedModel([say("bob dug")]), price="1/1"))
    lead = ScriptedModel([wish("ann", "bob", arguments=TASK), say("lead done")])
    agent = Agent("lead", Binding(lead, price="1/1"), tools=[ann.as_tool(), bob.as_tool()])
    async with place:
        with pytest.raises(MeterExceeded):
            await agent.run("go", await place.context(Budget("0.005")))
        assert log == ["save"]
        last = await agent.resume("req-1", await place.context(Budget("1.00")))
        assert answered(last.messages) == ["ann dug", "bob dug"]
        assert (last.output, log) == ("lead done", ["save"])


async def test_a_ceiling_met_in_a_child_nested_by_hand(place):
    """A tool that runs an agent on ctx.child(): resuming makes the call again and the child goes on where it was."""
    log = []
    sub = Agent(
        "sub",
        Binding(ScriptedModel([wish("save"), say("dug")]), price="1/1"),
        tools=[noted(log, "save")],
    )

    @tool(effect="read")
    async def delegate(ctx: RunContext) -> str:
        """Let another agent do it."""
        return (await sub.run("dig", ctx.child(name="sub"))).text

    agent = Agent("lead", Binding(ScriptedModel([wish("delegate"), say("lead done")]), price="1/1"), tools=[delegate])
    async with place:
        with pytest.raises(MeterExceeded):
            await agent.run("go", await place.context(Budget("0.005")))
        assert log == ["save"]
        last = await agent.resume("req-1", await place.context(Budget("1.00")))
        assert (last.output, last.cost, log) == ("lead done", Decimal("0.008"), ["save"])


# Approvals


def payer(log, replies):
    """Return an agent that pays after approval and looks without."""
    tools = [noted(log, "pay", "external", requires_approval=True), noted(log, "look", "read")]
    return Agent("clerk", Binding(ScriptedModel(replies), price="1/1"), tools=tools)


async def test_approval_suspends_then_runs_exactly_once(place):
    """What needs no approval runs at once and is not repeated; the approved call runs once, and its turn completes."""
    log = []
    agent = payer(log, [wish("look", "pay"), say("paid"), say("later")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        assert (first.stop_reason, log) == ("suspended", ["look"])
        (pending,) = first.pending
        assert (pending.call.name, pending.path, pending.turn, pending.position) == ("pay", "", 1, 1)
        assert pending.digest
        last = await agent.resume(
            "req-1", await place.context(Budget("1.00")), {pending.id: Decision.allow(actor="u1")}
        )
        assert (last.output, log) == ("paid", ["look", "pay"])
        assert answered(last.messages) == ["look done", "pay done"]
        assert last.cost == Decimal("0.004")


async def test_a_missing_decision_stays_pending_and_costs_nothing(place):
    """Resuming without an answer, or with an answer to another call, leaves the run as it was."""
    log = []
    agent = payer(log, [wish("pay", "pay"), say("paid")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        one, two = first.pending
        for decisions in (None, {}, {"9.9": True}):
            again = await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
            assert again.pending == first.pending
        half = await agent.resume("req-1", await place.context(Budget("1.00")), {one.id: "allow"})
        assert (half.pending, log) == ((two,), ["pay"])
        last = await agent.resume("req-1", await place.context(Budget("1.00")), {two.id: False})
        assert log == ["pay"]
        assert last.output == "paid"
        assert answered(last.messages)[1].startswith("Denied")


async def test_decisions_that_are_none_are_refused(place):
    """Anything but allow and deny is named before the run is touched."""
    log = []
    agent = payer(log, [wish("pay"), say("paid")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        for bad in ("yes", 1, None, Decision.ask()):
            with pytest.raises(ConfigurationError, match="decisions"):
                await agent.resume("req-1", await place.context(Budget("1.00")), {first.pending[0].id: bad})
        assert log == []


async def test_a_failure_after_the_approved_call_does_not_repeat_it(place):
    """The model fails after the tool ran; resuming with the same answer goes on from the recorded result."""
    log = []
    agent = payer(log, [wish("pay"), Overloaded("down", retryable=False), say("paid")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        decisions = {first.pending[0].id: True}
        with pytest.raises(Overloaded):
            await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
        assert log == ["pay"]
        last = await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
        assert (last.output, log) == ("paid", ["pay"])


async def test_an_old_approval_is_inert_in_later_turns(place):
    """The same call in a later turn asks again; the decision given before does not count for it."""
    log = []
    agent = payer(log, [wish("pay"), wish("pay"), say("paid")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        decisions = {first.pending[0].id: True}
        second = await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
        assert second.stop_reason == "suspended"
        third = await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
        assert (third.pending, log) == (second.pending, ["pay"])


async def test_a_childs_approval_bubbles_up_under_its_path(place):
    """The child's pending call is the lead's, under the child's path; the decision reaches it; it runs once."""
    log = []
    clerk = payer(log, [wish("pay"), say("paid")])
    middle = Agent(
        "middle",
        Binding(ScriptedModel([wish("clerk", arguments=TASK), say("middle done")]), price="1/1"),
        tools=[clerk.as_tool()],
    )
    lead = Agent(
        "lead",
        Binding(ScriptedModel([wish("middle", arguments=TASK), say("lead done")]), price="1/1"),
        tools=[middle.as_tool()],
    )
    async with place:
        async with lead.stream("go", await place.context(Budget("1.00"))) as events:
            seen = [event async for event in events]
        first = events.result
        (pending,) = first.pending
        assert pending.path == "middle@1.0/clerk@1.0"
        assert {event.pending.id for event in seen if isinstance(event, ApprovalRequested)} == {pending.id}
        last = await lead.resume("req-1", await place.context(Budget("1.00")), {pending.id: True})
        assert (last.output, log) == ("lead done", ["pay"])
        assert last.cost == Decimal("0.012")


async def test_two_resumes_at_once_run_the_call_once(place):
    """A double click: one resume does it, the other is a conflict."""
    log = []
    inside, go = asyncio.Event(), asyncio.Event()

    @tool(effect="external", requires_approval=True)
    async def pay() -> str:
        """Pay."""
        inside.set()
        await go.wait()
        log.append("pay")
        return "ok"

    agent = Agent("clerk", Binding(ScriptedModel([wish("pay"), say("paid")]), price="1/1"), tools=[pay])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        ctx = await place.context(Budget("1.00"))
        one = asyncio.create_task(agent.resume("req-1", ctx, {first.pending[0].id: True}))
        await inside.wait()
        with pytest.raises(RunConflict):
            await agent.resume("req-1", ctx, {first.pending[0].id: True})
        go.set()
        assert (await one).output == "paid"
        assert log == ["pay"]


async def test_a_cancelled_resume_does_not_repeat_what_it_did(place):
    """Cancelled inside the second approved call: the first is recorded, the second told as unknown, neither repeated."""
    log = []
    inside = asyncio.Event()

    @tool(effect="external", requires_approval=True)
    async def send() -> str:
        """Send."""
        log.append("send")
        inside.set()
        await asyncio.get_running_loop().create_future()
        return ""

    tools = [noted(log, "pay", "external", requires_approval=True), send]
    agent = Agent("clerk", Binding(ScriptedModel([wish("pay", "send"), say("ok")]), price="1/1"), tools=tools)
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        decisions = {pending.id: True for pending in first.pending}
        running = asyncio.create_task(agent.resume("req-1", await place.context(Budget("1.00")), decisions))
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        last = await agent.resume("req-1", await place.context(Budget("1.00")), decisions)
        assert log == ["pay", "send"]
        told = answered(last.messages)
        assert told[0] == "pay done"
        assert "unknown" in told[1]


# Whose run, and which


async def test_an_unfinished_id_is_a_conflict_and_a_finished_one_a_new_generation(place):
    """A second run under a suspended id is refused; after it finished, the id begins anew."""
    log = []
    agent = payer(log, [wish("pay"), say("paid"), say("second")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        with pytest.raises(RunConflict, match="req-1"):
            await agent.run("go", await place.context(Budget("1.00")))
        await agent.resume("req-1", await place.context(Budget("1.00")), {first.pending[0].id: True})
        second = await agent.run("again", await place.context(Budget("1.00")))
        assert (second.output, second.cost, len(second.messages)) == ("second", Decimal("0.002"), 2)


async def test_a_running_id_is_a_conflict(place):
    """Two runs at once under one id: the second is refused, in memory as well as on disk."""
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        entered.set()
        await go.wait()
        return "ok"

    agent = Agent("a", Binding(ScriptedModel([wish("wait"), say("done"), say("other")]), price="1/1"), tools=[wait])
    async with place:
        ctx = await place.context(Budget("1.00"))
        one = asyncio.create_task(agent.run("go", ctx))
        await entered.wait()
        with pytest.raises(RunConflict, match="child"):
            await agent.run("go", ctx)
        assert (await agent.run("go", ctx.child(name="side"))).output == "done"
        go.set()
        assert (await one).output == "other"


async def test_another_tenants_run_is_not_found(place):
    """The same id under another tenant has nothing to resume, and may be used."""
    log = []
    agent = payer(log, [wish("pay"), say("theirs")])
    async with place:
        await agent.run("go", await place.context(Budget("1.00")))
        ctx = await place.context(Budget("1.00"))
        other = place.kept.context("req-1", Scope(tenant="evil"))
        with pytest.raises(RunConflict, match="no run 'req-1'"):
            await agent.resume("req-1", other, {"1.0": True})
        assert (await agent.run("go", other)).output == "theirs"
        assert log == []
        assert ctx.scope.tenant == "acme"


async def test_resume_refuses_other_agents_ids_and_missing_runs(place):
    """Another agent, another id than the context's, and an id nobody used are named."""
    agent = payer([], [wish("pay"), say("paid")])
    async with place:
        first = await agent.run("go", await place.context(Budget("1.00")))
        with pytest.raises(RunConflict, match=r"'clerk'.*'other'"):
            await Agent("other", Binding("scripted:x")).resume("req-1", await place.context(Budget("1.00")))
        with pytest.raises(ConfigurationError, match="req-2"):
            await agent.resume("req-2", await place.context(Budget("1.00")))
        with pytest.raises(RunConflict, match="req-9"):
            await agent.resume("req-9", await place.context(Budget("1.00"), "req-9"))
        last = await agent.resume("req-1", await place.context(Budget("1.00")), {first.pending[0].id: True})
        assert last.output == "paid"


@pytest.mark.parametrize("replies", [[say("done")], [wish("look"), wish("look"), wish("look")]])
async def test_resuming_a_finished_run_gives_its_result_at_no_cost(tmp_path, replies):
    """On disk a finished run gives the same result again, without a call; also one that ended without an output."""
    from agentkit import ReAct

    url = f"sqlite:{tmp_path / 'runs.db'}"
    model = ScriptedModel(replies)
    agent = Agent("a", Binding(model, price="1/1"), tools=[noted([], "look", "read")], cognition=ReAct(max_turns=2))
    async with CallRuntime(store=url) as calls:
        result = await agent.run("go", calls.context("r", SCOPE))
    asked = len(model.requests)
    budget = Budget("0.0001")
    async with CallRuntime(store=url) as calls:
        again = await agent.resume("r", calls.context("r", SCOPE, budget=budget))
    assert len(model.requests) == asked
    for field in ("output", "text", "messages", "usage", "cost", "calls", "stop_reason", "model", "provider"):
        assert getattr(again, field) == getattr(result, field), field


async def test_events_tell_of_checkpoints_after_they_are_written(tmp_path):
    """On disk every step is told with its revision, which a reader can already see; a resume says so."""
    store = open_store(tmp_path / "runs.db")
    log = []
    agent = payer(log, [wish("pay"), say("paid")])
    async with CallRuntime(store=store) as calls:
        async with agent.stream("go", calls.context("r", SCOPE)) as events:
            async for event in events:
                if isinstance(event, Checkpointed):
                    (summary,) = await store.run_log.slots("acme", "r")
                    assert summary.revision >= event.revision
        pending = events.result.pending[0]
        ctx = calls.context("r", SCOPE)
        from agentkit.testing import capture_events

        ctx.sink = capture_events()
        await agent.resume("r", ctx, {pending.id: True})
    seen = ctx.sink.events
    assert isinstance(seen[0], RunStarted) and seen[0].resumed
    assert isinstance(seen[-1], RunEnded)
    await store.aclose()


async def test_resume_without_a_store_says_what_to_pass():
    """A context without a run log has nothing to resume."""
    from agentkit.testing import make_context

    ctx = make_context(["x"])
    with pytest.raises(ConfigurationError, match="store="):
        await Agent("a", Binding("scripted:x")).resume("test-run", _with_models(ctx))


def _with_models(ctx):
    ctx.services = ctx.services.replace(models=CallRuntime().services.models)
    return ctx
