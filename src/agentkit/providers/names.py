"""Names of tools on the wire: servers take letters, digits, _ and -, at most 64; other names get an alias."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache

from msgspec.structs import replace

from agentkit.core.contracts import ChatEnd, ChatEvent, ToolCallDelta, ToolCallReady, ToolSpec
from agentkit.errors import ConfigurationError

__all__ = ["aliases_of", "wire_name", "with_own_names"]

_TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_READABLE = 53  # of the 64 characters; "_" and ten of the digest follow


@lru_cache(maxsize=4096)
def wire_name(name: str) -> str:
    """Return the name as servers take it: itself, else what is readable of it and a digest of the whole.

    The same name has the same alias in every request, so the server's prompt cache keeps.
    """
    if _TAKEN.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=5).hexdigest()
    return f"{_OTHER.sub('_', name)[:_READABLE].strip('_')}_{digest}"


def aliases_of(tools: Sequence[ToolSpec]) -> dict[str, str]:
    """Return the tools' own names by their aliases; raises ConfigurationError for two that look alike on the wire."""
    owners: dict[str, str] = {}
    for tool in tools:
        other = owners.setdefault(wire_name(tool.name), tool.name)
        if other != tool.name:
            raise ConfigurationError(
                f"Tools {other!r} and {tool.name!r} have one name on the wire; rename one of them."
            )
    return {alias: name for alias, name in owners.items() if alias != name}


async def with_own_names(
    events: AsyncGenerator[ChatEvent, None], tools: Sequence[ToolSpec]
) -> AsyncGenerator[ChatEvent, None]:
    """Yield the events with the tools' own names in place of their aliases."""
    async with aclosing(events):
        names = aliases_of(tools)
        async for event in events:
            yield _renamed(event, names)


def _renamed(event: ChatEvent, names: Mapping[str, str]) -> ChatEvent:
    if isinstance(event, ToolCallDelta):
        return replace(event, name=names.get(event.name, event.name))
    if isinstance(event, ToolCallReady):
        return replace(event, call=replace(event.call, name=names.get(event.call.name, event.call.name)))
    if isinstance(event, ChatEnd):
        message = event.response.message
        calls = tuple(replace(call, name=names.get(call.name, call.name)) for call in message.tool_calls)
        return ChatEnd(replace(event.response, message=replace(message, tool_calls=calls)))
    return event
