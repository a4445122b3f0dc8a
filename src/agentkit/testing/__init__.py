"""Deterministic doubles and captures for tests; nothing in the package imports this room."""

from agentkit.providers.scripted import Fault, Hang, Reply, Script, ScriptedModel
from agentkit.testing.bytes_server import ByteServer
from agentkit.testing.clock import ManualClock
from agentkit.testing.context import CapturedEvents, capture_events, make_context
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.memory_server import MemoryServer, MemoryTransport
from agentkit.testing.provider_suite import PROVIDER_CHECKS, check_provider
from agentkit.testing.spans import CapturedSpans, capture_spans
from agentkit.testing.subprocess_adapter import ECHO, SubprocessAdapter
from agentkit.testing.transport_suite import TRANSPORT_CHECKS, check_transport
from agentkit.testing.turns import Turn

__all__ = [
    "ECHO",
    "PROVIDER_CHECKS",
    "TRANSPORT_CHECKS",
    "ByteServer",
    "HttpAnswer",
    "CapturedEvents",
    "CapturedSpans",
    "Fault",
    "Hang",
    "LoopbackServer",
    "ManualClock",
    "MemoryServer",
    "MemoryTransport",
    "Reply",
    "Script",
    "ScriptedModel",
    "SubprocessAdapter",
    "Turn",
    "capture_events",
    "capture_spans",
    "check_provider",
    "check_transport",
    "make_context",
]
