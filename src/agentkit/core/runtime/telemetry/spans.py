"""Telemetry that never reaches into a run: contained calls, spans of a run, and what is measured at an end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from agentkit.core.contracts import semconv
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.services import Services
from agentkit.core.runtime.telemetry.observation import AttributeValue, NoopMetrics, SpanPort

__all__ = ["Attributes", "contained", "measure_end", "measured", "open_span"]

Attributes = dict[str, AttributeValue]

_LOG = logging.getLogger("agentkit")
_complained: set[str] = set()


def contained(what: str, function: Callable[..., object], *args: object) -> None:
    """Call a telemetry function; what it raises is logged once a process for each `what`, and goes no further."""
    try:
        function(*args)
    except Exception:
        if what not in _complained:
            _complained.add(what)
            _LOG.warning("Telemetry failed (%s) and was skipped; said once a process.", what, exc_info=True)


def open_span(
    ctx: RunContext, operation: str, subject: str, kind: Literal["client", "internal"], attributes: Attributes
) -> tuple[bool, SpanPort | None]:
    """Return whether the run is sampled, and its span; a sampler that raises keeps the span."""
    services = ctx.services
    attributes |= _run_attributes(ctx, operation)
    sampled: list[bool] = []
    contained(
        "sampler",
        lambda: sampled.append(services.sampler.should_sample(operation, ctx.correlation_id, attributes)),
    )
    if sampled and not sampled[0]:
        return False, None
    spans: list[SpanPort] = []
    if services.trace.enabled:
        name = f"{operation} {subject}" if subject else operation
        contained(
            "span",
            lambda: spans.append(services.trace.span(name, kind=kind, parent=ctx.span, attributes=attributes)),
        )
    return True, spans[0] if spans else None


def _run_attributes(ctx: RunContext, operation: str) -> Attributes:
    attributes: Attributes = {
        semconv.OPERATION: operation,
        semconv.RUN_ID: ctx.correlation_id,
        semconv.TENANT: ctx.scope.tenant,
    }
    if ctx.path:
        attributes[semconv.PATH] = ctx.path
    if ctx.scope.user is not None:
        attributes[semconv.USER] = ctx.scope.user
    if ctx.scope.session is not None:
        attributes[semconv.CONVERSATION_ID] = ctx.scope.session
    return attributes


def measured(services: Services) -> bool:
    """Return whether metrics go anywhere."""
    metrics = services.metrics
    return not isinstance(metrics, NoopMetrics) and bool(getattr(metrics, "enabled", True))


def measure_end(ctx: RunContext, name: str, seconds: float, tags: Attributes, fault: Exception | None) -> None:
    """Record a duration in seconds, and count the fault under its class name."""
    if fault is not None:
        tags = {**tags, semconv.ERROR_TYPE: type(fault).__name__}
        contained("metrics", ctx.services.metrics.add_counter, semconv.ERRORS, 1, tags)
    contained("metrics", ctx.services.metrics.record_histogram, name, seconds, tags)
