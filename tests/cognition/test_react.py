"""The tool loop: parallel reads, order, bad calls, limits, and one answer to every call."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit import (
    Agent,
    AssistantMessage,
    Binding,
    Budget,
    CallRuntime,
    CancellationToken,
    ReAct,
    RunContext,
    Scope,
    Services,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    run,
    run_sync,
    tool,
)
from agentkit.core.contracts import ChatEnd, ModelEvent, RunEnded, RunStarted, ToolEnded, ToolEvent, ToolStarted
from agentkit.errors import (
    AgentkitError,
    Cancelled,
    ConfigurationError,
    DeadlineExceeded,
    OutputInvalid,
    Overloaded,
)
from agentkit.testing import Fault, Hang, ManualClock, Reply, ScriptedModel


def wish(number, name, arguments="{}"):
    """Return a tool call with the id c<number>."""
    return ToolCall(f"c{number}", name, arguments)


def answers_of(messages):
    """Return the tool answers of a transcript, after checking that each turn's calls are answered once, in order."""
    messages = list(messages)
    found = []
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            answers = messages[place + 1 : place + 1 + len(message.tool_calls)]
            assert [answer.call_id for answer in answers] == [call.id for call in message.tool_calls]
            found += answers
    assert len(found) == sum(isinstance(message, ToolMessage) for message in messages)
    return found


def noted(log, name, effect, **more):
    """Return a tool that notes that it ran."""

    @tool(name=name, effect=effect, **more)
    async def act() -> str:
        """Note it."""
        log.append(name)
        return f"{name} done"

    return act


async def test_reads_of_a_turn_run_together():
    """Three reads meet at a barrier that only opens when all of them are inside."""
    barrier = asyncio.Barrier(3)

    @tool(effect="read")
    async def look(where: int) -> int:
        """Look somewhere."""
        await barrier.wait()
        return where

    model = ScriptedModel([[wish(i, "look", f'{{"where": {i}}}') for i in range(3)], "seen"])
    answer = await run(Binding(model), "q", [look])
    assert answer.text == "seen"
    assert [answer.content for answer in answers_of(answer.messages)] == ["0", "1", "2"]


async def test_what_acts_runs_in_call_order_and_alone():
    """Writes never overlap, neither with each other nor with the reads around them."""
    open_now, log = 0, []

    def make(name, effect):
        @tool(name=name, effect=effect)
        async def act() -> str:
            """Note who is open."""
            nonlocal open_now
            open_now += 1
            for _ in range(3):
                await asyncio.sleep(0)
            log.append((name, open_now))
            open_now -= 1
            return name

        return act

    tools = [make("w1", "write"), make("r1", "read"), make("x1", "external"), make("u1", "unknown")]
    names = ["w1", "u1", "r1", "x1", "w1"]
    model = ScriptedModel([[wish(i, name) for i, name in enumerate(names)], "done"])
    answer = await run(Binding(model), "q", tools)
    assert log == [(name, 1) for name in names]
    assert [answer.content for answer in answers_of(answer.messages)] == names


async def test_results_appear_as_they_land_and_the_transcript_keeps_call_order():
    """A read that ends first is told first; its answer stands at its call's place."""
    second_done = asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "slow"

    @tool(effect="read")
    async def fast() -> str:
        """Be first."""
        second_done.set()
        return "fast"

    agent = Agent("a", Binding(ScriptedModel([[wish(0, "slow"), wish(1, "fast")], "ok"])), tools=[slow, fast])
    async with agent.stream("q") as events:
        landed = [
            e.event.call.name async for e in events if isinstance(e, ToolEvent) and isinstance(e.event, ToolEnded)
        ]
    assert landed == ["fast", "slow"]
    assert [answer.content for answer in answers_of(events.result.messages)] == ["slow", "fast"]


