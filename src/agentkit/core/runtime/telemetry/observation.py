"""What a run tells its observers, and the ports telemetry goes through. Each default does nothing at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from agentkit.core.contracts import JsonValue

__all__ = [
    "AlwaysOnSampler",
    "AttributeValue",
    "MetricsPort",
    "NoopMetrics",
    "NoopObserver",
    "NoopReplayStore",
    "NoopSpan",
    "NoopTrace",
    "Observation",
    "ObservationKind",
    "ObserverPort",
    "ReplayRecord",
    "ReplayStore",
    "SamplerPort",
    "SpanPort",
    "TracePort",
]

ObservationKind: TypeAlias = Literal[
    "progress",
    "summary",
    "partial_result",
    "result",
    "error",
    "interrupt",
    "signal.emitted",
    "gate.check",
    "memory.written",
]
AttributeValue: TypeAlias = str | bool | int | float | tuple[str, ...]


class Observation(Struct, frozen=True):
    """Something worth telling: `render` for people, `payload` for programs."""

    run_id: str
    kind: str
    render: str
    at: datetime
    payload: JsonValue = None
    agent: str = ""
    path: str = ""
    parent_id: str | None = None
    trace_context: str | None = None


class ObserverPort(Protocol):
    """Receives observations; whatever it raises is contained."""

    async def observe(self, observation: Observation, /) -> None:
        """Take one observation."""
        ...


class SpanPort(Protocol):
    """One open span; started and ended by hand, never attached to the current context."""

    def set(self, attributes: Mapping[str, AttributeValue], /) -> None:
        """Add attributes."""
        ...

    def event(self, name: str, attributes: Mapping[str, AttributeValue] | None = None, /) -> None:
        """Add an event."""
        ...

    def end(self, error: BaseException | None = None, /) -> None:
        """End the span once; with an error its status is error."""
        ...

    @property
    def trace_context(self) -> str | None:
        """Return the W3C traceparent, None when there is no real span."""
        ...


class TracePort(Protocol):
    """Starts spans. `enabled` False costs one attribute read a call."""

    @property
    def enabled(self) -> bool:
        """Return whether anybody would see a span."""
        ...

    def span(
        self,
        name: str,
        *,
        kind: Literal["client", "internal"] = "internal",
        parent: SpanPort | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> SpanPort:
        """Start a span; without a parent it joins the caller's current one."""
        ...


class MetricsPort(Protocol):
    """Counts and histograms; whatever it raises is contained."""

    def add_counter(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Add to a counter."""
        ...

    def record_histogram(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Record one value."""
        ...


class SamplerPort(Protocol):
    """Decides which runs are traced."""

    def should_sample(self, operation: str, correlation_id: str, attributes: Mapping[str, AttributeValue], /) -> bool:
        """Return whether this operation of this run gets a span."""
        ...


class ReplayRecord(Struct, frozen=True):
    """One model call as data, after masking."""

    call_id: str
    run_id: str
    path: str
    operation: str
    request: JsonValue
    response: JsonValue


class ReplayStore(Protocol):
    """Keeps replay records, best effort."""

    async def put(self, record: ReplayRecord, /) -> None:
        """Keep one record."""
        ...


class NoopSpan:
    """A span that nobody sees."""

    trace_context: str | None = None

    def set(self, attributes: Mapping[str, AttributeValue], /) -> None:
        """Do nothing."""

    def event(self, name: str, attributes: Mapping[str, AttributeValue] | None = None, /) -> None:
        """Do nothing."""

    def end(self, error: BaseException | None = None, /) -> None:
        """Do nothing."""

    def __enter__(self) -> NoopSpan:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


NOOP_SPAN = NoopSpan()


class NoopTrace:
    """Traces nothing."""

    enabled = False

    def span(
        self,
        name: str,
        *,
        kind: Literal["client", "internal"] = "internal",
        parent: SpanPort | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> NoopSpan:
        """Return the span that nobody sees."""
        return NOOP_SPAN


class NoopObserver:
    """Observes nothing."""

    async def observe(self, observation: Observation, /) -> None:
        """Do nothing."""


class NoopMetrics:
    """Counts nothing."""

    def add_counter(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Do nothing."""

    def record_histogram(self, name: str, value: int | float, attributes: Mapping[str, AttributeValue], /) -> None:
        """Do nothing."""


class NoopReplayStore:
    """Keeps nothing."""

    async def put(self, record: ReplayRecord, /) -> None:
        """Do nothing."""


class AlwaysOnSampler:
    """Traces every run."""

    def should_sample(self, operation: str, correlation_id: str, attributes: Mapping[str, AttributeValue], /) -> bool:
        """Return True."""
        return True
