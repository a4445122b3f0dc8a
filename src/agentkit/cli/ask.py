"""`agentkit ask` and `agentkit run`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agentkit.calls import Binding, CallRuntime
from agentkit.cli.failure import LIMIT
from agentkit.cli.render import Spinner, as_json, status_line
from agentkit.cognition import DEFAULT_MAX_TURNS
from agentkit.core.contracts import (
    AgentResult,
    ModelEvent,
    ModelSettings,
    RunEvent,
    TextDelta,
    ToolEnded,
    ToolEvent,
    ToolStarted,
    UnpricedPolicy,
)
from agentkit.core.runtime.budget import Budget
from agentkit.errors import ConfigurationError

__all__ = ["ask_command"]


async def ask_command(options: argparse.Namespace) -> int:
    """Ask, or run with tools, and print the answer; returns the exit code."""
    question = sys.stdin.read() if options.question == "-" else options.question
    schema = None if options.output_schema is None else _schema(options.output_schema)
    tools = [_load(name) for name in options.tools]
    budget = None if options.budget is None else Budget(options.budget, on_exceeded="raise")
    spinner = Spinner(sys.stderr)
    binding = _binding(options, spinner)
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
                settings=_settings(options),
                deadline=options.timeout,
            )
            shown = Shown(quiet=options.json or schema is not None, spinner=spinner)
            async with stream as events:
                async for event in events:
                    shown.event(event)
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

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        if isinstance(event, ToolStarted):
            print(f"→ {event.call.name} {event.call.arguments}", file=sys.stderr)
        else:
            content = event.result.content if isinstance(event.result.content, str) else "(parts)"
            print(f"← {content[:200]}", file=sys.stderr)


def _print(result: AgentResult[object], options: argparse.Namespace, shown: Shown, seconds: float) -> None:
    if options.json:
        print(as_json(result))
        return
    if shown.quiet:
        print(msgspec.json.format(msgspec.json.encode(result.output), indent=2).decode())
    elif shown.text and not shown.text.endswith("\n"):
        print()
    print(status_line(result, seconds), file=sys.stderr)


def _binding(options: argparse.Namespace, spinner: Spinner) -> Binding:
    model: str = options.model
    if options.base_url and ":" not in model:
        model = f"openai:{model}"
    key = None
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise ConfigurationError(f"--api-key-env: the variable {options.api_key_env} is not set.")
    if model.startswith("local:") and not options.base_url:
        from agentkit.providers.local import LocalModel

        return Binding(LocalModel(model.removeprefix("local:"), progress=spinner.say), price=options.price)
    return Binding(model, base_url=options.base_url, api_key=key, price=options.price)


def _settings(options: argparse.Namespace) -> ModelSettings:
    return ModelSettings(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)


def _schema(name: str) -> dict[str, object]:
    try:
        schema = msgspec.json.decode(Path(name).read_bytes())
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"--output-schema {name}: not JSON ({error}).") from error
    if not isinstance(schema, dict):
        raise ConfigurationError(
            f"--output-schema {name}: a JSON Schema is an object, this is a {type(schema).__name__}."
        )
    return schema


def _load(name: str) -> Callable[..., object]:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigurationError(f"--tools {name}: write MODULE:FUNCTION, such as mytools:weather.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(f"--tools {name}: cannot import {module_name} ({error}).") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        names = ", ".join(sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_"))
        raise ConfigurationError(
            f"--tools {name}: {module_name} has no function {attribute!r}; it has {names or 'none'}."
        )
    return function  # type: ignore[no-any-return]
