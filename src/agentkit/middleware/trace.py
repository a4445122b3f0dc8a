"""The outermost layers: one span, its metrics and a replay record for each model call, one span for each tool call."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from agentkit.core.contracts import (
    ZERO,
    AttemptEnded,
    Call,
    CallNext,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    CostRecord,
    ToolEnded,
    ToolRequest,
    ToolResult,
    ToolUpdate,
    Usage,
    add_money,
    semconv,
)
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.layers import run_context
from agentkit.core.runtime.telemetry.observation import NoopMetrics, NoopReplayStore, ReplayRecord, SpanPort
from agentkit.core.runtime.telemetry.rendering import (
    masked_arguments,
    masked_messages,
    masked_request,
    masked_response,
    masked_result,
)
from agentkit.core.runtime.telemetry.spans import Attributes, contained, measure_end, measured, open_span
from agentkit.errors import ToolError

__all__ = ["Trace", "TraceTools", "trace", "trace_tools"]

_LOG = logging.getLogger("agentkit")
_CONTENT_CAP = 32_768  # characters of content on one span attribute


class Trace:
    """Opens a span around a whole model call, its retries and fallbacks included, and ends it exactly once.

    Usage and cost stand on this span and no other, so a sum over spans is the ledger's sum. Metrics count every call,
    also those the sampler leaves without a span. Text is on the span only with `capture_text`, after the masker.
    Whatever telemetry raises is contained and logged once. With nobody listening the layer is not there.
    """

    __slots__ = ("capture_text",)

    def __init__(self, capture_text: bool) -> None:
        self.capture_text = capture_text

    def __repr__(self) -> str:
        return f"trace(capture_text={self.capture_text})"

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when neither spans, metrics nor replays go anywhere."""
        services = run_context(call).services
        if (
            services.trace.enabled
            or (type(services.metrics) is not NoopMetrics and measured(services))
            or not isinstance(services.replay, NoopReplayStore)
        ):
            return self._traced(call, call_next)
        return call_next(call)

    async def _traced(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent]
    ) -> AsyncGenerator[ChatEvent, None]:
        ctx = run_context(call)
        clock, records = ctx.services.clock, ctx.account.records
        mark, began, first = len(records), clock.now(), -1.0
        sampled, span = open_span(ctx, semconv.CHAT, _model(call), "client", _request_attributes(call))
        if span is not None:
            call = replace(call, ctx=ctx.under(span))
            if self.capture_text:
                contained("content", self._show_request, span, ctx, call.request)
        response: ChatResponse | None = None
        failure: BaseException | None = None
        try:
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    if first < 0 and event.visible:
                        first = clock.now() - began
                    if isinstance(event, ChatEnd):
                        response = event.response
                    elif span is not None and isinstance(event, AttemptEnded) and event.record.outcome != "ok":
                        contained("event", span.event, semconv.RETRY_ATTEMPT, _attempt_attributes(event.record))
                    yield event
        except BaseException as error:
            failure = error if response is None else None
            raise
        finally:
            mine = [record for record in records[mark:] if record.call_id == call.id]
            usage = _total_usage(mine)
            fault = failure if isinstance(failure, Exception) else None
            if span is not None:
                contained("attributes", span.set, _outcome_attributes(response, failure, mine, usage, first))
                if self.capture_text and response is not None:
                    contained("content", self._show_response, span, ctx, response)
                contained("span", span.end, fault)
            if measured(ctx.services):
                _measure_chat(call, response, fault, usage, clock.now() - began, first)
            if sampled and response is not None and not isinstance(ctx.services.replay, NoopReplayStore):
                await _replay(ctx, call, response)

    @staticmethod
    def _show_request(span: SpanPort, ctx: RunContext, request: ChatRequest) -> None:
        span.set({semconv.INPUT_MESSAGES: _json(masked_messages(ctx.services.masker, request.messages))})

    @staticmethod
    def _show_response(span: SpanPort, ctx: RunContext, response: ChatResponse) -> None:
        span.set({semconv.OUTPUT_MESSAGES: _json(masked_messages(ctx.services.masker, (response.message,)))})


