"""Agents as tools: one budget, one deadline, one token for the tree; costs roll up once; tenants do not mix."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from agentkit import (
    Agent,
    Binding,
    Budget,
    CallRuntime,
    CancellationToken,
    ModelSettings,
    ReAct,
    RunContext,
    Scope,
    Services,
    SingleCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from agentkit.core.contracts import RunEnded, RunStarted
from agentkit.errors import (
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    MeterExceeded,
    OutputInvalid,
    Overloaded,
)
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel

USED = Usage(500, 500)  # costs 0.001 at 1/1
TASK = '{"task": "dig"}'


def say(text):
    """Return an answer that costs 0.001 dollars."""
    return Reply(text, usage=USED)


def wish(*names, arguments=TASK):
    """Return a turn that calls these tools and costs 0.001 dollars."""
    return Reply("", tuple(ToolCall(f"{n}-{i}", n, arguments) for i, n in enumerate(names)), usage=USED)


def agent(name, replies, tools=(), **more):
    """Return an agent over a scripted model at 1/1."""
    return Agent(name, Binding(ScriptedModel(replies), price="1/1"), tools=tools, **more)


def model_of(it):
    """Return an agent's scripted model."""
    return it.binding.port


async def test_b108_costs_of_children_roll_up_exactly_once():
    """Usage, cost and calls of three levels are in the top result, each row once, under its path."""
    deep = agent("deep", [say("d")])
    middle = agent("middle", [wish("deep"), say("m")], [deep.as_tool()])
    lead = agent("lead", [wish("middle"), say("l")], [middle.as_tool()])
    budget = Budget("1.00")
    async with CallRuntime() as calls:
        result = await lead.run("go", calls.context(budget=budget))
    assert result.cost == budget.spent() == Decimal("0.005")
    assert (result.calls, result.usage.output_tokens) == (5, 2500)
    assert len({(record.call_id, record.attempt) for record in result.records}) == len(result.records) == 5
    assert {record.path for record in result.records} == {"", "middle@1.0", "middle@1.0/deep@1.0"}


async def test_b108_costs_count_when_the_child_fails():
    """A child that spends and then fails is told to the lead, and what it spent is in the total, once."""
    child = agent("child", [wish("nothing"), Fault(Overloaded("down", retryable=False), after=0)])
    lead = agent("lead", [wish("child"), say("sorry")], [child.as_tool()])
    budget = Budget("1.00")
    async with CallRuntime() as calls:
        result = await lead.run("go", calls.context(budget=budget))
    told = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert "Overloaded" in told[0].content and told[0].is_error
    assert result.output == "sorry"
    assert result.cost == budget.spent()
    assert result.cost >= Decimal("0.003")
    assert sum(record.cost for record in result.records) == result.cost


async def test_b107_the_calls_limit_is_the_trees():
    """A lead limited to five calls stops a child that would loop for ten."""
    child = agent("child", [wish("nothing")] * 10, cognition=ReAct(max_turns=10))
    lead = agent("lead", [wish("child"), say("never")], [child.as_tool()])
    async with CallRuntime() as calls:
        with pytest.raises(MeterExceeded) as raised:
            await lead.run("go", calls.context(budget=Budget(max_calls=5)))
    assert raised.value.axis == "calls"
    assert len(model_of(child).requests) == 4


@pytest.mark.parametrize("on_exceeded", ["raise", "stop"])
async def test_depth_is_limited(on_exceeded):
    """A tree one level too deep is refused: raised, or suspended where the budget stops runs."""
    deep = agent("deep", [say("d")])
    middle = agent("middle", [wish("deep"), say("m")], [deep.as_tool()])
    lead = agent("lead", [wish("middle"), say("l")], [middle.as_tool()])
    async with CallRuntime() as calls:
        ctx = calls.context("r", budget=Budget(max_depth=1, on_exceeded=on_exceeded))
        if on_exceeded == "raise":
            with pytest.raises(MeterExceeded, match="depth"):
                await lead.run("go", ctx)
        else:
            assert (await lead.run("go", ctx)).stop_reason == "budget_exhausted"
        result = await lead.resume("r", calls.context("r", budget=Budget(max_depth=2)))
    assert result.output == "l"


async def test_width_is_limited():
    """A turn with more calls than the budget's width does none of them."""
    log = []

    @tool(effect="write")
    async def act() -> str:
        """Note it."""
        log.append(1)
        return "ok"

    lead = agent("lead", [wish("act", "act", "act", arguments="{}")], [act])
    async with CallRuntime() as calls:
        with pytest.raises(MeterExceeded, match="width"):
            await lead.run("go", calls.context(budget=Budget(max_width=2)))
    assert log == []


async def in_flight(model):
    """Wait until the model streams."""
    while not model.open_streams:
        await asyncio.sleep(0)


