"""Spans in memory, through the real OpenTelemetry SDK (extra `otel`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

__all__ = ["CapturedSpans", "capture_spans"]


class CapturedSpans:
    """A tracer provider of its own that keeps finished spans; hand `provider` to the tracer under test."""

    def __init__(self) -> None:
        try:
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        except ImportError as error:
            raise ConfigurationError("capture_spans needs the SDK: pip install 'agentkit-core[otel]'.") from error
        self._exporter = InMemorySpanExporter()
        self.provider: TracerProvider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return the finished spans, in order of their end."""
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        """Return the finished spans' names."""
        return [span.name for span in self.spans]

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()

    def close(self) -> None:
        """Shut the provider down."""
        self.provider.shutdown()

    def __enter__(self) -> CapturedSpans:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def capture_spans() -> CapturedSpans:
    """Return a new capture; nothing global is configured. Use it as a context manager, or close it."""
    return CapturedSpans()
