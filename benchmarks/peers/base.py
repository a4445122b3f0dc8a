"""What the harness asks of a contender."""

from __future__ import annotations

from benchmarks.task import TOOL_RESULT, Gate, Lookup


class Contender:
    """One way to do the task. A contender leaves out what it has no form of: the harness skips it there.

    `url` ends in `/v1`; its clients are pooled and warm for the contender's life, entered and left by `async with`.
    With a `gate` the tool parks at it. `max_turns` is a limit the run never reaches.
    """

    def __init__(self, url: str, *, gate: Gate | None = None, max_turns: int = 50) -> None:
        self.url = url
        self.max_turns = max_turns
        self.looked_up = 0
        self.lookup = self._make_lookup(gate)

    def _make_lookup(self, gate: Gate | None) -> Lookup:
        async def lookup(key: str) -> str:
            """Return the value stored under a key."""
            self.looked_up += 1
            if gate is not None:
                await gate.wait()
            return TOOL_RESULT

        return lookup

    async def __aenter__(self) -> Contender:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def one_shot(self) -> str:
        """Ask once over HTTP and return the text."""
        raise NotImplementedError

    async def tool_loop(self) -> str:
        """Ask over HTTP, call the tool as often as the model wants, return the final text."""
        raise NotImplementedError

    async def stream(self) -> int:
        """Ask for a stream over HTTP, look at every delta, return the characters seen."""
        raise NotImplementedError

    async def in_process(self, turns: int) -> str:
        """Run an agent on a scripted model in this process: `turns` tool calls, then the final text."""
        raise NotImplementedError