class TraceTools:
    """Opens a span around a tool call, refusals and retries included, and ends it exactly once.

    The tool and sub-agents below it run under this span. Arguments and results are on it only with `capture_text`,
    after the masker. With nobody listening the layer is not there.
    """

    __slots__ = ("capture_text",)

    def __init__(self, capture_text: bool) -> None:
        self.capture_text = capture_text

    def __repr__(self) -> str:
        return f"trace_tools(capture_text={self.capture_text})"

    def __call__(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate], /
    ) -> AsyncGenerator[ToolUpdate, None]:
        """Return the stream, directly when neither spans nor metrics go anywhere."""
        services = run_context(call).services
        if services.trace.enabled or (type(services.metrics) is not NoopMetrics and measured(services)):
            return self._traced(call, call_next)
        return call_next(call)

    async def _traced(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate]
    ) -> AsyncGenerator[ToolUpdate, None]:
        ctx = run_context(call)
        clock = ctx.services.clock
        began, name = clock.now(), call.request.tool.spec.name
        _, span = open_span(ctx, semconv.EXECUTE_TOOL, name, "internal", _tool_attributes(call))
        if span is not None:
            call = replace(call, ctx=ctx.under(span))
            if self.capture_text:
                contained("content", self._show_arguments, span, ctx, call.request)
        result: ToolResult | None = None
        failure: BaseException | None = None
        try:
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    if isinstance(event, ToolEnded):
                        result = event.result
                    yield event
        except BaseException as error:
            failure = error if result is None else None
            raise
        finally:
            fault = failure if isinstance(failure, Exception) else _told(name, result)
            if span is not None:
                contained("attributes", self._show_outcome, span, ctx, name, result, failure)
                contained("span", span.end, fault)
            if measured(ctx.services):
                _measure_tool(ctx, name, fault, clock.now() - began)

    @staticmethod
    def _show_arguments(span: SpanPort, ctx: RunContext, request: ToolRequest) -> None:
        span.set({semconv.TOOL_ARGUMENTS: _json(masked_arguments(ctx.services.masker, request.call))})

    def _show_outcome(
        self, span: SpanPort, ctx: RunContext, name: str, result: ToolResult | None, failure: BaseException | None
    ) -> None:
        if result is None:
            span.set({semconv.TOOL_OUTCOME: "error" if isinstance(failure, Exception) else "unknown"})
            return
        span.set({semconv.TOOL_OUTCOME: result.outcome})
        if self.capture_text:
            span.set({semconv.TOOL_RESULT: _cut(masked_result(ctx.services.masker, name, result.content))})


def trace(*, capture_text: bool = False) -> Trace:
    """Return the chat layer; it belongs outermost, so that refusals, cache hits and retries are inside its span."""
    return Trace(capture_text)


def trace_tools(*, capture_text: bool = False) -> TraceTools:
    """Return the tool layer; it belongs outermost, so that denials and retries are inside its span."""
    return TraceTools(capture_text)


def _model(call: Call[ChatRequest]) -> str:
    return "" if call.route is None else call.route.model


def _request_attributes(call: Call[ChatRequest]) -> Attributes:
    settings = call.request.settings
    attributes: Attributes = {semconv.PURPOSE: call.purpose, semconv.REQUEST_STREAM: call.request.stream}
    if call.route is not None:
        attributes[semconv.PROVIDER] = call.route.provider
        attributes[semconv.REQUEST_MODEL] = call.route.model
    known = (
        (semconv.REQUEST_MAX_TOKENS, settings.max_tokens),
        (semconv.REQUEST_TEMPERATURE, settings.temperature),
        (semconv.REQUEST_TOP_P, settings.top_p),
        (semconv.REQUEST_SEED, settings.seed),
        (semconv.REQUEST_EFFORT, settings.reasoning_effort),
        (semconv.REQUEST_STOP, settings.stop or None),
        (semconv.OUTPUT_TYPE, None if call.request.output is None else "json"),
    )
    attributes.update((name, value) for name, value in known if value is not None)
    return attributes


def _tool_attributes(call: Call[ToolRequest]) -> Attributes:
    request = call.request
    return {
        semconv.TOOL_NAME: request.tool.spec.name,
        semconv.TOOL_CALL_ID: request.call.id,
        semconv.TOOL_TYPE: "function",
    }


