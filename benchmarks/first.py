"""Start-up: fresh interpreters that import, and that import and answer once. CPU of the child, milliseconds."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.harness import Results
from benchmarks.task import API_KEY, MODEL, PROMPT

HEAVY = (
    "aiohttp",
    "anthropic",
    "httpx",
    "httpx2",
    "openai",
    "opentelemetry",
    "pydantic",
    "pydantic_core",
    "structlog",
)

_AGENTKIT = f"""
import asyncio, sys
from agentkit import Agent, Binding, ask, tool
binding = Binding("openai:{MODEL}", base_url=sys.argv[1], api_key="{API_KEY}")
assert asyncio.run(ask(binding, "{PROMPT}")).text
"""
_OPENAI = f"""
import asyncio, sys
from openai import AsyncOpenAI
async def main():
    async with AsyncOpenAI(base_url=sys.argv[1], api_key="{API_KEY}") as client:
        messages = [{{"role": "user", "content": "{PROMPT}"}}]
        answer = await client.chat.completions.create(model="{MODEL}", messages=messages)
        assert answer.choices[0].message.content
asyncio.run(main())
"""
_PYDANTIC_AI = f"""
import asyncio, sys
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("{MODEL}", provider=OpenAIProvider(base_url=sys.argv[1], api_key="{API_KEY}"))
assert asyncio.run(Agent(model).run("{PROMPT}")).output
"""
_OPENAI_AGENTS = f"""
import asyncio, sys
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("{MODEL}", AsyncOpenAI(base_url=sys.argv[1], api_key="{API_KEY}"))
assert asyncio.run(Runner.run(Agent(name="a", model=model), "{PROMPT}")).final_output
"""
_AGENT_FRAMEWORK = f"""
import asyncio, sys
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
client = OpenAIChatCompletionClient(model="{MODEL}", base_url=sys.argv[1], api_key="{API_KEY}")
assert asyncio.run(Agent(client).run("{PROMPT}")).text
"""

PROGRAMS: dict[str, dict[str, str]] = {
    "import": {"python": "pass", "agentkit": "import agentkit", "openai": "import openai"},
    "first-answer": {
        "agentkit": _AGENTKIT,
        "openai": _OPENAI,
        "pydantic-ai": _PYDANTIC_AI,
        "openai-agents": _OPENAI_AGENTS,
        "agent-framework": _AGENT_FRAMEWORK,
    },
}


def compiled_environment(folder: str) -> dict[str, str]:
    """Return an environment whose bytecode is kept in a folder of its own, as an installed package's is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": folder}


def child_cpu(source: str, *arguments: str, environment: dict[str, str] | None = None) -> float:
    """Run the source in a fresh interpreter; return its CPU milliseconds, kernel time included.

    RuntimeError with the last line of its errors when it fails.
    """
    command = [sys.executable, "-c", source, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stderr is not None
        errors = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(errors.decode().strip().splitlines()[-1])
    return (used.ru_utime + used.ru_stime) * 1000


def measure_start(results: Results, port: int, *, rounds: int, only: set[str], names: set[str]) -> None:
    """Add the start-up scenarios in `names` to the results, interleaved, the first round untimed: it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(results, port, rounds, only, names, compiled_environment(folder))


def _measure(
    results: Results, port: int, rounds: int, only: set[str], names: set[str], environment: dict[str, str]
) -> None:
    url = f"http://127.0.0.1:{port}/one/v1"
    for scenario, programs in PROGRAMS.items():
        if scenario not in names:
            continue
        samples: dict[str, list[float]] = {name: [] for name in programs if name in only or name == "python"}
        for number in range(rounds + 1):
            for name in list(samples):
                try:
                    spent = child_cpu(programs[name], url, environment=environment)
                except RuntimeError as error:
                    results.missing[f"{name} in {scenario}"] = str(error)
                    del samples[name]
                    continue
                if number:
                    samples[name].append(spent)
        results.cost[scenario] = {name: statistics.median(values) for name, values in samples.items()}
        results.spread[scenario] = {name: max(values) - min(values) for name, values in samples.items()}


def loaded_by_import() -> list[str]:
    """Return which heavy modules `import agentkit` loads; there should be none."""
    source = f"import agentkit, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.check_output([sys.executable, "-c", source]).decode().split()
