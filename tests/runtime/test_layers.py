"""Folding layers: the same answer streamed or not, outermost first, and nothing that is no middleware."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agentkit.core.contracts import (
    AttemptEnded,
    CallKey,
    ChatEnd,
    ChatRequest,
    Rates,
    ReasoningDelta,
    Route,
    TextDelta,
    ToolCall,
    ToolCallReady,
    ToolEnded,
    ToolProgress,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStarted,
    Usage,
    UserMessage,
)
from agentkit.core.runtime.invoker import Invoker
from agentkit.core.runtime.layers import SimpleMiddleware, chain
from agentkit.errors import AgentkitError, Overloaded, ToolError
from agentkit.middleware.meter import meter
from agentkit.testing import Fault, Reply, ScriptedModel, make_context

REQUEST = ChatRequest((UserMessage("Tell me."),))


def through(call, call_next):
    """Hand the stream on without looking."""
    return call_next(call)


async def look(call, call_next):
    """Look at every event and change none."""
    async with aclosing(call_next(call)) as events:
        async for event in events:
            await asyncio.sleep(0)
            yield event


class Shout(SimpleMiddleware):
    """Upper-case text, in the deltas and in the answer."""

    def on_event(self, call, event):
        """Change deltas."""
        return TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event

    async def on_response(self, call, event):
        """Change the answer."""
        message = event.response.message
        return ChatEnd(replace(event.response, message=replace(message, content=message.content.upper())))


class Cap(SimpleMiddleware):
    """Lower the output cap."""

    async def on_request(self, call):
        """Change the request."""
        settings = replace(call.request.settings, max_tokens=3)
        return replace(call, request=replace(call.request, settings=settings))


class Rescue(SimpleMiddleware):
    """Answer an overload with a fixed text."""

    async def on_error(self, call, error):
        """Replace the error."""
        if not isinstance(error, Overloaded):
            return None
        from agentkit.core.contracts import AssistantMessage, ChatResponse

        return ChatEnd(ChatResponse(AssistantMessage("sorry"), Usage(1, 1)))


LAYERS = {"through": through, "look": look, "shout": Shout(), "cap": Cap(), "rescue": Rescue(), "meter": meter()}
texts = st.text(alphabet="ab cdé ", max_size=40)
calls = st.lists(
    st.builds(ToolCall, st.uuids().map(str), st.sampled_from(["f", "g"]), st.sampled_from(["{}", '{"a": 1}'])),
    max_size=3,
)
replies = st.builds(
    Reply,
    texts,
    calls.map(tuple),
    texts,
    st.none() | st.builds(Usage, st.integers(0, 99), st.integers(0, 99)),
    chunk=st.none() | st.integers(1, 5),
)
scripts = st.lists(
    replies | st.builds(Fault, st.builds(Overloaded, st.just("busy")), st.integers(0, 8), replies),
    min_size=1,
    max_size=3,
)
stacks = st.lists(st.sampled_from(sorted(LAYERS)), max_size=5)


def assembled(events):
    """Fold the events by hand, as a consumer without ChatEnd would."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return text, reasoning, tuple(event.call for event in events if isinstance(event, ToolCallReady))


@settings(max_examples=80, deadline=None)
@given(stacks, scripts)
def test_streamed_equals_not_streamed(stack, script):
    """For any stack of layers and any script: same messages, usage, events, rows and errors either way."""

    async def run(streamed):
        model = ScriptedModel(deepcopy(script))  # an error tells of the first run that it ended
        ctx = make_context(model, middleware=[LAYERS[name] for name in stack])
        route = Route(model, "m", "scripted", Rates(1, 2))
        outcomes = []
        for _ in script:
            events = []

            async def watch(event, events=events):
                events.append(event)

            try:
                if streamed:
                    async with ctx.invoker.stream(REQUEST, ctx, route=route) as opened:
                        async for event in opened:
                            events.append(event)
                    end = events[-1].response
                else:
                    end = await ctx.invoker.chat(REQUEST, ctx, route=route, watch=watch)
            except AgentkitError as error:
                end = (type(error), error.message, error.run_id)
            kept = [event for event in events if not isinstance(event, AttemptEnded)]
            rows = [event.record for event in events if isinstance(event, AttemptEnded)]
            shown = replace(end, attempts=()) if not isinstance(end, tuple) else end
            outcomes.append((kept, shown, [(row.usage, row.cost, row.outcome) for row in rows]))
            if not isinstance(end, tuple) and "rescue" not in stack:
                text, reasoning, wishes = assembled(kept)
                assert (end.message.content, end.message.reasoning, end.message.tool_calls) == (text, reasoning, wishes)
        assert model.open_streams == 0
        return outcomes, ctx.budget.spent(), ctx.budget.usage, ctx.budget.calls

    assert asyncio.run(run(streamed=True)) == asyncio.run(run(streamed=False))


