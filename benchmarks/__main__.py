"""`python -m benchmarks`: run, print the tables, and with `--check` fail when a target is missed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.first import PROGRAMS, loaded_by_import, measure_start
from benchmarks.harness import Results, measure, scripted_server
from benchmarks.peers import CONTENDERS
from benchmarks.report import data, markdown
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.targets import judge

_IMPORT_HEAVY = "import-heavy"
_NAMES = [*(scenario.name for scenario in SCENARIOS), *PROGRAMS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small batches: a smoke test")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help=f"scenarios by prefix: {', '.join(_NAMES)}"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), help="whom to measure"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed or was not measured")
    return parser


def _selected(prefixes: list[str]) -> set[str]:
    names = {name for name in _NAMES if not prefixes or name.startswith(tuple(prefixes))}
    if unknown := [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in _NAMES)]:
        sys.exit(f"--only {unknown[0]}: no such scenario; there are {', '.join(_NAMES)}")
    return names


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _run(scenarios: list[Scenario], names: set[str], only: set[str], rounds: int) -> Results:
    with scripted_server() as port:
        results = measure(scenarios, port, rounds=rounds, only=only, say=_say)
        if names & PROGRAMS.keys():
            _say("start-up")
            measure_start(results, port, rounds=rounds, only=only, names=names)
    if "import" in names and "agentkit" in only:
        loaded = loaded_by_import()
        results.cost[_IMPORT_HEAVY] = {"agentkit": float(len(loaded))}
        if loaded:
            _say(f"import agentkit loads {', '.join(loaded)}")
    return results


def main() -> int:
    """Run the selected scenarios; return the exit code."""
    arguments = _parser().parse_args()
    names = _selected(arguments.only)
    rounds = 1 if arguments.quick else arguments.rounds
    scenarios = [item.quick() if arguments.quick else item for item in SCENARIOS if item.name in names]
    results = _run(scenarios, names, set(arguments.contenders), rounds)
    verdicts = judge(results, names | ({_IMPORT_HEAVY} if "import" in names else set()))
    print(markdown(results, verdicts, {item.name: item.unit for item in scenarios}, rounds=rounds))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(data(results, verdicts, rounds=rounds), indent=2) + "\n")
    return int(arguments.check and not all(verdict.ok for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
