"""The trace layers, through a real OpenTelemetry SDK with its exporter in memory."""

from __future__ import annotations

import asyncio
import gc
import json
from decimal import Decimal

import pytest

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    CallKey,
    ChatRequest,
    ModelSettings,
    Rates,
    RetryPolicy,
    Route,
    Scope,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolRequest,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
    semconv,
)
from agentkit.core.runtime.services import Services
from agentkit.core.runtime.telemetry.masking import MASK_FAILED, Masker
from agentkit.errors import AuthFailed, Overloaded, StreamBroken
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry
from agentkit.middleware.trace import trace, trace_tools
from agentkit.observe import OtelTrace
from agentkit.testing import Fault, ManualClock, Reply, ScriptedModel, capture_spans, make_context

RATES = Rates(Decimal(1), Decimal(2), Decimal(1), Decimal(1), Decimal(1))
TALK = (
    SystemMessage("secret system"),
    UserMessage("secret question"),
    AssistantMessage("", (ToolCall("c1", "pay", '{"card": "4111"}'),)),
    ToolMessage("c1", "receipt 4111"),
)
REQUEST = ChatRequest(TALK, settings=ModelSettings(max_tokens=9, temperature=0.5, stop=("END",)))


class Metrics:
    """Metrics in a list."""

    def __init__(self, error=None) -> None:
        self.rows, self.error = [], error

    def add_counter(self, name, value, attributes):
        self.record_histogram(name, value, attributes)

    def record_histogram(self, name, value, attributes):
        if self.error is not None:
            raise self.error
        self.rows.append((name, value, dict(attributes)))

    def of(self, name):
        return [(value, attributes) for key, value, attributes in self.rows if key == name]


class Replays:
    """Replay records in a list."""

    def __init__(self) -> None:
        self.records = []

    async def put(self, record):
        self.records.append(record)


def a_context(captured, *, layers=(), capture_text=False, clock=None, scope=None, **services):
    chat = [trace(capture_text=capture_text), *layers, meter()]
    services = Services(trace=OtelTrace(captured.provider), **services)
    fields = {} if clock is None else {"clock": clock}
    tools = [trace_tools(capture_text=capture_text)]
    return make_context("unused", middleware=chat, tool_middleware=tools, services=services, scope=scope, **fields)


def a_route(*script, clock=None) -> Route:
    return Route(ScriptedModel(script, clock=clock), "gpt-test", "openai", RATES)


async def test_a_model_call_is_one_client_span_with_the_conventions_names():
    """Name, kind, request, response, usage and cost stand on the span; no text does."""
    captured = capture_spans()
    ctx = a_context(captured, scope=Scope("acme", "ann", "chat-7"))
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("secret answer", usage=Usage(1000, 500, 100))))
    (span,) = captured.spans
    attributes = dict(span.attributes)
    assert (span.name, span.kind.name, span.status.status_code.name) == ("chat gpt-test", "CLIENT", "UNSET")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-test",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 500,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.conversation.id": "chat-7",
        "agentkit.cost_usd": 0.002,
        "agentkit.run.id": "test-run",
        "agentkit.scope.tenant": "acme",
        "agentkit.scope.user": "ann",
    }
    assert expected.items() <= attributes.items()
    assert attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert "secret" not in repr(attributes) + repr([event.attributes for event in span.events])


async def test_retries_are_events_of_the_one_span_and_its_sum_is_the_ledgers():
    """Failed attempts do not get spans; the span's usage is that of every attempt."""
    captured, clock = capture_spans(), ManualClock()
    ctx = a_context(captured, layers=[retry(RetryPolicy(), random=lambda: 0.0)], clock=clock)
    route = a_route(StreamBroken("reset"), Reply("ok", usage=Usage(10, 5)), clock=clock)
    task = asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route))
    await clock.run_for(1)
    await task
    (span,) = captured.spans
    assert [(event.name, event.attributes["attempt"]) for event in span.events] == [("retry.attempt", 1)]
    booked = sum((record.usage for record in ctx.account.records), Usage())
    assert span.attributes[semconv.USAGE_INPUT] == booked.input_tokens > 10
    assert span.attributes[semconv.COST] == float(ctx.account.tally.spent)


async def test_calls_side_by_side_keep_their_usage_apart():
    """Two calls of one run at the same time: each span has its own tokens, together the account's."""
    captured, clock = capture_spans(), ManualClock()
    ctx = a_context(captured, clock=clock)
    routes = [a_route(Reply("ok", usage=Usage(10 * n, n), delay=n), clock=clock) for n in (1, 2)]
    tasks = [asyncio.create_task(ctx.invoker.chat(REQUEST, ctx, route=route)) for route in routes]
    await clock.run_for(5)
    await asyncio.gather(*tasks)
    assert [span.attributes[semconv.USAGE_INPUT] for span in captured.spans] == [10, 20]
    assert ctx.account.tally.usage.input_tokens == 30


