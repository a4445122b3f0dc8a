"""Spans and metrics through opentelemetry-api, loaded only when somebody set a provider."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from agentkit.core.contracts import semconv
from agentkit.core.runtime.telemetry.observation import NOOP_SPAN, AttributeValue, SpanPort
from agentkit.errors import AgentkitError

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["OtelMetrics", "OtelSpan", "OtelTrace"]

_NAME = "agentkit"
_UNITS = {semconv.TOKENS: "{token}"}
_BUCKETS = {semconv.TOKENS: semconv.TOKENS_BUCKETS}
_TRACE_FLAGS = 0xFF


class OtelTrace:
    """A tracer over OpenTelemetry: the given provider, or the one the process has set.

    `enabled` is False, and nothing of OpenTelemetry is loaded by it, while the process has set none: only code that
    imported OpenTelemetry can, or the variable OTEL_PYTHON_TRACER_PROVIDER. Once there is one it stays.
    """

    __slots__ = ("_named", "_provider", "_tracer")

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._provider = tracer_provider
        self._named = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
        self._tracer: Tracer | None = None if tracer_provider is None else tracer_provider.get_tracer(_NAME)

    @property
    def enabled(self) -> bool:
        """Return whether there is a provider that may record."""
        if self._tracer is not None:
            return True
        return (self._named or "opentelemetry.trace" in sys.modules) and self._find() is not None

    def span(
        self,
        name: str,
        *,
        kind: Literal["client", "internal"] = "internal",
        parent: SpanPort | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> SpanPort:
        """Start a span under `parent`, or under the caller's current span; it is never made current."""
        tracer = self._tracer or self._find()
        if tracer is None:
            return NOOP_SPAN
        from opentelemetry import trace

        context = trace.set_span_in_context(parent.span) if isinstance(parent, OtelSpan) else None
        span_kind = trace.SpanKind.CLIENT if kind == "client" else trace.SpanKind.INTERNAL
        return OtelSpan(tracer.start_span(name, context=context, kind=span_kind, attributes=attributes))

    def _find(self) -> Tracer | None:
        if not self._named and "opentelemetry.trace" not in sys.modules:
            return None
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            self._tracer = provider.get_tracer(_NAME)
        return self._tracer


class OtelSpan:
    """One open OpenTelemetry span; ends once, later calls do nothing."""

    __slots__ = ("_ended", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self._ended = False

    def set(self, attributes: Mapping[str, AttributeValue], /) -> None:
        """Add attributes."""
        self.span.set_attributes(attributes)

    def event(self, name: str, attributes: Mapping[str, AttributeValue] | None = None, /) -> None:
        """Add an event."""
        self.span.add_event(name, attributes)

    def end(self, error: BaseException | None = None, /) -> None:
        """End the span; an error makes its status error.

        The text of our own errors is recorded, of a foreign exception only the class: its text may hold anything.
        """
        if self._ended:
            return
        self._ended = True
        try:
            if error is not None:
                self._fail(error)
        finally:
            self.span.end()

    def _fail(self, error: BaseException) -> None:
        from opentelemetry.trace import Status, StatusCode

        kind = type(error).__name__
        details: dict[str, AttributeValue] = {"exception.type": kind}
        if isinstance(error, AgentkitError):
            details["exception.message"] = error.message
        self.span.add_event("exception", details)
        self.span.set_attribute(semconv.ERROR_TYPE, kind)
        self.span.set_status(Status(StatusCode.ERROR, kind))

    @property
    def trace_context(self) -> str | None:
        """Return the W3C traceparent, None for a span that is not real."""
        context = self.span.get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & _TRACE_FLAGS:02x}"


class OtelMetrics:
    """Counters and histograms over OpenTelemetry: the given provider, or the one the process has set.

    Instruments carry the units and buckets of the GenAI conventions. `enabled` is as for OtelTrace.
    """

    __slots__ = ("_counters", "_histograms", "_meter")

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        self._meter: Meter | None = None if meter_provider is None else meter_provider.get_meter(_NAME)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    @property
    def enabled(self) -> bool:
        """Return whether there is a provider that may record."""
        return self._meter is not None or self._find() is not None

    def add_counter(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Add to the counter of this name."""
        meter = self._meter or self._find()
        if meter is None:
            return
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = meter.create_counter(name)
        counter.add(value, attributes)

    def record_histogram(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Record a value in the histogram of this name."""
        meter = self._meter or self._find()
        if meter is None:
            return
        histogram = self._histograms.get(name)
        if histogram is None:
            histogram = self._histograms[name] = meter.create_histogram(
                name,
                unit=_UNITS.get(name, "s"),
                explicit_bucket_boundaries_advisory=_BUCKETS.get(name, semconv.DURATION_BUCKETS),
            )
        histogram.record(value, attributes)

    def _find(self) -> Meter | None:
        if "opentelemetry.metrics" not in sys.modules and "OTEL_PYTHON_METER_PROVIDER" not in os.environ:
            return None
        from opentelemetry import metrics

        provider = metrics.get_meter_provider()
        if not isinstance(provider, metrics.NoOpMeterProvider) and type(provider).__name__ != "_ProxyMeterProvider":
            self._meter = provider.get_meter(_NAME)
        return self._meter
