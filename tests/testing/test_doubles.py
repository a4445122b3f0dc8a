"""The public doubles behave like what they stand for."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatRequest,
    ChatStart,
    Mode,
    ModelSettings,
    NativeToolPolicy,
    OpaqueItem,
    ReasoningDelta,
    Route,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    Usage,
    UserMessage,
)
from agentkit.errors import ConfigurationError, Overloaded, StreamBroken
from agentkit.testing import (
    Fault,
    Hang,
    ManualClock,
    Reply,
    ScriptedModel,
    SubprocessAdapter,
    capture_events,
    capture_spans,
    make_context,
)

REQUEST = ChatRequest((UserMessage("Say something."),))
WISH = ToolCall("c1", "f", '{"a": 1}')


async def play(model, request=REQUEST):
    """Return all events of one call."""
    ctx = make_context(model)
    async with ctx.invoker.stream(request, ctx) as events:
        return [event async for event in events]


@pytest.mark.parametrize(
    ("script", "text", "wishes"),
    [
        ("two words", "two words", ()),
        ("", "", ()),
        (" spaced  out ", " spaced  out ", ()),
        (WISH, "", (WISH,)),
        (["I look.", WISH, WISH], "I look.", (WISH, WISH)),
        (Reply("x", (WISH,)), "x", (WISH,)),
        (lambda request: request.messages[0].content, "Say something.", ()),
    ],
)
async def test_a_reply_in_every_spelling(script, text, wishes):
    """Deltas add up to the message, calls come ready in order, the end tells why it stopped."""
    events = await play(ScriptedModel([script]))
    assert isinstance(events[0], ChatStart) and isinstance(events[-1], ChatEnd)
    response = events[-1].response
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text == response.message.content
    assert tuple(event.call for event in events if isinstance(event, ToolCallReady)) == wishes
    assert response.message.tool_calls == wishes
    assert response.stop_reason == ("tool_calls" if wishes else "stop")
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == WISH.arguments * len(
        wishes
    )


async def test_each_field_of_a_reply_has_its_effect():
    """Reasoning, usage, stop reason, chunks, model name and opaque items arrive."""
    item = OpaqueItem(("e", "m"), "sig", "x")
    reply = Reply("abcdef", (), "thinking", Usage(7, 9), "length", 4, 0.0, "other-model", (item,))
    events = await play(ScriptedModel([reply], name="named"))
    response = events[-1].response
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["abcd", "ef"]
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["thinking"]
    assert (response.usage, response.stop_reason, response.model) == (Usage(7, 9), "length", "other-model")
    assert response.message.opaque == (item,) and response.provider == "scripted"
    assert (await play(ScriptedModel(["x"], name="named")))[-1].response.model == "named"


async def test_usage_is_estimated_the_same_every_time_and_caps_are_kept():
    """Without usage the estimate is deterministic; a request's output cap cuts the text like a provider would."""
    first, second = [(await play(ScriptedModel(["some text here"])))[-1].response.usage for _ in range(2)]
    assert first == second and first.input_tokens > 0 and first.output_tokens == 4
    capped = ChatRequest(REQUEST.messages, settings=ModelSettings(max_tokens=3))
    response = (await play(ScriptedModel(["word " * 50]), capped))[-1].response
    assert response.usage.output_tokens <= 3 and response.stop_reason == "length"
    assert ("word " * 50).startswith(response.message.content.strip())


async def test_faults_break_off_where_they_are_told():
    """An exception fails before anything, Fault after that many events."""
    model = ScriptedModel([Overloaded("now"), Fault(Overloaded("later"), after=3)])
    ctx = make_context(model)
    seen = []
    for expected in ("now", "later"):
        with pytest.raises(Overloaded, match=expected):
            async with ctx.invoker.stream(REQUEST, ctx) as events:
                async for event in events:
                    seen.append(type(event))
    assert seen == [ChatStart, TextDelta, TextDelta]
    assert model.open_streams == 0 and len(model.requests) == len(model.calls) == 2


async def test_hang_waits_until_closed_and_delays_use_the_clock():
    """Hang never answers; delay and pause pass on the model's clock only."""
    clock = ManualClock()
    model = ScriptedModel([Hang(), Reply("a b", delay=5, pause=1)], clock=clock)
    ctx = make_context(model)
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    await clock.run_for(1000)
    assert not task.done() and model.open_streams == 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert model.open_streams == 0
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx))
    await clock.run_for(7.9)
    assert not task.done()
    await clock.run_for(0.1)
    assert (await task).message.content == "a b"
    assert clock.slept == [5, 1, 1, 1]


