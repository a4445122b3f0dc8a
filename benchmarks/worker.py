"""One contender in a process of its own: reads scenarios as JSON lines, answers each with its cost.

`python -m benchmarks.worker CONTENDER PORT`. CPU is `process_time` of this process, kernel time included.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypedDict

from benchmarks.peers import load
from benchmarks.peers.base import Contender
from benchmarks.scenarios import Scenario
from benchmarks.task import ANSWER, DELTA, Gate

Job = Callable[[], Awaitable[object]]


class Measured(TypedDict):
    """Seconds of CPU and of wall time a run of the job, or bytes of memory a parked run."""

    cpu: float
    wall: float
    memory: float


class Worker:
    """Holds a contender per server script, so that clients stay warm between rounds."""

    def __init__(self, name: str, port: int) -> None:
        self._type = load(name)
        self._port = port
        self._warm: dict[str, Contender] = {}

    async def measure(self, scenario: Scenario) -> Measured:
        """Run one batch of the scenario and return its cost."""
        if scenario.action == "parked":
            return Measured(cpu=0.0, wall=0.0, memory=await self._park(scenario.size))
        contender = await self._contender(scenario)
        job = self._job(contender, scenario)
        if scenario.name not in self._warm:
            self._warm[scenario.name] = contender
            await self._check(contender, scenario, job)
        for _ in range(scenario.warm):
            await job()
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(scenario.repeats):
            await job()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return Measured(cpu=cpu / scenario.repeats, wall=wall / scenario.repeats, memory=0.0)

    async def aclose(self) -> None:
        """Close every contender that was opened."""
        for script in {id(contender): contender for contender in self._warm.values()}.values():
            await script.__aexit__(None, None, None)

    def _url(self, script: str) -> str:
        return f"http://127.0.0.1:{self._port}/{script}/v1"

    async def _contender(self, scenario: Scenario) -> Contender:
        script = scenario.script
        if script not in self._warm:
            self._warm[script] = await self._type(self._url(script), max_turns=1050).__aenter__()
        return self._warm[script]

    def _job(self, contender: Contender, scenario: Scenario) -> Job:
        size = scenario.size
        if scenario.action == "concurrent":
            return lambda: asyncio.gather(*[contender.one_shot() for _ in range(size)])
        if scenario.action == "runs":
            return lambda: asyncio.gather(*[contender.in_process(1) for _ in range(size)])
        if scenario.action == "in_process":
            return lambda: contender.in_process(size)
        job: Job = getattr(contender, scenario.action)
        return job

    async def _check(self, contender: Contender, scenario: Scenario, job: Job) -> None:
        """Run the job once and refuse to measure one that does not do the whole task."""
        before = contender.looked_up
        result = await job()
        size, calls = scenario.size, contender.looked_up - before
        expected: dict[str, tuple[object, int]] = {
            "one_shot": (ANSWER, 0),
            "tool_loop": (ANSWER, 10),
            "stream": (size * len(DELTA), 0),
            "concurrent": ([ANSWER] * size, 0),
            "in_process": (ANSWER, size),
            "runs": ([ANSWER] * size, size),
        }
        if (result, calls) != expected[scenario.action]:
            raise RuntimeError(f"{type(contender).__name__} fails {scenario.name}: {calls} tool calls, {result!r:.200}")

    async def _park(self, runs: int) -> float:
        """Return the bytes of resident memory a run parked in its tool adds."""
        gate = Gate()
        async with self._type(self._url("one"), gate=gate) as contender:
            await self._parked(contender, gate, 20)
            before = resident()
            after = await self._parked(contender, gate, runs)
        return (after - before) / runs

    async def _parked(self, contender: Contender, gate: Gate, runs: int) -> int:
        gate.expect(runs)
        tasks = [asyncio.create_task(contender.in_process(1)) for _ in range(runs)]
        await gate.full()
        after = resident()
        gate.open()
        if await asyncio.gather(*tasks) != [ANSWER] * runs:
            raise RuntimeError(f"{type(contender).__name__} fails its parked runs")
        return after


def resident() -> int:
    """Return this process's resident memory in bytes, after a collection."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Serve measurements until standard input ends."""
    name, port = sys.argv[1:3]
    with asyncio.Runner() as runner:
        worker = Worker(name, int(port))
        print(json.dumps({"ready": name}), flush=True)
        for line in sys.stdin:
            measured = runner.run(worker.measure(Scenario(**json.loads(line))))
            print(json.dumps(measured), flush=True)
        runner.run(worker.aclose())


if __name__ == "__main__":
    main()