def _attempt_attributes(record: CostRecord) -> Attributes:
    return {
        "attempt": record.attempt,
        "outcome": record.outcome,
        semconv.REQUEST_MODEL: record.model,
        "seconds": record.seconds,
    }


def _outcome_attributes(
    response: ChatResponse | None,
    failure: BaseException | None,
    records: list[CostRecord],
    usage: Usage,
    first: float,
) -> Attributes:
    """Return what is known at the end; a cut stream has the finish reason "error", as the conventions say."""
    attributes: Attributes = {semconv.FINISH_REASONS: ("error" if response is None else response.stop_reason,)}
    if response is not None:
        attributes[semconv.RESPONSE_MODEL] = response.model
        attributes[semconv.RESPONSE_ID] = response.response_id
    if isinstance(failure, Exception):
        attributes[semconv.ERROR_TYPE] = type(failure).__name__
    elif response is None:
        attributes[semconv.OUTCOME] = records[-1].outcome if records else "cancelled"
    if first >= 0:
        attributes[semconv.TIME_TO_FIRST_CHUNK] = first
    if records:
        known = (
            (semconv.USAGE_INPUT, usage.input_tokens),
            (semconv.USAGE_OUTPUT, usage.output_tokens),
            (semconv.USAGE_CACHE_READ, usage.cache_read_tokens or None),
            (semconv.USAGE_CACHE_WRITE, usage.cache_write_tokens or None),
            (semconv.USAGE_REASONING, usage.reasoning_tokens or None),
            (semconv.USAGE_ESTIMATED, usage.estimated or None),
            (semconv.COST, _total_cost(records)),
        )
        attributes.update((name, value) for name, value in known if value is not None)
    return attributes


def _total_usage(records: list[CostRecord]) -> Usage:
    total = Usage()
    for record in records:
        total += record.usage
    return total


def _total_cost(records: list[CostRecord]) -> float | None:
    total = ZERO
    for record in records:
        if record.cost is None:
            return None
        total = add_money(total, record.cost)
    return float(total)


def _measure_chat(
    call: Call[ChatRequest],
    response: ChatResponse | None,
    fault: Exception | None,
    usage: Usage,
    seconds: float,
    first: float,
) -> None:
    ctx = run_context(call)
    record = ctx.services.metrics.record_histogram
    tags: Attributes = {semconv.OPERATION: semconv.CHAT, semconv.TENANT: ctx.scope.tenant}
    if call.route is not None:
        tags |= {semconv.PROVIDER: call.route.provider, semconv.REQUEST_MODEL: call.route.model}
    if response is not None and response.model:
        tags[semconv.RESPONSE_MODEL] = response.model
    for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        if tokens:
            contained("metrics", record, semconv.TOKENS, tokens, {**tags, semconv.TOKENS_KIND: kind})
    if first >= 0:
        contained("metrics", record, semconv.FIRST_CHUNK, first, tags)
    measure_end(ctx, semconv.DURATION, seconds, tags, fault)


def _measure_tool(ctx: RunContext, name: str, fault: Exception | None, seconds: float) -> None:
    tags: Attributes = {
        semconv.OPERATION: semconv.EXECUTE_TOOL,
        semconv.TENANT: ctx.scope.tenant,
        semconv.TOOL_NAME: name,
    }
    measure_end(ctx, semconv.TOOL_DURATION, seconds, tags, fault)


def _told(name: str, result: ToolResult | None) -> Exception | None:
    """Return an error for a result that tells the model of one, so that the span shows it."""
    if result is None or result.outcome not in ("error", "unknown"):
        return None
    return ToolError(f"{name} ended with outcome {result.outcome!r}.", tool=name)


async def _replay(ctx: RunContext, call: Call[ChatRequest], response: ChatResponse) -> None:
    masker = ctx.services.masker
    try:
        await ctx.services.replay.put(
            ReplayRecord(
                call.id,
                ctx.correlation_id,
                ctx.path,
                semconv.CHAT,
                masked_request(masker, call.request),
                masked_response(masker, response),
            )
        )
    except Exception:
        _LOG.warning("The replay store lost call %s of run %s", call.id, ctx.correlation_id, exc_info=True)


def _json(value: object) -> str:
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    if len(text) <= _CONTENT_CAP:
        return text
    return f"{text[:_CONTENT_CAP]}... [{len(text) - _CONTENT_CAP} more characters]"