async def test_cancel_reaches_the_childs_call_in_flight():
    """Tripping the token closes the grandchild's stream at once; the run ends as Cancelled with all that was spent."""
    token, budget = CancellationToken(), Budget("1.00")
    child = agent("child", [Hang(2)])
    lead = agent("lead", [wish("child")], [child.as_tool()])
    async with CallRuntime() as calls:
        running = asyncio.create_task(lead.run("go", calls.context(cancel=token, budget=budget)))
        await in_flight(model_of(child))
        token.cancel("stop")
        for _ in range(6):
            await asyncio.sleep(0)
        assert model_of(child).open_streams == 0
        with pytest.raises(Cancelled) as raised:
            await running
    assert budget.held() == 0
    assert raised.value.known_cost == budget.spent()


async def test_deadline_reaches_the_childs_call_in_flight():
    """The lead's deadline ends the child's hanging call, in a parallel batch too, and is not told to the model."""
    clock, budget = ManualClock(), Budget("1.00")
    one, two = agent("one", [Hang(2)]), agent("two", [Hang(2)])
    lead = agent("lead", [wish("one", "two"), say("never")], [one.as_tool(), two.as_tool()])
    async with CallRuntime(services=Services(clock=clock)) as calls:
        running = asyncio.create_task(lead.run("go", calls.context(budget=budget), deadline=3))
        await in_flight(model_of(one))
        await in_flight(model_of(two))
        await clock.run_for(4)
        with pytest.raises(DeadlineExceeded):
            await running
    assert model_of(one).open_streams == model_of(two).open_streams == 0
    assert budget.held() == 0
    assert len(model_of(lead).requests) == 1


async def test_twenty_runs_of_one_agent_do_not_mix_tenants():
    """One Agent object, twenty tenants at once: each reads its own tenant, its own messages and pays its own money."""
    gate = asyncio.Barrier(20)

    @tool(effect="read")
    async def whoami(ctx: RunContext) -> str:
        """Say the tenant."""
        await gate.wait()
        return ctx.scope.tenant

    def reply(request):
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return Reply(f"{request.messages[0].content} is {last.content}", usage=USED)
        return wish("whoami", arguments="{}")

    clerk = Agent("clerk", Binding(ScriptedModel(reply), price="1/1"), tools=[whoami])
    async with CallRuntime() as calls:
        budgets = [Budget("1.00") for _ in range(20)]
        results = await asyncio.gather(
            *(clerk.run(f"q{i}", calls.context("same-id", Scope(tenant=f"t{i}"), budget=budgets[i])) for i in range(20))
        )
    assert [result.output for result in results] == [f"q{i} is t{i}" for i in range(20)]
    assert all(result.cost == budget.spent() for result, budget in zip(results, budgets, strict=True))
    assert all(len(result.messages) == 4 for result in results)


async def test_nested_fan_out_at_two_slots_completes():
    """Three levels of agents as tools, three wide each, at max_concurrency=2: nobody starves."""

    def reply(below):
        def play(request):
            if any(isinstance(message, ToolMessage) for message in request.messages):
                return say("done")
            return wish(below, below, below) if below else say("leaf")

        return play

    def level(name, below, tools):
        return Agent(name, Binding(ScriptedModel(reply(below)), price="1/1"), tools=tools)

    leaf = level("leaf", None, [])
    two = level("two", "leaf", [leaf.as_tool()])
    one = level("one", "two", [two.as_tool()])
    lead = level("lead", "one", [one.as_tool()])
    budget = Budget("1.00", max_concurrency=2)
    async with CallRuntime() as calls, asyncio.timeout(30):
        result = await lead.run("go", calls.context(budget=budget))
    assert result.output == "done"
    assert result.calls == 2 + 3 * 2 + 9 * 2 + 27
    assert result.cost == budget.spent()


async def test_events_of_the_whole_tree_have_paths_and_one_end_each():
    """Every path begins and ends once, numbers have no gap, and the top level's end is the last event."""
    child = agent("child", [say("c"), say("c")])
    lead = agent("lead", [wish("child", "child"), say("l")], [child.as_tool()])
    async with lead.stream("go") as events:
        seen = [event async for event in events]
    assert [event.seq for event in seen] == list(range(len(seen)))
    for kind in (RunStarted, RunEnded):
        assert sorted(e.path for e in seen if isinstance(e, kind)) == ["", "child@1.0", "child@1.1"]
    assert isinstance(seen[-1], RunEnded) and seen[-1].path == ""


async def test_numbers_keep_their_order_while_a_slow_reader_holds_many_writers_back():
    """Three reads that tell 400 things each, read seven at a time: still in order, nothing lost."""

    @tool(effect="read")
    async def talk(ctx: RunContext) -> str:
        """Tell a lot."""
        for number in range(400):
            await ctx.emit("progress", str(number))
        return "ok"

    lead = agent("lead", [wish("talk", "talk", "talk", arguments="{}"), say("l")], [talk])
    async with lead.stream("go") as events:
        numbers = []
        async for event in events:
            numbers.append(event.seq)
            if len(numbers) % 7 == 0:
                await asyncio.sleep(0)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 1200


