"""Odd terminals: closed and full streams end in a sentence, never in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "PYTHONWARNINGS": "error",
}


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the shell's redirections."""
    command = line.replace("agentkit", f"'{sys.executable}' -m agentkit.cli", 1)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=50)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("agentkit ask hi --model scripted:hello >&-", 0),
        ("agentkit ask - --model scripted:hello <&-", 2),
        ("agentkit ask hi --model scripted:hello >/dev/full", 1),
    ],
)
def test_closed_and_full_streams(line: str, code: int) -> None:
    """The exit code says what happened, and standard error stays readable."""
    done = shell(line)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_failure_says_what_was_spent() -> None:
    """A paid answer that does not fit tells its cost, as text and as JSON."""
    done = shell(
        'agentkit ask hi --model scripted:hello --json --output-schema /dev/stdin <<\'END\'\n{"type": "object"}\nEND'
    )
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "OutputInvalid" and error["run_id"] and error["known_cost"] == "0"
