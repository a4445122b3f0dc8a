"""Structured log events: gated by one check, with run, tenant and agent, configuring nothing."""

from __future__ import annotations

import logging
import subprocess
import sys

import structlog

from agentkit.core.contracts import Scope
from agentkit.observe import log_event
from agentkit.testing import make_context


def test_below_the_level_nothing_is_loaded():
    """An event that nobody wants does not even import structlog."""
    code = "import sys; from agentkit.observe import log_event; log_event('run.started'); print('structlog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_an_event_carries_run_tenant_and_agent_through_the_standard_logger(caplog):
    """A host that configured no structlog gets one readable record on the logger agentkit."""
    ctx = make_context("x", scope=Scope("acme"))
    with caplog.at_level(logging.INFO, logger="agentkit"):
        log_event("run.started", ctx, agent="lead", turns=3)
    (record,) = caplog.records
    assert record.name == "agentkit" and record.levelno == logging.INFO
    assert record.getMessage() == "event='run.started' run='test-run' tenant='acme' turns=3 agent='lead'"
    assert not structlog.is_configured()


def test_a_configured_structlog_gets_the_event_itself(caplog):
    """A host's own processors see the fields."""
    with structlog.testing.capture_logs() as plain:
        pass
    structlog.configure(processors=[structlog.testing.LogCapture()])
    try:
        capture = structlog.get_config()["processors"][0]
        with caplog.at_level(logging.WARNING, logger="agentkit"):
            log_event("run.failed", make_context("x"), level="error", error="Overloaded")
            log_event("run.note", level="info")
        assert [entry["event"] for entry in capture.entries] == ["run.failed"] and plain == []
        assert capture.entries[0]["tenant"] == "test" and capture.entries[0]["log_level"] == "error"
    finally:
        structlog.reset_defaults()
