"""Deterministic doubles and captures for tests; nothing in the package imports this room."""

from agentkit.providers.scripted import Fault, Hang, Reply, Script, ScriptedModel
from agentkit.testing.clock import ManualClock
from agentkit.testing.context import CapturedEvents, capture_events, make_context
from agentkit.testing.spans import CapturedSpans, capture_spans
from agentkit.testing.subprocess_adapter import ECHO, SubprocessAdapter

__all__ = [
    "ECHO",
    "CapturedEvents",
    "CapturedSpans",
    "Fault",
    "Hang",
    "ManualClock",
    "Reply",
    "Script",
    "ScriptedModel",
    "SubprocessAdapter",
    "capture_events",
    "capture_spans",
    "make_context",
]
