"""Renders results as Markdown and as plain data."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version

from benchmarks.harness import Results
from benchmarks.peers import CONTENDERS
from benchmarks.targets import Verdict

_START = {"import": "import, ms", "first-answer": "import and first answer, ms"}
_BASES = ("openai", "agent-framework", "hand", "aiohttp")


def versions() -> dict[str, str]:
    """Return the installed version of every package a contender stands on."""
    found: dict[str, str] = {}
    for _, packages in CONTENDERS.values():
        for package in packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "source tree" if package == "agentkit-core" else "not installed"
    return dict(sorted(found.items()))


def markdown(results: Results, verdicts: Sequence[Verdict], units: dict[str, str], *, rounds: int) -> str:
    """Return the whole report."""
    packages = ", ".join(f"{name} {number}" for name, number in versions().items())
    parts = [
        f"{date.today().isoformat()}, {platform.python_implementation()} {platform.python_version()},"
        f" {platform.system()} {platform.machine()}; median of {rounds} interleaved rounds of CPU time.",
        packages + ".",
        "### Targets",
        _targets(verdicts),
        "### Ratios to the base of each row",
        _matrix(results, units, ratio=True),
        "### Microseconds of CPU (start-up in milliseconds, parked in bytes)",
        _matrix(results, units, ratio=False),
    ]
    if results.missing:
        parts += ["### Not measured", "\n".join(f"- {name}: {why}" for name, why in results.missing.items())]
    return "\n\n".join(parts) + "\n"


def data(results: Results, verdicts: Sequence[Verdict], *, rounds: int) -> dict[str, object]:
    """Return the report as plain data, for `--json`."""
    return {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "rounds": rounds,
        "versions": versions(),
        "cost": results.cost,
        "spread": results.spread,
        "missing": results.missing,
        "targets": [
            {"name": item.target.name, "value": item.value, "limit": item.target.limit, "ok": item.ok}
            for item in verdicts
        ],
    }


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _targets(verdicts: Sequence[Verdict]) -> str:
    rows = (
        [
            item.target.name,
            "not measured" if item.value is None else f"{item.value:.3g}",
            f"{item.target.limit:g}",
            _mark(item),
        ]
        for item in verdicts
    )
    return _table(["target", "measured", "limit", ""], rows)


def _mark(item: Verdict) -> str:
    if item.value is None:
        return "?"
    return "ok" if item.ok else "MISSED"


def _matrix(results: Results, units: dict[str, str], *, ratio: bool) -> str:
    names = [name for name in ("python", *CONTENDERS) if any(name in row for row in results.cost.values())]
    rows = []
    for scenario, costs in results.cost.items():
        base = next((costs[name] for name in _BASES if name in costs), None)
        if (scenario not in units and scenario not in _START) or (ratio and scenario.startswith("linear")):
            continue
        title = _START.get(scenario) or f"{scenario}, a {units[scenario]}"
        rows.append([title, *(_cell(costs.get(name), base if ratio else 1.0, ratio) for name in names)])
    return _table(["", *names], rows)


def _cell(cost: float | None, base: float | None, ratio: bool) -> str:
    if cost is None or not base:
        return ""
    return f"{cost / base:.3f}" if ratio else f"{cost:,.1f}"
