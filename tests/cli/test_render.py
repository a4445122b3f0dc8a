"""What the terminal shows: progress while waiting, and what an answer cost."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from decimal import Decimal

from agentkit.cli.render import cost_table, dollars
from agentkit.core.contracts import CostRecord, Usage
from agentkit.testing import HttpAnswer, LoopbackServer


def record(cost: str | None, *, accepted: bool = True, usage: Usage = Usage(10, 5)) -> CostRecord:
    """Return the row of one attempt."""
    return CostRecord(
        run_id="run",
        path="",
        call_id="c",
        attempt=1,
        purpose="main",
        provider="p",
        model="m",
        outcome="ok",
        usage=usage,
        cost=None if cost is None else Decimal(cost),
        seconds=0.5,
        accepted=accepted,
    )


def test_a_cost_that_is_not_whole_says_so() -> None:
    """An exact cost is exact, a partial one a lower bound, and an unknown one is not called 0."""
    assert dollars(Decimal("0.000001000000"), Decimal("0.000001")) == "$0.000001"
    assert dollars(Decimal(0), Decimal(0)) == "$0"
    assert dollars(None, Decimal("0.5")) == "at least $0.5 (a part has no price)"
    assert dollars(None, Decimal(0)) == "no price known"


def test_a_table_adds_up_and_marks_what_is_unknown() -> None:
    """Rows count accepted calls and pay for all attempts; an unpriced or uncounted part shows in its row and below."""
    rows = [
        ("lead", [record("0.1"), record("0.2", accepted=False)]),
        ("child", [record(None, usage=Usage(None, 5))]),
    ]
    lines = [line.split() for line in cost_table(rows).splitlines()]
    assert lines[2] == ["lead", "1", "20", "10", "$0.3", "1.00"]
    assert lines[3] == ["child", "1", "?", "5", ">=", "$0", "0.50"]
    assert lines[-1] == ["total", "2", "?", "15", ">=", "$0.3", "1.50"]


async def test_a_terminal_sees_that_something_goes_on(command) -> None:
    """While a server is silent a terminal shows a turning sign with seconds; an interrupt leaves a clean line."""
    silent = HttpAnswer(headers={"content-type": "text/event-stream"}, then="hang")
    screen, terminal = pty.openpty()
    async with LoopbackServer([silent]) as server:
        arguments = ["ask", "hi", "--model", "m", "--base-url", server.url]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentkit.cli", *arguments, env=command.environment(), stdout=-1, stderr=terminal
        )
        os.close(terminal)
        await server.until_busy(1)
        shown = b""
        while b"waiting for the model (" not in shown:
            shown += await asyncio.to_thread(os.read, screen, 4096)
        child.send_signal(signal.SIGINT)
        out, _ = await child.communicate()
        try:
            while more := await asyncio.to_thread(os.read, screen, 4096):
                shown += more
        except OSError:  # how Linux ends a terminal that nobody holds any more
            os.close(screen)
    assert (child.returncode, out) == (130, b"")
    assert shown.endswith(b"\r\x1b[Kagentkit: interrupted\r\n")