async def test_unknown_tools_bad_and_cut_arguments_are_answered():
    """A made-up name lists the tools, bad arguments are explained, the good call of the turn still runs."""
    log = []

    @tool(effect="write")
    async def save(path: str, text: str = "") -> str:
        """Save a text."""
        log.append((path, text))
        return "saved"

    calls = [
        wish(0, "get_dat"),
        wish(1, "save", '{"path": 3}'),
        wish(2, "save", '{"path": "a"}'),
        wish(3, "save", '{"path": "b", "text": "#!/usr/b'),
    ]
    model = ScriptedModel([calls, "sorry"])
    answer = await run(Binding(model), "q", [save])
    told = answers_of(answer.messages)
    assert "get_dat" in told[0].content and "save" in told[0].content
    assert "path" in told[1].content
    assert [message.is_error for message in told] == [True, True, False, True]
    assert log == [("a", "")]


@pytest.mark.parametrize("arguments", ['{"path": "a", "text": "#!/usr', "", "  "])
async def test_arguments_cut_at_the_output_cap_are_never_run(arguments):
    """When the cap ended the answer, cut arguments, and missing ones at its end, are not run as if they were empty."""
    log = []
    act = noted(log, "act", "write")
    model = ScriptedModel([Reply("", (wish(0, "act", arguments),), stop_reason="length"), "ok"])
    answer = await run(Binding(model), "q", [act])
    assert log == []
    assert "cut off" in answers_of(answer.messages)[0].content


async def test_complete_calls_run_whatever_the_stop_reason_says():
    """Calls decide, not the reason: "stop" and "length" with complete calls run them."""
    log = []
    act = noted(log, "act", "write")
    replies = [
        Reply("", (wish(0, "act"),), stop_reason="stop"),
        Reply("", (wish(1, "act"),), stop_reason="length"),
        "ok",
    ]
    answer = await run(Binding(ScriptedModel(replies)), "q", [act])
    assert log == ["act", "act"]
    assert answer.stop_reason == "stop"


async def test_text_before_calls_does_not_end_the_run():
    """Whitespace or text in front of a call is no final answer, streamed or not."""
    for text in ("\n\n", "Let me look."):
        log = []
        model = ScriptedModel([[text, wish(0, "act")], "final"])
        answer = await run(Binding(model), "q", [noted(log, "act", "read")])
        assert (answer.text, log) == ("final", ["act"])


async def test_a_failing_tool_is_told_and_its_siblings_finish():
    """One read raises, one cancels something inside, the third gives its result: three answers, no crash."""

    @tool(effect="read")
    async def fails() -> str:
        """Fail."""
        raise ValueError("broken pipe")

    @tool(effect="read")
    async def cancels() -> str:
        """Cancel something inside."""
        inner = asyncio.ensure_future(asyncio.get_running_loop().create_future())
        inner.cancel()
        await inner
        return "never"

    log = []
    calls = [wish(0, "fails"), wish(1, "cancels"), wish(2, "fine")]
    answer = await run(Binding(ScriptedModel([calls, "ok"])), "q", [fails, cancels, noted(log, "fine", "read")])
    told = answers_of(answer.messages)
    assert "ValueError: broken pipe" in told[0].content
    assert "cancelled" in told[1].content
    assert told[2].content == "fine done"


async def test_empty_answer_after_a_tool_turn_is_a_fault():
    """An empty stop after tools is sent back once and then raised, not taken for success."""
    log = []
    model = ScriptedModel([wish(0, "act"), Reply(""), Reply("")])
    with pytest.raises(OutputInvalid) as raised:
        await run(Binding(model), "q", [noted(log, "act", "read")])
    assert len(raised.value.messages) == 6
    assert log == ["act"]


async def test_b67_max_turns_gives_one_last_answer_without_tools():
    """After `max_turns` the model gets a call with tool_choice none; the run ends as max_turns with that answer."""
    log = []
    model = ScriptedModel([wish(0, "act"), wish(1, "act"), "what I have"])
    answer = await run(Binding(model), "q", [noted(log, "act", "read")], max_turns=2)
    assert (answer.stop_reason, answer.text, answer.value) == ("max_turns", "what I have", "what I have")
    assert log == ["act", "act"]
    assert [request.tool_choice and request.tool_choice.mode for request in model.requests] == [None, None, "none"]
    assert model.calls[-1].purpose == "final"


