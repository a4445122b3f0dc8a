"""The one estimate of how many tokens text is, used wherever no provider has counted yet: four characters a token."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts import AssistantMessage, ChatRequest, FilePart, ImagePart, Message, TextPart, ToolSpec

__all__ = ["message_tokens", "request_tokens", "spec_tokens", "text_tokens"]

_CHARS_PER_TOKEN = 4
_PER_MESSAGE = 4
_PER_IMAGE = 1_600  # the most that a large image costs at today's providers, in round numbers


def text_tokens(text: str) -> int:
    """Return the likely tokens of a text; text beyond ASCII counts one token a character, to err high."""
    size = len(text)
    return -(-size // _CHARS_PER_TOKEN) if text.isascii() else size


def message_tokens(message: Message) -> int:
    """Return the likely tokens of one message, its tool calls and parts included."""
    content = message.content
    total = _PER_MESSAGE
    if isinstance(content, str):
        total += text_tokens(content)
    else:
        total += sum(_part_tokens(part) for part in content)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            total += text_tokens(call.name) + text_tokens(call.arguments)
        total += text_tokens(message.reasoning)
    return total


def _part_tokens(part: TextPart | ImagePart | FilePart) -> int:
    if isinstance(part, TextPart):
        return text_tokens(part.text)
    if isinstance(part, ImagePart):
        return _PER_IMAGE
    return _PER_IMAGE + len(part.data) // _CHARS_PER_TOKEN


def spec_tokens(spec: ToolSpec) -> int:
    """Return the likely tokens of a tool's description and schema."""
    return text_tokens(spec.name) + text_tokens(spec.description) + len(msgspec.json.encode(spec.parameters)) // 4


def request_tokens(request: ChatRequest) -> int:
    """Return the likely tokens of a whole request: messages, tools and output schema."""
    total = sum(message_tokens(message) for message in request.messages)
    total += sum(spec_tokens(spec) for spec in request.tools)
    if request.output is not None:
        total += len(msgspec.json.encode(request.output.schema)) // 4
    return total
