"""Where telemetry goes: OpenTelemetry, structlog events, observers. Nothing heavy loads before it is used."""

from agentkit.observe.log import Level, log_event
from agentkit.observe.observers import CollectingObserver, QueueObserver
from agentkit.observe.otel import OtelMetrics, OtelTrace

__all__ = ["CollectingObserver", "Level", "OtelMetrics", "OtelTrace", "QueueObserver", "log_event"]
