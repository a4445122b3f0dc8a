"""The one job every contender does, so that only their machinery differs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

MODEL = "bench-model"
API_KEY = "bench-key"
INSTRUCTIONS = "You answer questions about keys. Call lookup for each key."
PROMPT = "What is the value of key k1?"
ANSWER = "The value of key k1 is 42."
TOOL_NAME = "lookup"
TOOL_DESCRIPTION = "Return the value stored under a key."
ARGUMENTS = '{"key":"k1"}'
TOOL_RESULT = "42"
DELTA = " word"

TOOL_SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string"}},
    "required": ["key"],
    "additionalProperties": False,
}
TOOL_SPEC = {
    "type": "function",
    "function": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_SCHEMA},
}

Lookup = Callable[[str], Awaitable[str]]


class Gate:
    """Counts the runs waiting in their tool and lets all of them go at once."""

    def __init__(self) -> None:
        self._release = asyncio.Event()
        self._full = asyncio.Event()
        self._left = 0

    def expect(self, runs: int) -> None:
        """Close the gate; `full` returns when this many runs wait at it."""
        self._left = runs
        self._full.clear()
        self._release.clear()

    async def wait(self) -> None:
        """Wait at the gate."""
        self._left -= 1
        if not self._left:
            self._full.set()
        await self._release.wait()

    async def full(self) -> None:
        """Wait until every expected run is parked."""
        await self._full.wait()

    def open(self) -> None:
        """Let every run go on."""
        self._release.set()