async def test_running_out_says_how_many_were_scripted():
    """Asked once too often: the error names the number; repeat_last plays the last one on; a function plays always."""
    model = ScriptedModel(["a", "b"])
    await play(model)
    await play(model)
    with pytest.raises(ConfigurationError, match="has 2 replies and was asked for number 3"):
        await play(model)
    again = ScriptedModel(["a", "b"], repeat_last=True)
    texts = [(await play(again))[-1].response.message.content for _ in range(4)]
    assert texts == ["a", "b", "b", "b"]
    counting = ScriptedModel(lambda request: str(len(counting.requests)))
    assert [(await play(counting))[-1].response.message.content for _ in range(3)] == ["1", "2", "3"]
    for bad in ([3], [[3]], [None]):
        with pytest.raises(ConfigurationError, match="cannot play"):
            ScriptedModel(bad)
    with pytest.raises(ConfigurationError, match="no last reply"):
        ScriptedModel([], repeat_last=True)


async def test_the_clock_fires_in_order_of_time():
    """Timers fire earliest first at their own time, cancelled ones not; sleeps started on the way fire too."""
    clock, log = ManualClock(0.0), []
    for when in (3, 1, 2):
        clock.call_at(when, lambda when=when: log.append((when, clock.now())))
    clock.call_at(2.5, lambda: log.append("cancelled")).cancel()
    clock.advance(2.7)
    assert log == [(1, 1), (2, 2)] and clock.now() == 2.7 and clock.pending == 1

    async def sleeper():
        for _ in range(3):
            await clock.sleep(1)
            log.append(clock.now())

    task = asyncio.create_task(sleeper())
    await clock.run_for(3)
    assert log[2:] == [(3, 3), 3.7, 4.7, 5.7] and task.done()
    start = clock.wall()
    clock.advance(60)
    assert (clock.wall() - start).total_seconds() == 60
    await clock.sleep(0)


async def test_a_made_context_is_a_real_one():
    """The tenant is "test", the model answers through the middleware, and events are captured with their numbers."""
    sink = capture_events()
    ctx = make_context(["hi"], sink=sink, run_id="r1", autonomy="manual", mode="plan")
    assert (ctx.scope.tenant, ctx.correlation_id, ctx.autonomy, ctx.mode) == ("test", "r1", "manual", "plan")
    await ctx.emit("progress", "x")
    assert [event.seq for event in sink.events] == [0] and ctx.sink is sink
    assert (await ctx.invoker.chat(REQUEST, ctx)).message.content == "hi"


def test_captured_spans_come_from_the_real_sdk():
    """Spans end up in memory, without anything global being configured."""
    from opentelemetry import trace

    with capture_spans() as captured:
        captured.provider.get_tracer("t").start_span("one").end()
        assert captured.names == ["one"] and captured.spans[0].end_time
        captured.clear()
        assert captured.names == []
        assert trace.get_tracer_provider() is not captured.provider


def call():
    """Return a call by a route."""
    ctx = make_context([])
    return Call(ctx, REQUEST, "c", Route(ctx.invoker.llm, "echo-model", "sub"))


async def test_the_subprocess_answers_from_stdin():
    """The prompt goes in on stdin, deltas come out, usage and model arrive; it is a CLI mode and keeps its policies."""
    adapter = SubprocessAdapter(native_tools="optional")
    async with aclosing(adapter.stream(call(), native_tool_policy=NativeToolPolicy.DENY)) as events:
        seen = [event async for event in events]
    response = seen[-1].response
    assert response.message.content == "Say something. " and response.model == "echo-model"
    assert response.usage == Usage(14, 2)
    assert (adapter.mode, adapter.native_tools, adapter.policies) == (Mode.CLI, "optional", [NativeToolPolicy.DENY])
    assert (adapter.running, adapter.peak) == (0, 1)
    await adapter.aclose()
    assert adapter.closed


GROUP = """
import os, subprocess, sys, time
sys.stdin.read()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"text": "%d"}' % child.pid, flush=True)
time.sleep(600)
"""


def alive(pid):
    """Return whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("way", ["close", "cancel"])
async def test_leaving_kills_the_whole_process_group(way):
    """Closing the stream or cancelling its task kills the child and what it started, before control returns."""
    adapter = SubprocessAdapter(GROUP)
    found = asyncio.Event()
    pids = []

    async def consume():
        async with aclosing(adapter.stream(call())) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    pids.extend([*adapter.pids, int(event.text)])
                    found.set()
                    if way == "close":
                        break

    task = asyncio.create_task(consume())
    await found.wait()
    if way == "cancel":
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    assert adapter.running == 0 and len(pids) == 2
    assert not alive(pids[0])
    while alive(pids[1]):  # killed with the group, a moment later
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("script", ["import sys; sys.stdin.read()", "print('not json')", "raise SystemExit(3)"])
async def test_a_child_without_its_end_is_a_broken_stream(script):
    """Ending early, or writing what is not ours, is StreamBroken, never a short answer."""
    with pytest.raises(StreamBroken):
        async with aclosing(SubprocessAdapter(script).stream(call())) as events:
            _ = [event async for event in events]