async def test_a_child_without_an_answer_is_an_error_for_the_lead():
    """A child that stops at its turns without text tells the lead why."""
    child = agent("child", [wish("nothing")], cognition=ReAct(max_turns=1, final_answer=False))
    lead = agent("lead", [wish("child"), say("l")], [child.as_tool()])
    result = await lead.run("go")
    told = next(message for message in result.messages if isinstance(message, ToolMessage))
    assert told.is_error
    assert "max_turns" in told.content


@pytest.mark.parametrize("arguments", ["{}", '{"task": 3}', '{"task": "x", "more": 1}', "nonsense"])
async def test_bad_tasks_are_answered(arguments):
    """A sub-agent called with anything but a task is told what to pass; nothing runs."""
    child = agent("child", [])
    lead = agent("lead", [wish("child", arguments=arguments), say("l")], [child.as_tool()])
    result = await lead.run("go")
    told = next(message for message in result.messages if isinstance(message, ToolMessage))
    assert '{"task"' in told.content


async def test_every_parameter_of_agent_has_an_effect():
    """Instructions, tools, output, cognition, settings, corrections and description do what they say."""
    model = ScriptedModel(["not json", '{"n": 1}'])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    it = Agent(
        "it",
        Binding(model),
        instructions="Count.\nCarefully.",
        output=schema,
        settings=ModelSettings(temperature=0.3),
        description="Counts things.",
    )
    assert (await it.run("go")).output == {"n": 1}
    assert model.requests[0].messages == (SystemMessage("Count.\nCarefully."), UserMessage("go"))
    assert model.requests[0].settings.temperature == 0.3
    assert it.as_tool().spec.description == "Counts things."
    assert Agent("a", it.binding, instructions="Count.\nMore").as_tool().spec.description == "Count."
    renamed = it.as_tool(name="counter", description="x", requires_approval=True)
    assert (renamed.spec.name, renamed.spec.description, renamed.requires_approval) == ("counter", "x", True)

    never = Agent("never", Binding(ScriptedModel(["bad", '{"n": 1}'])), output=schema, corrections=0)
    with pytest.raises(OutputInvalid):
        await never.run("go")
    often = Agent("often", Binding(ScriptedModel(["a", "b", '{"n": 2}'])), output=schema, corrections=2)
    assert (await often.run("go")).output == {"n": 2}
    once = Agent("once", Binding(ScriptedModel([wish("x"), "text"])), cognition=SingleCall())
    assert (await once.run("go")).output == "text"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", Binding("scripted:x")), "name"),
        (("two words", Binding("scripted:x")), "name"),
        ((7, Binding("scripted:x")), "name"),
        (("a", "openai:gpt-5.2"), "Binding"),
    ],
)
def test_bad_agents_are_refused(arguments, message):
    """A name providers refuse and a binding that is none are named at construction."""
    with pytest.raises(ConfigurationError, match=message):
        Agent(*arguments)


async def test_two_tools_of_one_name_and_a_bad_output_are_refused():
    """Wiring faults are found before anything is sent."""
    child = agent("child", [])
    with pytest.raises(ConfigurationError, match="'child'"):
        agent("lead", [], [child.as_tool(), child.as_tool()])
    with pytest.raises(ConfigurationError, match="output"):
        await agent("lead", [say("x")], output={"type": "objekt"}).run("go")


async def test_an_approval_before_a_sub_agent_runs():
    """`as_tool(requires_approval=True)` asks before the child costs anything; then it runs once."""
    child = agent("child", [say("c")])
    lead = agent("lead", [wish("child"), say("l")], [child.as_tool(requires_approval=True)])
    async with CallRuntime() as calls:
        first = await lead.run("go", calls.context("r"))
        assert first.stop_reason == "suspended"
        assert not model_of(child).requests
        last = await lead.resume("r", calls.context("r"), {first.pending[0].id: True})
    assert last.output == "l"
    assert len(model_of(child).requests) == 1


@pytest.mark.parametrize("kind", ["budget", "deadline"])
async def test_run_and_stream_take_a_budget_and_a_deadline(kind):
    """`Agent.run` and `Agent.stream` apply both, with and without a context."""
    limit = {"budget": Budget("0.000001")} if kind == "budget" else {"deadline": -1}
    expected = MeterExceeded if kind == "budget" else DeadlineExceeded
    lead = agent("lead", [say("x")])
    async with CallRuntime() as calls:
        for ctx in (None, calls.context()):
            with pytest.raises(expected):
                await lead.run("go", ctx, **limit)
        with pytest.raises(expected):
            async with lead.stream("go", calls.context(), **limit) as events:
                async for _ in events:
                    pass
    assert not model_of(lead).requests
