"""What agentkit promises of its own cost, and whether a run of the benchmarks keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness import Results

KIB = 1024.0


@dataclass(frozen=True)
class Cost:
    """Names one median: scenario and contender."""

    scenario: str
    contender: str = "agentkit"


@dataclass(frozen=True)
class Target:
    """`cost` divided by `base` (a Cost or a number), or `cost` less `base`, is at most `limit`."""

    name: str
    cost: Cost
    base: Cost | float
    limit: float
    difference: bool = False


@dataclass(frozen=True)
class Verdict:
    """A target, the value measured (None when a part was not measured), and whether it is kept."""

    target: Target
    value: float | None

    @property
    def ok(self) -> bool:
        """Return whether the value is known and within the limit."""
        return self.value is not None and self.value <= self.target.limit


_SDK = "openai"
_FASTEST = "agent-framework"

TARGETS: tuple[Target, ...] = (
    Target("one-shot / openai SDK", Cost("one-shot"), Cost("one-shot", _SDK), 0.33),
    Target("10 tool turns / openai SDK", Cost("tool-loop"), Cost("tool-loop", _SDK), 0.20),
    Target("1000 deltas at once / openai SDK", Cost("stream"), Cost("stream", _SDK), 1 / 15),
    Target("1000 deltas at once / aiohttp and msgspec by hand", Cost("stream"), Cost("stream", "aiohttp"), 3.0),
    Target("1000 deltas, one a ms / openai SDK", Cost("stream-paced"), Cost("stream-paced", _SDK), 0.50),
    Target("200 concurrent / openai SDK", Cost("concurrent"), Cost("concurrent", _SDK), 0.20),
    Target("in-process turn / agent-framework", Cost("turn-10"), Cost("turn-10", _FASTEST), 0.25),
    Target("in-process turn (30) / agent-framework", Cost("turn-30"), Cost("turn-30", _FASTEST), 0.25),
    Target("turn at 30 turns / at 10", Cost("turn-30"), Cost("turn-10"), 1.05),
    Target("parked run, KiB", Cost("parked"), KIB, 11.0),
    Target("import agentkit over python, ms", Cost("import"), Cost("import", "python"), 150.0, difference=True),
    Target("first answer / openai SDK", Cost("first-answer"), Cost("first-answer", _SDK), 0.40),
    Target("heavy modules loaded by import", Cost("import-heavy"), 1.0, 0.0),
    *(
        Target(f"linear in {what}: at 1000 / at 100", Cost(f"linear-{what}-1000"), Cost(f"linear-{what}-100"), 1.25)
        for what in ("deltas", "turns", "runs")
    ),
)


def judge(results: Results, scenarios: set[str]) -> list[Verdict]:
    """Return a verdict for every target whose scenarios were asked for."""
    return [
        Verdict(target, _value(target, results))
        for target in TARGETS
        if all(cost.scenario in scenarios for cost in (target.cost, target.base) if isinstance(cost, Cost))
    ]


def _value(target: Target, results: Results) -> float | None:
    cost = results.get(target.cost.scenario, target.cost.contender)
    base = results.get(target.base.scenario, target.base.contender) if isinstance(target.base, Cost) else target.base
    if cost is None or base is None:
        return None
    return cost - base if target.difference else cost / base
