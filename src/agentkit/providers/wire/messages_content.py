"""Writes the messages of a conversation as content blocks of the Messages protocol."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from msgspec import Raw

from agentkit.core.contracts import (
    AssistantMessage,
    FilePart,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    OpaqueItem,
    Part,
    TextPart,
    ToolMessage,
)
from agentkit.providers.history import wire_id
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import CallIdStyle
from agentkit.providers.wire.clean import whole_arguments
from agentkit.providers.wire.messages_blocks import BLOCKS_KIND

__all__ = ["content_of", "holds_server_blocks"]

_OURS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


def content_of(message: Message, own: Sequence[OpaqueItem], ids: CallIdStyle) -> Iterator[object]:
    """Yield the blocks of a message; empty text, which the server refuses, gives none.

    `own` are the message's opaque items that go back to this server and model.
    """
    if isinstance(message, AssistantMessage):
        yield from _assistant(message, own, ids)
    elif isinstance(message, ToolMessage):
        result: JsonObject = {
            "type": "tool_result",
            "tool_use_id": wire_id(message.call_id, ids),
            "content": message.content if isinstance(message.content, str) else list(_parts(message.content)),
        }
        if message.is_error:
            result["is_error"] = True
        yield result
    elif isinstance(message.content, str):
        if message.content:
            yield {"type": "text", "text": message.content}
    else:
        yield from _parts(message.content)


def holds_server_blocks(own: Sequence[OpaqueItem]) -> bool:
    """Return whether blocks of the server's own tools are among the items, so that the answer may go on from there."""
    return any(
        isinstance(block, dict) and block.get("type") not in _OURS
        for item in own
        if item.kind == BLOCKS_KIND and isinstance(item.data, list)
        for block in item.data
    )


def _assistant(message: AssistantMessage, own: Sequence[OpaqueItem], ids: CallIdStyle) -> Iterator[object]:
    for item in own:
        if item.kind == BLOCKS_KIND and isinstance(item.data, list):
            yield from _replayed(message, item.data, ids)
            return
    if message.content:
        yield {"type": "text", "text": message.content}
    for index in range(len(message.tool_calls)):
        yield _call(message, index, {}, ids)


def _replayed(message: AssistantMessage, layout: list[JsonValue], ids: CallIdStyle) -> Iterator[object]:
    """Yield the owner's own blocks in their order, with the text and calls the message has now."""
    items = [dict(item) for item in layout if isinstance(item, dict)]
    texts = [item for item in items if item.get("type") == "text"]
    unchanged = sum(length for item in texts if isinstance(length := item.get("length"), int)) == len(message.content)
    start, called = 0, 0
    if message.content and not texts:
        yield {"type": "text", "text": message.content}
    for item in items:
        kind = item.get("type")
        if kind == "text":
            length = item.pop("length", 0)
            end = start + length if unchanged and isinstance(length, int) else len(message.content)
            if text := message.content[start:end]:
                yield {**item, "text": text} if unchanged else {"type": "text", "text": text}
            start = end
        elif kind == "tool_use":
            item.pop("index", None)
            if called < len(message.tool_calls):
                yield _call(message, called, item, ids)
                called += 1
        else:
            yield item
    for index in range(called, len(message.tool_calls)):
        yield _call(message, index, {}, ids)


def _call(message: AssistantMessage, index: int, more: JsonObject, ids: CallIdStyle) -> dict[str, object]:
    call = message.tool_calls[index]
    return {
        **more,
        "type": "tool_use",
        "id": wire_id(call.id, ids),
        "name": wire_name(call.name),
        "input": Raw(whole_arguments(call.arguments).encode()),
    }


def _parts(parts: tuple[Part, ...]) -> Iterator[JsonObject]:
    for part in parts:
        if isinstance(part, TextPart):
            if part.text:
                yield {"type": "text", "text": part.text}
        elif isinstance(part, ImagePart):
            yield {"type": "image", "source": _source(part.url, part.data, part.media_type or "image/png")}
        else:
            yield _document(part)


def _document(part: FilePart) -> JsonObject:
    source: JsonObject
    if part.file_id:
        source = {"type": "file", "file_id": part.file_id}
    elif part.data and part.media_type.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8", "replace")}
    else:
        source = _source(part.url, part.data, part.media_type or "application/pdf")
    document: JsonObject = {"type": "document", "source": source}
    if part.name:
        document["title"] = part.name
    return document


def _source(url: str, data: bytes, media_type: str) -> JsonObject:
    if url:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
