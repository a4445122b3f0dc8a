"""What a run writes to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from agentkit import Agent, Binding, CallRuntime, RetryPolicy, Scope
from agentkit.errors import AuthFailed, Overloaded
from agentkit.testing import ScriptedModel


@pytest.fixture
def entries() -> Iterator[list[dict[str, object]]]:
    """Let the host configure structlog and hear everything from INFO on."""
    capture = structlog.testing.LogCapture()
    logger = logging.getLogger("agentkit")
    before = logger.level
    structlog.configure(processors=[capture])
    logger.setLevel(logging.INFO)
    yield capture.entries
    logger.setLevel(before)
    structlog.reset_defaults()


async def test_run_logs_start_failed_attempt_and_end(entries: list[dict[str, object]]) -> None:
    """Each event names run, tenant and agent; a failed attempt that was retried is a warning."""
    model = ScriptedModel([Overloaded("busy"), "Fine."])
    async with CallRuntime(retry=RetryPolicy(base_delay=0.0)) as calls:
        await Agent("clerk", Binding(model)).run("Hi", calls.context("r1", Scope(tenant="acme")))
    assert [(entry["event"], entry["log_level"]) for entry in entries] == [
        ("run.started", "info"),
        ("attempt.failed", "warning"),
        ("run.ended", "info"),
    ]
    assert all((entry["run"], entry["tenant"], entry["agent"]) == ("r1", "acme", "clerk") for entry in entries)
    assert entries[-1]["stop_reason"] == "complete" and entries[-1]["calls"] == 1


async def test_failed_run_logs_the_kind_of_error(entries: list[dict[str, object]]) -> None:
    """A failure is a warning with the error's class and without its text."""
    model = ScriptedModel([AuthFailed("bad key sk-secret")])
    async with CallRuntime() as calls:
        with pytest.raises(AuthFailed):
            await Agent("clerk", Binding(model)).run("Hi", calls.context("r1", Scope(tenant="acme")))
    assert entries[-1]["event"] == "run.failed" and entries[-1]["error"] == "AuthFailed"
    assert "sk-secret" not in repr(entries)
