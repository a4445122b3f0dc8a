"""The demo, local models, help and version."""

from __future__ import annotations

import re

import pytest

import agentkit


async def test_the_scripted_demo_shows_its_steps_and_what_they_cost(command) -> None:
    """Four steps run to the end without a model or a key, and the table adds up exactly."""
    done = await command("demo", "--scripted")
    assert (done.code, done.err) == (0, "")
    steps = re.findall(r"^(\d)\. ", done.out, re.MULTILINE)
    assert steps[:4] == ["1", "2", "3", "4"]
    assert "stopped: budget_exhausted" in done.out
    assert "the checkpoint:" in done.out
    assert "City(name='Oslo', country='Norway', inhabitants=700000)" in done.out
    assert "nothing was paid twice" in done.out
    table = done.out.partition("Who spent what")[2]
    assert "cook" in table
    amounts = [int(round(float(found) * 10**9)) for found in re.findall(r"\$(\d+\.\d+)", table)]
    assert len(amounts) >= 5
    assert sum(amounts[:-1]) == amounts[-1]


async def test_local_models_are_listed(command) -> None:
    """Each known model is shown with its size and place, or how to fetch it."""
    done = await command("models", "list")
    assert (done.code, done.err) == (0, "")
    assert re.match(r"local:smollm2  \d+ MB  (/|not here yet: agentkit models add smollm2)", done.out)


async def test_an_unknown_local_model_is_not_fetched(command) -> None:
    """Adding a model that nobody knows names those that are."""
    done = await command("models", "add", "smolm2")
    assert (done.code, done.out) == (2, "")
    assert "smollm2" in done.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--help"], ["ask", "run", "demo", "models", "exit codes", "130"]),
        (["ask", "--help"], ["--model", "--base-url", "--output-schema", "--budget", "--price", "--json", "--timeout"]),
        (["run", "--help"], ["--tools", "MODULE:FUNCTION", "--max-turns", "--api-key-env"]),
        (["demo", "--help"], ["--scripted"]),
        (["models", "--help"], ["list", "add"]),
    ],
)
async def test_help_names_every_option(command, arguments: list[str], named: list[str]) -> None:
    """Help goes to standard output, with every command, option and exit code."""
    done = await command(*arguments)
    assert (done.code, done.err) == (0, "")
    assert all(word in done.out for word in named)


@pytest.mark.parametrize("arguments", [[], ["frob"], ["ask"], ["models"], ["models", "add"]])
async def test_a_command_that_is_not_whole_shows_its_usage(command, arguments: list[str]) -> None:
    """What is missing or unknown is bad input, with the usage on standard error."""
    done = await command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: agentkit")


async def test_the_version_is_the_packages(command) -> None:
    """--version prints the version that `agentkit.__version__` has."""
    done = await command("--version")
    assert (done.code, done.out) == (0, f"agentkit {agentkit.__version__}\n")