async def test_calls_in_the_last_turn_are_answered_and_not_run():
    """A model that calls a tool although it may not has its call answered; nothing runs, the transcript is whole."""
    log = []
    model = ScriptedModel([wish(0, "act"), ["so far: x", wish(1, "act")], "next"])
    binding = Binding(model)
    answer = await run(binding, "q", [noted(log, "act", "read")], max_turns=1)
    assert (answer.stop_reason, answer.text, log) == ("max_turns", "so far: x", ["act"])
    assert answers_of(answer.messages)[-1].is_error
    await run(binding, [*answer.messages, UserMessage("go on")], [noted(log, "act", "read")])


async def test_b67_final_answer_false_ends_without_another_call():
    """`ReAct(final_answer=False)` stops at the limit with everything gathered."""
    model = ScriptedModel([wish(0, "act"), wish(1, "act")])
    agent = Agent(
        "a", Binding(model), tools=[noted([], "act", "read")], cognition=ReAct(max_turns=2, final_answer=False)
    )
    result = await agent.run("q")
    assert (result.stop_reason, result.output, result.text) == ("max_turns", None, "")
    assert len(model.requests) == 2
    assert len(answers_of(result.messages)) == 2


@pytest.mark.parametrize("turns", [0, -1, True, 1.5, "3"])
def test_bad_max_turns_are_refused(turns):
    """A bound that means nothing is refused by name."""
    with pytest.raises(ConfigurationError, match="max_turns"):
        ReAct(max_turns=turns)


async def test_duplicate_and_missing_ids_become_unique():
    """Whatever ids a provider repeats or leaves out, the transcript's are unique and each call has its own answer."""
    log = []
    calls = [ToolCall(i, "act", "{}") for i in ("x", "x", "", "call_1_1")]
    model = ScriptedModel([calls, [ToolCall("x", "act", "{}"), ToolCall("call_2_0", "act", "{}")], "ok"])
    answer = await run(Binding(model), "q", [noted(log, "act", "read")])
    told = answers_of(answer.messages)
    assert len({message.call_id for message in told}) == len(told) == 6


async def test_tools_need_no_context_parameter_but_get_one():
    """A parameter annotated RunContext is injected and hidden from the schema."""

    @tool(effect="read")
    async def who(ctx: RunContext) -> str:
        """Say who asks."""
        return ctx.scope.tenant

    model = ScriptedModel([wish(0, "who"), "ok"])
    async with CallRuntime() as calls:
        ctx = calls.context("r", Scope(tenant="acme"))
        answer = await calls.run(Binding(model), "q", [who], ctx=ctx)
    assert answers_of(answer.messages)[0].content == "acme"
    assert model.requests[0].tools[0].parameters["properties"] == {}


async def test_a_call_made_inside_a_tool_is_a_run_below_it():
    """`ask` on the tool's own context runs one level deeper, in memory and on SQLite, and is paid for once."""
    from agentkit import ask

    inner = Binding(ScriptedModel([Reply("inner", usage=Usage(10, 10))], repeat_last=True), price="1/1")

    @tool(effect="read")
    async def think(ctx: RunContext) -> str:
        """Ask a model."""
        return (await ask(inner, "sub", ctx=ctx)).text

    async with CallRuntime() as calls:
        model = ScriptedModel([[wish(0, "think"), wish(1, "think")], "ok"])
        answer = await calls.run(Binding(model), "q", [think])
    assert [message.content for message in answers_of(answer.messages)] == ["inner", "inner"]
    assert answer.cost == Decimal("0.00004")
    assert sorted({record.path for record in answer.records}) == ["", "single_call", "single_call#2"]


