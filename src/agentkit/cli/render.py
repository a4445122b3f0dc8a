"""What the terminal shows."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from types import TracebackType
from typing import TextIO

import msgspec

from agentkit.cli.table import text_table
from agentkit.core.contracts import ZERO, AgentResult, CostRecord, Usage, add_money, render_money

__all__ = ["Spinner", "as_json", "cost_table", "dollars", "status_line"]

_TICK_SECONDS = 0.1
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Spinner:
    """Shows on a terminal that something is going on, and for how long; silent elsewhere."""

    def __init__(self, stream: TextIO, text: str = "waiting for the model") -> None:
        self._stream = stream
        self._text = text
        self._live = stream.isatty()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Show this text; where nothing can turn, print it as a line."""
        self._text = text
        if not self._live:
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Stop, and leave an empty line."""
        self._stop.set()
        with self._lock:
            if self._live:
                self._live = False
                self._stream.write("\r\x1b[K")
                self._stream.flush()

    def __enter__(self) -> Spinner:
        if self._live:
            self._thread = threading.Thread(target=self._turn, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        if self._thread is not None:
            self._thread.join()

    def _turn(self) -> None:
        started = time.monotonic()
        step = 0
        while not self._stop.wait(_TICK_SECONDS):
            with self._lock:
                if self._live:
                    seconds = time.monotonic() - started
                    self._stream.write(f"\r\x1b[K{_FRAMES[step % len(_FRAMES)]} {self._text} ({seconds:.0f} s)")
                    self._stream.flush()
            step += 1


def dollars(cost: Decimal | None, known: Decimal) -> str:
    """Return a cost for people; an incomplete one says what is known of it."""
    if cost is None:
        return f"at least ${render_money(known)} (a part has no price)" if known else "no price known"
    return f"${render_money(cost)}"


def status_line(result: AgentResult[object], seconds: float) -> str:
    """Return one line on what an answer took."""
    usage = result.usage
    parts = [
        result.model or "model",
        f"{_count(usage.input_tokens)} in + {_count(usage.output_tokens)} out"
        + (" (estimated)" if usage.estimated else ""),
        dollars(result.cost, result.known_cost),
        f"{seconds:.1f} s",
    ]
    if result.calls != 1:
        parts.append(f"{result.calls} calls")
    if result.stop_reason != "complete" or result.model_stop_reason not in ("stop", "tool_calls"):
        parts.append(f"stopped: {result.stop_reason if result.stop_reason != 'complete' else result.model_stop_reason}")
    return "[" + " · ".join(parts) + "]"


def as_json(result: AgentResult[object]) -> str:
    """Return a result as one JSON object; money is decimal text."""
    usage = result.usage
    body = {
        "value": result.output,
        "text": result.text,
        "model": result.model,
        "provider": result.provider,
        "stop_reason": result.model_stop_reason if result.stop_reason == "complete" else result.stop_reason,
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
        "cost": None if result.cost is None else render_money(result.cost),
        "known_cost": render_money(result.known_cost),
        "cost_complete": result.cost_complete,
        "calls": result.calls,
        "run_id": result.run_id,
    }
    return msgspec.json.encode(body).decode()


def cost_table(rows: list[tuple[str, list[CostRecord]]]) -> str:
    """Return who made how many calls, with what usage, cost and time, as a table with a total."""
    lines: list[tuple[str, ...]] = []
    everything: list[CostRecord] = []
    for name, records in rows:
        everything.extend(records)
        lines.append(_row(name, records))
    head = ("who", "calls", "input", "output", "cost", "seconds")
    return text_table(head, [*lines, _row("total", everything)], total=True)


def _row(name: str, records: list[CostRecord]) -> tuple[str, str, str, str, str, str]:
    usage = Usage()
    cost = ZERO
    complete = True
    for record in records:
        usage = usage + record.usage
        complete = complete and record.cost is not None
        cost = add_money(cost, record.cost or ZERO)
    calls = sum(1 for record in records if record.accepted)
    seconds = sum(record.seconds for record in records)
    shown = f"${render_money(cost)}" if complete else f">= ${render_money(cost)}"
    return name, str(calls), _count(usage.input_tokens), _count(usage.output_tokens), shown, f"{seconds:.2f}"


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)