async def test_a_failure_marks_the_span_and_a_foreign_text_stays_off_it():
    """Our errors show class and text, others only their class; the finish reason of a cut stream is error."""
    captured = capture_spans()
    ctx = a_context(captured)
    with pytest.raises(AuthFailed):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(AuthFailed("key is wrong")))

    class Bug:
        def stream(self, call):
            raise ValueError("Authorization: Bearer sk-FAKE")

    with pytest.raises(ValueError):
        await ctx.invoker.chat(REQUEST, ctx, route=Route(Bug(), "m", "p", RATES))
    ours, foreign = captured.spans
    assert ours.status.status_code.name == "ERROR" and ours.attributes["error.type"] == "AuthFailed"
    assert ours.attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert ours.events[-1].attributes["exception.message"] == "key is wrong"
    assert "sk-FAKE" not in foreign.to_json()


async def leave(ctx, route, how):
    stream = ctx.invoker.stream(REQUEST, ctx, route=route)
    if how == "break":
        async with stream as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
    elif how == "close elsewhere":
        await stream.__aenter__()
        await anext(stream)
        await asyncio.create_task(stream.aclose())
    else:

        async def read():
            async with stream as events:
                async for _ in events:
                    pass

        task = asyncio.create_task(read())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("how", ["break", "close elsewhere", "cancel"])
async def test_a_span_ends_once_however_the_stream_is_left(how):
    """Break, close by another task and cancel end it without an error, with what was used; nothing stays current."""
    from opentelemetry import trace as api

    from agentkit.testing import Hang

    captured = capture_spans()
    ctx = a_context(captured)
    await leave(ctx, a_route(Hang(after=3)), how)
    gc.collect()
    (span,) = captured.spans
    assert span.status.status_code.name == "UNSET"
    assert span.attributes["agentkit.outcome"] == ("cancelled" if how == "cancel" else "closed")
    assert span.attributes[semconv.USAGE_INPUT] > 0 and span.attributes[semconv.USAGE_ESTIMATED]
    assert not api.get_current_span().get_span_context().is_valid


class Nested:
    """A tool that asks a model."""

    effect, idempotent, requires_approval, timeout, resumable = "read", False, False, None, False

    def __init__(self, result) -> None:
        self.spec, self.result = ToolSpec("pay", "", {"type": "object"}), result

    def bind(self, arguments):
        return arguments

    async def invoke(self, bound, call: Call):
        await call.ctx.invoker.chat(REQUEST, call.ctx, route=a_route("fine"))
        return self.result


async def test_calls_inside_a_tool_are_children_of_its_span_and_usage_is_not_repeated():
    """Parents travel in the context, and only model spans carry usage."""
    captured = capture_spans()
    ctx = a_context(captured)
    request = ToolRequest(Nested(ToolResult("done")), ToolCall("c9", "pay", '{"card": "4111"}'), CallKey("r", "", 1, 0))
    await ctx.invoker.invoke_tool(request, ctx)
    chat, tool = captured.spans
    assert (tool.name, tool.kind.name) == ("execute_tool pay", "INTERNAL")
    assert chat.parent.span_id == tool.context.span_id
    assert tool.attributes["gen_ai.tool.call.id"] == "c9" and tool.attributes[semconv.TOOL_OUTCOME] == "ok"
    assert not [name for name in tool.attributes if name.startswith("gen_ai.usage")]
    assert "4111" not in tool.to_json()


async def test_an_outcome_told_to_the_model_is_an_error_on_the_span():
    """An unknown effect marks the tool's span as failed."""
    captured = capture_spans()
    ctx = a_context(captured)
    request = ToolRequest(Nested(ToolResult("late", "unknown")), ToolCall("c9", "pay"), CallKey("r", "", 1, 0))
    await ctx.invoker.invoke_tool(request, ctx)
    assert captured.spans[-1].status.status_code.name == "ERROR"


