"""`agentkit ask` and `agentkit run`."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from agentkit.calls import CallRuntime
from agentkit.cli.failure import LIMIT
from agentkit.cli.inputs import read_binding, read_budget, read_question, read_schema, read_settings, read_tool
from agentkit.cli.render import Spinner, as_json, status_line
from agentkit.cognition import DEFAULT_MAX_TURNS
from agentkit.core.contracts import (
    AgentResult,
    ModelEvent,
    RunEvent,
    TextDelta,
    ToolEnded,
    ToolEvent,
    ToolStarted,
    UnpricedPolicy,
)

__all__ = ["ask_command"]

_HINTS = {
    "suspended": "A person has to approve, which the command cannot ask for: use Agent.run and Agent.resume in Python.",
    "max_turns": "Raise --max-turns to let it go on.",
}


async def ask_command(options: argparse.Namespace) -> int:
    """Ask, or run with tools, and print the answer; returns the exit code."""
    question = read_question(options.question)
    schema = None if options.output_schema is None else read_schema(options.output_schema)
    tools = [read_tool(name) for name in options.tools]
    budget = None if options.budget is None else read_budget(options.budget)
    spinner = Spinner(sys.stderr)
    binding = read_binding(options, spinner.say)
    unpriced = UnpricedPolicy.REFUSE if budget is not None else UnpricedPolicy.ALLOW
    started = time.monotonic()
    async with CallRuntime(unpriced_policy=unpriced) as calls:
        with spinner:
            stream = calls.stream(
                binding,
                question,
                tools or None,
                output=schema,
                budget=budget,
                instructions=options.instructions,
                max_turns=DEFAULT_MAX_TURNS if options.max_turns is None else options.max_turns,
                settings=read_settings(options),
                deadline=options.timeout,
            )
            shown = Shown(quiet=options.json or schema is not None, spinner=spinner)
            try:
                async with stream as events:
                    async for event in events:
                        shown.event(event)
            finally:
                shown.end_line()
        result = stream.result
    _print(result, options, shown, time.monotonic() - started)
    return 0 if result.stop_reason == "complete" else LIMIT


class Shown:
    """Prints the answer's text and the tools' doings while they happen."""

    def __init__(self, *, quiet: bool, spinner: Spinner) -> None:
        self.quiet = quiet
        self.spinner = spinner
        self.text = ""

    def event(self, event: RunEvent) -> None:
        """Show one event."""
        if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
            self.spinner.clear()
            self.text += event.event.text
            if not self.quiet:
                print(event.event.text, end="", flush=True)
        elif isinstance(event, ToolEvent) and isinstance(event.event, (ToolStarted, ToolEnded)):
            self.spinner.clear()
            self._tool(event.event)

    def end_line(self) -> None:
        """End the line of the answer, so that what follows stands on one of its own."""
        if self.text and not self.quiet and not self.text.endswith("\n"):
            print(flush=True)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        if isinstance(event, ToolStarted):
            print(f"→ {event.call.name} {event.call.arguments}", file=sys.stderr)
        else:
            content = event.result.content if isinstance(event.result.content, str) else "(parts)"
            print(f"← {content[:200]}", file=sys.stderr)


def _print(result: AgentResult[object], options: argparse.Namespace, shown: Shown, seconds: float) -> None:
    if options.json:
        print(as_json(result))
        _explain(result)
        return
    if shown.quiet:
        print(msgspec.json.format(msgspec.json.encode(result.output), indent=2).decode())
    print(status_line(result, seconds), file=sys.stderr)
    _explain(result)


def _explain(result: AgentResult[object]) -> None:
    """Say why a run that did not complete stopped, and what to do."""
    if result.stop_reason == "complete":
        return
    print(f"agentkit: stopped: {result.reason or result.stop_reason}", file=sys.stderr)
    hint = _HINTS.get(result.stop_reason)
    if hint:
        print(f"          {hint}", file=sys.stderr)
