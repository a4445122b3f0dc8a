"""What the package shows, and what importing it costs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import agentkit

HEAVY = (
    "aiohttp",
    "anthropic",
    "httpx",
    "httpx2",
    "jsonschema_rs",
    "openai",
    "opentelemetry",
    "pydantic",
    "structlog",
    "xllamacpp",
)
IMPORT_LIMIT_SECONDS = 0.150
FRONT_NAMES = 40


def test_front_door_is_small_and_real() -> None:
    """At most 40 names, all of which load, and no test double among them."""
    assert len(agentkit.__all__) <= FRONT_NAMES
    assert list(agentkit.__all__) == sorted(agentkit.__all__, key=lambda name: (name[0].islower(), name))
    for name in agentkit.__all__:
        assert getattr(agentkit, name) is not None
    testing = importlib.import_module("agentkit.testing")
    assert not set(agentkit.__all__) & set(testing.__all__)


def test_every_module_loads_and_keeps_its_all() -> None:
    """Each module imports, and each name it promises exists."""
    for info in pkgutil.walk_packages(agentkit.__path__, "agentkit."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name} promises {name}"


def test_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="Agnet"):
        agentkit.Agnet  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    """`import agentkit` and the verbs' names load no SDK, no HTTP library, no pydantic, no structlog."""
    code = (
        "import sys, agentkit\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n"
        "from agentkit import Agent, Binding, Budget, CallRuntime, ReAct, Scope, ask, run, tool\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=_environment())


def test_import_is_quick() -> None:
    """`import agentkit` costs less than 150 ms of CPU over `python -c pass`, best of five."""
    bare = min(_cpu("pass") for _ in range(5))
    ours = min(_cpu("import agentkit") for _ in range(5))
    assert ours - bare < IMPORT_LIMIT_SECONDS


def _cpu(statement: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", statement], check=True, env=_environment())
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