async def test_index_zero_is_outermost():
    """Layers see the request outside in and events inside out; both tuples read back."""
    order = []

    def named(name):
        async def layer(call, call_next):
            order.append(f"{name} in")
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    if isinstance(event, ChatEnd):
                        order.append(f"{name} end")
                    yield event
            order.append(f"{name} out")

        return layer

    layers = [named("outer"), named("inner")]
    ctx = make_context(["hi"], middleware=layers, tool_middleware=[through])
    await ctx.invoker.chat(REQUEST, ctx)
    assert order == ["outer in", "inner in", "inner end", "outer end", "inner out", "outer out"]
    assert ctx.invoker.chat_middleware == tuple(layers) and ctx.invoker.tool_middleware == (through,)


async def coroutine(call, call_next):
    """No generator."""


@pytest.mark.parametrize("broken", [None, "text", 3, Shout, coroutine, lambda call: None, lambda: None])
def test_what_is_no_middleware_is_refused_when_the_invoker_is_built(broken):
    """A TypeError names the place and what a middleware is."""
    with pytest.raises(TypeError, match=r"middleware\[1\] is .*A middleware is"):
        Invoker(chat_middleware=[through, broken])
    with pytest.raises(TypeError, match=r"middleware\[0\]"):
        Invoker(tool_middleware=[broken])
    with pytest.raises(TypeError):
        chain([broken], through)


class Echo:
    """A tool."""

    spec = ToolSpec("echo", "Say it again.", {"type": "object"})

    def bind(self, arguments):
        """Refuse one word, pass the rest."""
        if arguments == "bad":
            raise ToolError("bad arguments", tool="echo")
        return arguments

    async def invoke(self, bound, call):
        """Answer."""
        return ToolResult(f"{bound} at {call.request.key.position}")


async def test_tools_run_through_their_own_chain():
    """Events start and end, `watch` sees them, bound arguments are not bound again, errors carry the run id."""

    class Report(SimpleMiddleware):
        def on_event(self, call, event):
            return None if isinstance(event, ToolStarted) else event

        async def on_response(self, call, event):
            return ToolEnded(event.call, ToolResult(event.result.content + "!"))

    async def progress(call, call_next):
        yield ToolProgress(call.request.call, "half")
        async with aclosing(call_next(call)) as events:
            async for event in events:
                yield event

    ctx = make_context(tool_middleware=[progress, Report()])
    seen = []

    async def watch(event):
        seen.append(type(event))

    def wish(arguments, bound=None):
        return ToolRequest(Echo(), ToolCall("c", "echo", arguments), CallKey("r", "", 1, 2), bound)

    result = await ctx.invoker.invoke_tool(wish("hello"), ctx, watch=watch)
    assert result.content == "hello at 2!" and seen == [ToolProgress, ToolEnded]
    assert (await ctx.invoker.invoke_tool(wish("bad", "fine"), ctx)).content == "fine at 2!"
    with pytest.raises(ToolError) as caught:
        await ctx.invoker.invoke_tool(wish("bad"), ctx)
    assert caught.value.run_id == ctx.correlation_id


async def test_the_class_form_lets_errors_go_on_by_default():
    """Without an override every event passes and an error is raised as it was."""
    ctx = make_context(["hi", Overloaded("busy")], middleware=[SimpleMiddleware()])
    assert (await ctx.invoker.chat(REQUEST, ctx)).message.content == "hi"
    with pytest.raises(Overloaded, match="busy"):
        await ctx.invoker.chat(REQUEST, ctx)
