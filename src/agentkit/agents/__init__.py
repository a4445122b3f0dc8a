"""Agents, and agents as tools of agents."""

from agentkit.agents.agent import Agent
from agentkit.agents.agent_tool import AgentTool

__all__ = ["Agent", "AgentTool"]
