"""The one estimate of how many tokens text is, used wherever no provider has counted yet: four characters a token."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts import (
    AssistantMessage,
    ChatRequest,
    FilePart,
    ImagePart,
    Message,
    ModelSettings,
    OutputSpec,
    TextPart,
    ToolSpec,
)

__all__ = ["message_tokens", "output_tokens", "request_tokens", "settings_tokens", "spec_tokens", "text_tokens"]

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
        if message.opaque:
            total += sum(_json_tokens(item.data) for item in message.opaque)
    return total


def _part_tokens(part: TextPart | ImagePart | FilePart) -> int:
    if isinstance(part, TextPart):
        return text_tokens(part.text)
    if isinstance(part, ImagePart):
        return _PER_IMAGE
    return _PER_IMAGE + len(part.data) // _CHARS_PER_TOKEN


def spec_tokens(spec: ToolSpec) -> int:
    """Return the likely tokens of a tool's description and schema."""
    return text_tokens(spec.name) + text_tokens(spec.description) + _json_tokens(spec.parameters)


def output_tokens(output: OutputSpec) -> int:
    """Return the likely tokens of the schema that an answer has to fit."""
    return text_tokens(output.name) + _json_tokens(output.schema)


def settings_tokens(settings: ModelSettings) -> int:
    """Return the likely tokens of what the settings put into the prompt: further tools, instructions and the like."""
    return _json_tokens(settings.extra) if settings.extra else 0


def request_tokens(request: ChatRequest) -> int:
    """Return the likely tokens of a whole request: messages, tools and output schema."""
    total = sum(message_tokens(message) for message in request.messages)
    total += sum(spec_tokens(spec) for spec in request.tools)
    if request.output is not None:
        total += output_tokens(request.output)
    return total + settings_tokens(request.settings)


def _json_tokens(value: object) -> int:
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError):  # what cannot be sent is refused by who sends it
        size = len(repr(value))
    return -(-size // _CHARS_PER_TOKEN)
