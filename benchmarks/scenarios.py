"""What is measured: the scenarios, and which contender takes part in which."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Action = Literal["one_shot", "tool_loop", "stream", "concurrent", "in_process", "runs", "parked"]

HTTP = (
    "agentkit",
    "agentkit+ceiling",
    "agentkit+httpx",
    "aiohttp",
    "httpx",
    "openai",
    "pydantic-ai",
    "openai-agents",
    "agent-framework",
)
IN_PROCESS = ("agentkit", "agentkit+ceiling", "hand", "pydantic-ai", "openai-agents", "agent-framework")
LINEAR = ("agentkit", "aiohttp")
LINEAR_IN_PROCESS = ("agentkit", "hand")


@dataclass(frozen=True)
class Scenario:
    """One measured job: `repeats` runs of `action` a batch, each of `size` units, reported per `unit`.

    `script` is what the server plays; `warm` untimed runs precede each batch. The unit of "parked" is bytes.
    """

    name: str
    action: Action
    script: str
    size: int
    repeats: int
    unit: str
    contenders: tuple[str, ...]
    warm: int = 1

    def quick(self) -> Scenario:
        """Return the scenario cut down to a smoke test."""
        script, size = self.script, self.size
        if script.startswith("paced"):
            script, size = "paced-100", 100
        return replace(self, script=script, size=size, repeats=max(1, self.repeats // 10))


def _sizes(name: str, action: Action, script: str, unit: str, contenders: tuple[str, ...]) -> list[Scenario]:
    return [
        Scenario(f"{name}-{size}", action, script.format(size), size, max(1, 300 // size), unit, contenders)
        for size in (10, 100, 1000)
    ]


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("one-shot", "one_shot", "one", 1, 40, "call", HTTP),
    Scenario("tool-loop", "tool_loop", "tools-10", 1, 6, "loop of 10 tool turns", HTTP),
    Scenario("stream", "stream", "stream-1000", 1000, 3, "delta", HTTP),
    Scenario("stream-paced", "stream", "paced-1000", 1000, 1, "delta", HTTP, warm=0),
    Scenario("concurrent", "concurrent", "one", 200, 1, "call", HTTP),
    Scenario("turn-10", "in_process", "one", 10, 30, "turn", IN_PROCESS),
    Scenario("turn-30", "in_process", "one", 30, 10, "turn", IN_PROCESS),
    Scenario("parked", "parked", "one", 1000, 1, "run", IN_PROCESS),
    *_sizes("linear-deltas", "stream", "stream-{}", "delta", LINEAR),
    *_sizes("linear-turns", "in_process", "one", "turn", LINEAR_IN_PROCESS),
    *_sizes("linear-runs", "runs", "one", "run", LINEAR_IN_PROCESS),
)
