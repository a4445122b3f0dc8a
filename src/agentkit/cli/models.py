"""`agentkit models`: the weights of local models."""

from __future__ import annotations

import asyncio
import sys

from agentkit.cli.render import Spinner
from agentkit.providers import weights

__all__ = ["add_command", "list_command"]


async def list_command() -> int:
    """Print the known local models and where their weights are."""
    for entry in weights.KNOWN:
        path = weights.locate(entry.name)
        where = str(path) if path is not None else f"not here yet: agentkit models add {entry.name}"
        print(f"local:{entry.name}  {entry.size / 1e6:.0f} MB  {where}")
    return 0


async def add_command(name: str) -> int:
    """Fetch, check and cache the weights of a model."""
    with Spinner(sys.stderr, f"fetching {name}") as spinner:
        path = await asyncio.to_thread(weights.add, name, progress=spinner.say)
    print(path)
    return 0