async def test_an_error_carries_a_whole_transcript():
    """A deadline inside a tool leaves messages in which the open call has an answer that says it may have run."""
    clock = ManualClock()
    entered = asyncio.Event()

    @tool(effect="write")
    async def stuck() -> str:
        """Hang."""
        entered.set()
        await asyncio.get_running_loop().create_future()
        return ""

    log = []
    model = ScriptedModel([[wish(0, "first"), wish(1, "stuck"), wish(2, "first")]])
    async with CallRuntime(services=Services(clock=clock)) as calls:
        running = asyncio.create_task(calls.run(Binding(model), "q", [noted(log, "first", "write"), stuck], deadline=5))
        await entered.wait()
        await clock.run_for(6)
        with pytest.raises(DeadlineExceeded) as raised:
            await running
    told = [message for message in raised.value.messages if message["type"] == "tool"]
    assert [message["call_id"] for message in told] == ["c0", "c1", "c2"]
    assert told[0]["content"] == "first done"
    assert "unknown" in told[1]["content"]
    assert log == ["first"]


async def test_cancel_reaches_the_model_call_in_flight_within_a_step():
    """Tripping the token aborts the stream at once and the next step raises Cancelled."""
    token = CancellationToken()
    model = ScriptedModel([Hang(2)])
    async with CallRuntime() as calls:
        ctx = calls.context(cancel=token)
        running = asyncio.create_task(calls.run(Binding(model), "q", ctx=ctx))
        while not model.open_streams:
            await asyncio.sleep(0)
        token.cancel("enough")
        for _ in range(8):
            await asyncio.sleep(0)
        assert model.open_streams == 0
        with pytest.raises(Cancelled, match="enough"):
            await running


# Streams


def quiet(events):
    """Return events without numbers, for comparing."""
    return [type(event).__name__ for event in events]


async def test_leaving_a_stream_early_cancels_settles_and_closes():
    """Breaking out after one event leaves no open stream, nothing held, and no task behind."""
    model = ScriptedModel([Hang(3)])
    budget = Budget("1.00")
    async with CallRuntime() as calls:
        before = len(asyncio.all_tasks())
        agent = Agent("a", Binding(model, price="1/1"))
        async with agent.stream("q", calls.context(budget=budget)) as events:
            async for event in events:
                if isinstance(event, ModelEvent):
                    break
        assert model.open_streams == 0
        assert budget.held() == 0
        assert budget.spent() > 0
        assert len(asyncio.all_tasks()) == before
        with pytest.raises(AgentkitError, match="no result"):
            _ = events.result


async def test_an_error_is_raised_where_the_next_event_would_be():
    """The events before the fault are delivered; then its error, and no RunEnded."""
    model = ScriptedModel([Fault(Overloaded("down", retryable=False), after=4)])
    seen = []
    with pytest.raises(Overloaded):
        async with Agent("a", Binding(model)).stream("q") as events:
            async for event in events:
                seen.append(event)
    assert isinstance(seen[0], RunStarted)
    assert not any(isinstance(event, RunEnded) for event in seen)


async def test_a_stream_is_opened_once_and_before_it_is_read():
    """Reading before opening and opening twice are refused."""
    stream = Agent("a", Binding("scripted:x")).stream("q")
    with pytest.raises(AgentkitError, match="Open the stream"):
        await anext(stream)
    async with stream:
        with pytest.raises(AgentkitError, match="opened before"):
            await stream.__aenter__()


async def test_a_slow_reader_slows_the_run_until_the_deadline():
    """A reader that stops reading stops the model's stream at the queue's bound; the deadline then ends the run."""
    clock = ManualClock()
    told = 0

    class Counting(ScriptedModel):
        async def stream(self, call):
            nonlocal told
            async for event in super().stream(call):
                told += 1
                yield event

    model = Counting([Reply("x" * 2000, chunk=1)])
    async with CallRuntime(services=Services(clock=clock)) as calls:
        with pytest.raises(DeadlineExceeded):
            async with calls.stream(Binding(model), "q", deadline=10) as events:
                await anext(events)
                for _ in range(5000):
                    await asyncio.sleep(0)
                assert told < 300
                await clock.run_for(11)
                assert model.open_streams == 0
                async for _ in events:
                    pass


