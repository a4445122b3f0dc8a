"""The contenders: one module each, loaded only in the worker that runs it."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.base import Contender

CONTENDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "agentkit": ("agentkit_default:AgentkitDefault", ("agentkit-core", "aiohttp")),
    "agentkit+ceiling": ("agentkit_default:AgentkitBudgeted", ("agentkit-core", "aiohttp")),
    "agentkit+httpx": ("agentkit_httpx:AgentkitHttpx", ("agentkit-core", "httpx")),
    "hand": ("hand:Hand", ("msgspec",)),
    "aiohttp": ("bare_aiohttp:BareAiohttp", ("aiohttp", "msgspec")),
    "httpx": ("bare_httpx:BareHttpx", ("httpx", "msgspec")),
    "openai": ("openai_sdk:OpenAISDK", ("openai",)),
    "pydantic-ai": ("pydantic_ai_peer:PydanticAI", ("pydantic-ai-slim", "openai")),
    "openai-agents": ("openai_agents_peer:OpenAIAgents", ("openai-agents", "openai")),
    "agent-framework": (
        "agent_framework_peer:AgentFramework",
        ("agent-framework-core", "agent-framework-openai", "openai"),
    ),
}


def load(name: str) -> type[Contender]:
    """Return the class of a contender; ImportError when its packages are not installed."""
    module, _, attribute = CONTENDERS[name][0].partition(":")
    contender: type[Contender] = getattr(import_module(f"benchmarks.peers.{module}"), attribute)
    return contender
