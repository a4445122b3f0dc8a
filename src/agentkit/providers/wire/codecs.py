"""The protocols by name: where they are posted, who writes and who reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from agentkit.core.contracts import Adjustment, ChatRequest, Message, WireProtocol
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.chat_echo import chat_decoder
from agentkit.providers.wire.chat_encode import ChatWriter
from agentkit.providers.wire.fold import Asked, Decoder
from agentkit.providers.wire.messages_decode import MessagesDecoder
from agentkit.providers.wire.messages_encode import MessagesWriter
from agentkit.providers.wire.replay import Replay
from agentkit.providers.wire.responses_decode import ResponsesDecoder
from agentkit.providers.wire.responses_encode import ResponsesWriter

__all__ = ["CODECS", "Codec", "Writer"]


class Writer(Protocol):
    """Writes bodies for one model of one server and remembers what it wrote."""

    @property
    def changes(self) -> list[Adjustment]:
        """Return the list a write adds to for each way in which the body says other than its request asks."""
        ...

    @property
    def replay(self) -> Replay:
        """Return the rule by which the providers' own items of a conversation go back, which `write` asks."""
        ...

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; `messages` are those of the request after the history guard."""
        ...


class Codec(Struct, frozen=True):
    """One protocol: `writer(profile, endpoint, model)` and `decoder(asked)`."""

    path: str
    writer: Callable[[Profile, str, str], Writer]
    decoder: Callable[[Asked], Decoder]


CODECS: Final[dict[WireProtocol, Codec]] = {
    "chat": Codec("/chat/completions", ChatWriter, chat_decoder),
    "messages": Codec("/v1/messages", MessagesWriter, MessagesDecoder),
    "responses": Codec("/responses", ResponsesWriter, ResponsesDecoder),
}