async def test_the_runtime_streams_asks_and_tool_runs_alike():
    """`calls.stream` without tools asks once, with tools it loops; `.result` is there after the last event."""
    async with CallRuntime() as calls:
        async with calls.stream(Binding("scripted:hi"), "q") as events:
            kinds = [type(event).__name__ async for event in events]
        assert (kinds[0], kinds[-1], events.result.text) == ("RunStarted", "RunEnded", "hi")
        model = ScriptedModel([wish(0, "act"), "ok"])
        async with calls.stream(Binding(model), "q", [noted([], "act", "read")]) as events:
            async for _ in events:
                pass
        assert events.result.text == "ok"


_TOOLS = ("read_a", "read_b", "write_a", "broken", "nobody")
_turns = st.lists(
    st.lists(st.tuples(st.sampled_from(_TOOLS), st.sampled_from(["{}", "", '{"x": 1}', '{"x'])), max_size=4),
    max_size=4,
)


def scripted(turns, ids):
    """Return a model that makes these calls turn by turn and then answers."""
    replies, number = [], 0
    for turn in turns:
        if turn:
            calls = []
            for name, arguments in turn:
                calls.append(ToolCall(ids[number % len(ids)], name, arguments))
                number += 1
            replies.append(Reply("thinking aloud", tuple(calls), usage=Usage(7, 3)))
    return ScriptedModel([*replies, Reply("the end", usage=Usage(7, 3))])


def toolbox(log):
    """Return two reads, a write and one that fails."""

    @tool(effect="read")
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("no")

    return [noted(log, "read_a", "read"), noted(log, "read_b", "read"), noted(log, "write_a", "write"), broken]


@settings(max_examples=60, deadline=None)
@given(turns=_turns, ids=st.lists(st.sampled_from(["", "a", "call_1_1", "call_2_0"]), min_size=1, max_size=5))
def test_streamed_equals_not_streamed(turns, ids):
    """For any script: same messages, usage, cost and calls; numbers without gap; exactly one end; whole transcripts."""

    async def both():
        plain_log, streamed_log = [], []
        plain = await Agent(
            "a", Binding(scripted(turns, ids), price="1/1"), tools=toolbox(plain_log), cognition=ReAct(max_turns=3)
        ).run("q")
        agent = Agent(
            "a", Binding(scripted(turns, ids), price="1/1"), tools=toolbox(streamed_log), cognition=ReAct(max_turns=3)
        )
        async with agent.stream("q") as stream:
            events = [event async for event in stream]
        return plain, stream.result, events, plain_log, streamed_log

    plain, streamed, events, plain_log, streamed_log = run_sync(both())
    assert streamed.messages == plain.messages
    assert (streamed.usage, streamed.cost, streamed.calls) == (plain.usage, plain.cost, plain.calls)
    assert (streamed.stop_reason, streamed.output) == (plain.stop_reason, plain.output)
    assert streamed_log == plain_log
    assert [event.seq for event in events] == list(range(len(events)))
    assert [type(event) for event in events].count(RunEnded) == 1
    assert isinstance(events[-1], RunEnded) and events[-1].result == streamed
    answers = answers_of(streamed.messages)
    responses = [e.event.response for e in events if isinstance(e, ModelEvent) and isinstance(e.event, ChatEnd)]
    assert sum(response.usage.output_tokens for response in responses) == streamed.usage.output_tokens
    ended = [e.event for e in events if isinstance(e, ToolEvent) and isinstance(e.event, ToolEnded)]
    final = sum(len(response.message.tool_calls) for response in responses[3:])
    assert len(ended) == len(answers) - final
    started = [e.event for e in events if isinstance(e, ToolEvent) and isinstance(e.event, ToolStarted)]
    assert len(started) <= len(ended)
