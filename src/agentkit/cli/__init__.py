"""The `agentkit` command."""

from agentkit.cli.main import main

__all__ = ["main"]
