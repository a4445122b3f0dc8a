"""Which of a provider's own items go back to it, and what becomes of those of another server, model or protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from agentkit.core.contracts import Adjustment, AssistantMessage, Message, OpaqueItem
from agentkit.errors import ConfigurationError
from agentkit.providers.wire.failure import redact
from agentkit.providers.wire.memo import WireMemo

__all__ = ["Replay"]


class Replay:
    """The opaque items of a conversation as one writer sees them; `kinds` are those its protocol can carry.

    An item goes back unchanged to its owner: the server's address and the model as it was asked for, so that an answer
    under a dated name has the same owner. A message is sorted once; a conversation without others' items costs nothing.
    """

    __slots__ = ("_foreign", "_kinds", "owner")

    def __init__(self, endpoint: str, model: str, *kinds: str) -> None:
        self.owner = (endpoint, model)
        self._kinds = frozenset(kinds)
        self._foreign: WireMemo[AssistantMessage] = WireMemo()

    def own(self, message: AssistantMessage) -> Sequence[OpaqueItem]:
        """Return the items of this message that go back, in their order; to be called whenever it is written anew."""
        if not message.opaque:
            return ()
        own = [item for item in message.opaque if self._is_own(item)]
        if len(own) < len(message.opaque):
            self._foreign.put(message, b"")
        return own

    def left_out(
        self, messages: Iterable[Message], setting: Literal["drop", "refuse"] | None
    ) -> tuple[Adjustment, ...]:
        """Return what is reported of the items that stay behind, in one adjustment for all of these written messages.

        Raises ConfigurationError in its place when `setting` is "refuse".
        """
        if not self._foreign:
            return ()
        found = [
            item
            for message in messages
            if isinstance(message, AssistantMessage) and self._foreign.get(message) is not None
            for item in message.opaque
            if not self._is_own(item)
        ]
        if not found:
            return ()
        what = f"{len(found)} {'item' if len(found) == 1 else 'items'} of {_owners(found)}"
        if setting == "refuse":
            raise ConfigurationError(
                f"The conversation holds {what}, which {_name(self.owner)} cannot take back. Ask that model again, "
                "take AssistantMessage.opaque out, or leave the items behind with ModelSettings(replay='drop')."
            )
        return (Adjustment("replay", what, f"{_name(self.owner)} cannot take back what is another's; left out"),)

    def _is_own(self, item: OpaqueItem) -> bool:
        return item.owner == self.owner and item.kind in self._kinds


def _owners(items: Iterable[OpaqueItem]) -> str:
    owners = dict.fromkeys((item.owner, item.kind) for item in items)
    return ", ".join(f"{_name(owner)} ({kind})" for owner, kind in owners)


def _name(owner: tuple[str, str]) -> str:
    endpoint, model = owner
    return f"{model!r} at {redact(endpoint)}"