@pytest.mark.parametrize("broken", [False, True])
async def test_text_is_captured_only_when_asked_for_and_after_the_masker(broken):
    """With capture_text the conversation is on the span as data, arguments and results as the masker left them."""

    def arguments(tool, values):
        if broken:
            raise RuntimeError("no")
        return {**values, "card": "*"}

    def result(tool, text):
        return text.replace("4111", "*") if not broken else None

    captured, replays = capture_spans(), Replays()
    ctx = a_context(captured, capture_text=True, masker=Masker(arguments, result), replay=replays)
    await ctx.invoker.chat(REQUEST, ctx, route=a_route("forty two"))
    request = ToolRequest(Nested(ToolResult("4111")), ToolCall("c9", "pay", '{"card": "4111"}'), CallKey("r", "", 1, 0))
    await ctx.invoker.invoke_tool(request, ctx)
    chat, tool = captured.spans[0], captured.spans[-1]
    told = json.loads(chat.attributes["gen_ai.input.messages"])
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool"]
    assert told[1]["parts"] == [{"type": "text", "content": "secret question"}]
    assert told[2]["parts"][0]["arguments"] == (MASK_FAILED if broken else {"card": "*"})
    assert told[3]["parts"][0]["response"] == (MASK_FAILED if broken else "receipt *")
    assert json.loads(chat.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "forty two"
    assert tool.attributes["gen_ai.tool.call.result"] == (MASK_FAILED if broken else "*")
    everything = "".join(span.to_json() for span in captured.spans) + repr(replays.records)
    assert "4111" not in everything
    assert replays.records[0].response["message"]["parts"] == [{"type": "text", "content": "forty two"}]


class Never:
    """A sampler that takes nothing."""

    def should_sample(self, operation, correlation_id, attributes):
        assert attributes[semconv.OPERATION] == operation
        return False


async def test_an_unsampled_run_has_metrics_and_nothing_else():
    """Tokens, seconds and faults are measured; there is no span and no replay record."""
    captured, metrics, replays = capture_spans(), Metrics(), Replays()
    ctx = a_context(captured, metrics=metrics, replay=replays, sampler=Never())
    await ctx.invoker.chat(REQUEST, ctx, route=a_route(Reply("ok", usage=Usage(10, 5))))
    with pytest.raises(Overloaded):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(Overloaded("busy", accepted=False)))
    assert captured.spans == () and replays.records == []
    tokens = metrics.of("gen_ai.client.token.usage")
    assert [(value, tags["gen_ai.token.type"]) for value, tags in tokens] == [(10, "input"), (5, "output")]
    durations = metrics.of("gen_ai.client.operation.duration")
    assert [tags.get("error.type") for _, tags in durations] == [None, "Overloaded"]
    assert [value for value, _ in metrics.of(semconv.ERRORS)] == [1]


async def test_telemetry_that_fails_never_reaches_the_run(caplog):
    """A tracer, sampler, metrics or replay store that raises costs its own record and no answer."""

    class Broken:
        enabled = True

        def __getattr__(self, name):
            raise RuntimeError(name)

    for services in (
        {"trace": Broken()},
        {"sampler": Broken()},
        {"metrics": Metrics(RuntimeError())},
        {"replay": Broken()},
    ):
        captured = capture_spans()
        services = Services(**{"trace": OtelTrace(captured.provider), **services})
        ctx = make_context("fine", middleware=[trace(capture_text=True)], services=services)
        assert (await ctx.invoker.chat(REQUEST, ctx)).message.content == "fine"
        assert len(captured.spans) == (0 if isinstance(services.trace, Broken) else 1)


async def test_with_nobody_listening_the_layers_are_not_there():
    """Without tracer, metrics and replay the next stream itself is returned."""
    ctx = make_context("x", services=Services(trace=OtelTrace()))
    stream = object()
    assert trace()(Call(ctx, REQUEST, "1"), lambda call: stream) is stream
    request = ToolRequest(Nested(None), ToolCall("c", "pay"), CallKey("r", "", 1, 0))
    assert trace_tools()(Call(ctx, request, "1"), lambda call: stream) is stream


async def test_streamed_and_collected_calls_leave_the_same_span():
    """Whether events are read or collected, attributes and row are equal."""
    spans, rows = [], []
    for streamed in (True, False):
        captured, clock = capture_spans(), ManualClock()
        ctx = a_context(captured, clock=clock)
        route = a_route(Reply("one two", usage=Usage(3, 2)))
        if streamed:
            async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
                async for _ in events:
                    pass
        else:
            await ctx.invoker.chat(REQUEST, ctx, route=route)
        spans.append(dict(captured.spans[0].attributes))
        record = ctx.account.records[0]
        rows.append((record.usage, record.cost, record.outcome, record.seconds))
    assert spans[0] == spans[1] and rows[0] == rows[1]


async def test_a_fault_after_delivery_is_on_the_span_with_what_it_cost():
    """A stream cut after some words has an error status and an estimated usage."""
    captured = capture_spans()
    ctx = a_context(captured)
    with pytest.raises(StreamBroken):
        await ctx.invoker.chat(REQUEST, ctx, route=a_route(Fault(StreamBroken("cut"), after=4)))
    (span,) = captured.spans
    assert span.status.status_code.name == "ERROR" and span.attributes[semconv.USAGE_OUTPUT] > 0
