"""The words of a conversation: frozen values, the same for every provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AssistantMessage",
    "ComposedPrompt",
    "FilePart",
    "ImagePart",
    "JsonObject",
    "JsonValue",
    "Message",
    "OpaqueItem",
    "Part",
    "Prompt",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "text_of",
]

if TYPE_CHECKING:
    JsonValue: TypeAlias = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
else:
    JsonValue = Any  # msgspec resolves no recursive alias; the codec checks data at its own boundary
JsonObject: TypeAlias = dict[str, JsonValue]


class TextPart(Struct, frozen=True, tag="text", omit_defaults=True):
    """Plain text inside a message of several parts."""

    text: str


class ImagePart(Struct, frozen=True, tag="image", omit_defaults=True):
    """An image by `url` or by `data` (bytes) with its `media_type`."""

    url: str = ""
    data: bytes = b""
    media_type: str = ""
    detail: str = ""


class FilePart(Struct, frozen=True, tag="file", omit_defaults=True):
    """A document by `url`, by `data` (bytes) with its `media_type`, or by a provider's `file_id`."""

    url: str = ""
    data: bytes = b""
    media_type: str = ""
    name: str = ""
    file_id: str = ""


Part: TypeAlias = TextPart | ImagePart | FilePart


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A model's wish to call a tool; `arguments` is JSON text as it came, `id` is unique in the conversation."""

    id: str
    name: str
    arguments: str = "{}"


class OpaqueItem(Struct, frozen=True, omit_defaults=True):
    """A provider's own item (reasoning, signature) that goes back unchanged to its `owner`: (endpoint, model)."""

    owner: tuple[str, str]
    kind: str
    data: JsonValue


class SystemMessage(Struct, frozen=True, tag="system", weakref=True, omit_defaults=True):
    """Instructions by the developer."""

    content: str


class UserMessage(Struct, frozen=True, tag="user", weakref=True, omit_defaults=True):
    """What the user said, as text or parts."""

    content: str | tuple[Part, ...]


class AssistantMessage(Struct, frozen=True, tag="assistant", weakref=True, omit_defaults=True):
    """What the model said: text, calls in order, readable reasoning, and opaque items for its owner."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    opaque: tuple[OpaqueItem, ...] = ()


class ToolMessage(Struct, frozen=True, tag="tool", weakref=True, omit_defaults=True):
    """The one answer to the tool call with this `call_id`."""

    call_id: str
    content: str | tuple[Part, ...]
    name: str = ""
    is_error: bool = False


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class ComposedPrompt(Struct, frozen=True):
    """A prompt in two pieces: `system` instructions, which stay cacheable, and the `user` part."""

    user: str | tuple[Part, ...]
    system: str = ""


Prompt: TypeAlias = "str | ComposedPrompt | Sequence[Message]"


def text_of(content: str | tuple[Part, ...]) -> str:
    """Return the text of a message's content; images and files contribute nothing."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))
