"""The command in a child process, with an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import agentkit

SOURCE = str(Path(agentkit.__file__).parents[1])


@dataclass
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        """Return the one JSON object that standard output holds."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


class Command:
    """Runs `agentkit` in a folder of its own, without keys in the environment and with warnings as errors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self, **more: str) -> dict[str, str]:
        """Return the child's environment."""
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        return {**kept, "PYTHONPATH": SOURCE, "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8", **more}

    async def start(self, *arguments: str | bytes, env: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
        """Start the command with pipes."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agentkit.cli",
            *arguments,
            cwd=self.folder,
            env=self.environment(**(env or {})),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )

    async def __call__(self, *arguments: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run the command to its end; it must not show a traceback or a warning."""
        child = await self.start(*arguments, env=env)
        out, err = await child.communicate(stdin)
        done = Done(child.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in done.err, done.err
        assert "Warning" not in done.err, done.err
        return done

    def write(self, name: str, text: str) -> str:
        """Write a file beside which the command runs, and return its name."""
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Return the command, to run in a folder of this test."""
    return Command(tmp_path)
