"""Spans and metrics over OpenTelemetry, and that nothing of it loads before somebody uses it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agentkit.core.contracts import semconv
from agentkit.core.runtime.telemetry.observation import NOOP_SPAN
from agentkit.observe import OtelMetrics, OtelTrace
from agentkit.testing import capture_spans


def in_a_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_provider_nothing_is_loaded_and_nothing_enabled():
    """Asking whether tracing is on imports no OpenTelemetry, and spans are no-ops."""
    out = in_a_process(
        """
        import sys
        from agentkit.observe import OtelMetrics, OtelTrace
        trace, metrics = OtelTrace(), OtelMetrics()
        span = trace.span("x"); span.set({"a": 1}); span.end()
        metrics.add_counter("n", 1, {})
        print(trace.enabled, metrics.enabled, [n for n in sys.modules if n.startswith(("opentelemetry", "structlog"))])
        """
    )
    assert out == "False False []"


def test_the_process_wide_provider_is_found_when_it_is_set_later():
    """An imported API alone is no provider; once the SDK's is set, the same objects record."""
    out = in_a_process(
        """
        from agentkit.observe import OtelMetrics, OtelTrace
        trace, metrics = OtelTrace(), OtelMetrics()
        import opentelemetry.trace, opentelemetry.metrics
        before = trace.enabled, metrics.enabled
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.metrics import MeterProvider
        opentelemetry.trace.set_tracer_provider(TracerProvider())
        opentelemetry.metrics.set_meter_provider(MeterProvider())
        span = trace.span("x")
        print(before, trace.enabled, metrics.enabled, span.trace_context is not None)
        """
    )
    assert out == "(False, False) True True True"


def test_a_span_ends_once_and_names_its_parent():
    """A second end changes nothing; the traceparent is the span's own."""
    captured = capture_spans()
    trace = OtelTrace(captured.provider)
    parent = trace.span("parent")
    child = trace.span("child", kind="client", parent=parent, attributes={"a": 1})
    child.event("something", {"b": 2})
    child.end()
    child.end(ValueError("late"))
    parent.end(ValueError("sk-FAKE"))
    inner, outer = captured.spans
    assert inner.parent.span_id == outer.context.span_id and inner.status.status_code.name == "UNSET"
    assert (
        parent.trace_context
        == f"00-{outer.context.trace_id:032x}-{outer.context.span_id:016x}-{outer.context.trace_flags:02x}"
    )
    assert outer.attributes["error.type"] == "ValueError" and "sk-FAKE" not in outer.to_json()


def test_a_span_without_a_parent_joins_the_callers():
    """A host's own current span becomes the parent of a run's first span."""
    captured = capture_spans()
    with captured.provider.get_tracer("host").start_as_current_span("request"):
        OtelTrace(captured.provider).span("chat", parent=NOOP_SPAN).end()
    chat, request = captured.spans
    assert chat.parent.span_id == request.context.span_id


@pytest.mark.parametrize(
    ("name", "unit", "bounds"),
    [(semconv.TOKENS, "{token}", semconv.TOKENS_BUCKETS), (semconv.DURATION, "s", semconv.DURATION_BUCKETS)],
)
def test_histograms_have_the_conventions_units_and_buckets(name, unit, bounds):
    """Tokens and seconds are recorded with their unit and boundaries."""
    reader = InMemoryMetricReader()
    metrics = OtelMetrics(MeterProvider([reader]))
    metrics.record_histogram(name, 5, {"a": "b"})
    metrics.add_counter(semconv.ERRORS, 2, {})
    (resource,) = reader.get_metrics_data().resource_metrics
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert found[name].unit == unit
    assert found[name].data.data_points[0].explicit_bounds == tuple(bounds)
    assert found[semconv.ERRORS].data.data_points[0].value == 2
