"""Runs the scenarios: a server process, a worker process a contender, rounds interleaved, medians."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field

from benchmarks.scenarios import Scenario


@dataclass
class Results:
    """Medians by scenario and contender: microseconds of CPU a unit, or bytes a parked run; and what was left out."""

    cost: dict[str, dict[str, float]] = field(default_factory=dict)
    spread: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def get(self, scenario: str, contender: str) -> float | None:
        """Return a median, None when it was not measured."""
        return self.cost.get(scenario, {}).get(contender)


class Process:
    """A child that answers JSON lines with JSON lines and ends when its input closes."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", *arguments]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe nobody reads would block a loud child)
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def read(self) -> object:
        """Return the next answer; RuntimeError with the child's last words when it died."""
        assert self._child.stdout is not None
        if line := self._child.stdout.readline():
            answer: object = json.loads(line)
            return answer
        self._child.wait()
        self._errors.seek(0)
        raise RuntimeError((self._errors.read().strip().splitlines() or ["it ended without a word"])[-1])

    def ask(self, value: object) -> object:
        """Send one line and return the answer."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(value) + "\n")
        self._child.stdin.flush()
        return self.read()

    def close(self) -> None:
        """Close the child's input and wait for its end."""
        self._child.communicate()
        self._errors.close()


@contextmanager
def process(*arguments: str) -> Iterator[Process]:
    """Start `python -m ARGUMENTS` and end it on exit."""
    child = Process(*arguments)
    try:
        yield child
    finally:
        child.close()


@contextmanager
def scripted_server() -> Iterator[int]:
    """Start the scripted server and yield its port."""
    with process("benchmarks.server") as server:
        port = server.read()
        assert isinstance(port, int)
        yield port


def measure(
    scenarios: Iterable[Scenario], port: int, *, rounds: int, only: set[str], say: Callable[[str], None]
) -> Results:
    """Run every scenario; a contender that cannot start or fails a scenario is noted in `missing`."""
    results = Results()
    with ExitStack() as stack:
        workers: dict[str, Process] = {}
        for scenario in scenarios:
            say(scenario.name)
            if scenario.action == "parked":
                _parked(scenario, port, rounds, only, results)
                continue
            names = [name for name in scenario.contenders if name in only]
            for name in names:
                if name not in workers and name not in results.missing:
                    _start(name, port, stack, workers, results)
            _rounds(scenario, [name for name in names if name in workers], workers, rounds, results)
    return results


def _start(name: str, port: int, stack: ExitStack, workers: dict[str, Process], results: Results) -> None:
    worker = stack.enter_context(process("benchmarks.worker", name, str(port)))
    try:
        worker.read()
    except RuntimeError as error:
        results.missing[name] = str(error)
    else:
        workers[name] = worker


def _rounds(scenario: Scenario, names: list[str], workers: dict[str, Process], rounds: int, results: Results) -> None:
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in list(samples):
            try:
                answer = workers[name].ask(asdict(scenario))
            except (RuntimeError, BrokenPipeError) as error:
                results.missing[f"{name} in {scenario.name}"] = str(error)
                del samples[name], workers[name]
                continue
            assert isinstance(answer, dict)
            samples[name].append(answer["cpu"] * 1e6 / scenario.size)
    _keep(scenario, samples, results)


def _parked(scenario: Scenario, port: int, rounds: int, only: set[str], results: Results) -> None:
    """Measure memory: a fresh process a sample, so that nothing freed before hides what a run takes."""
    samples: dict[str, list[float]] = {name: [] for name in scenario.contenders if name in only}
    for _ in range(min(rounds, 3)):
        for name in list(samples):
            try:
                with process("benchmarks.worker", name, str(port)) as worker:
                    worker.read()
                    answer = worker.ask(asdict(scenario))
            except (RuntimeError, BrokenPipeError) as error:
                results.missing[f"{name} in {scenario.name}"] = str(error)
                del samples[name]
                continue
            assert isinstance(answer, dict)
            samples[name].append(answer["memory"])
    _keep(scenario, samples, results)


def _keep(scenario: Scenario, samples: dict[str, list[float]], results: Results) -> None:
    kept = {name: values for name, values in samples.items() if values}
    results.cost[scenario.name] = {name: statistics.median(values) for name, values in kept.items()}
    results.spread[scenario.name] = {name: max(values) - min(values) for name, values in kept.items()}
