"""A conversation as plain data for sinks: what spans and replay records may show, after masking."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentkit.core.contracts import (
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    FilePart,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    text_of,
)
from agentkit.core.runtime.telemetry.masking import Masker

__all__ = ["masked_arguments", "masked_messages", "masked_request", "masked_response", "masked_result"]


def masked_arguments(masker: Masker, call: ToolCall) -> JsonValue:
    """Return what sinks may see of a call's arguments; arguments that are no JSON object are masked as one text."""
    try:
        value = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        value = None
    if not isinstance(value, dict):
        value = {"arguments": call.arguments}
    return masker.arguments(call.name, value)


def masked_result(masker: Masker, tool: str, content: str | tuple[Part, ...]) -> str:
    """Return what sinks may see of a tool's result; images and files are left out."""
    return masker.result(tool, text_of(content))


def masked_messages(masker: Masker, messages: Sequence[Message]) -> list[JsonValue]:
    """Return the messages in the GenAI conventions' form: role and typed parts."""
    names: dict[str, str] = {}
    rendered: list[JsonValue] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            names.update((call.id, call.name) for call in message.tool_calls)
        rendered.append(_message(masker, message, names))
    return rendered


def masked_request(masker: Masker, request: ChatRequest) -> JsonObject:
    """Return a request as data: messages, tool names, the output's name and the settings."""
    settings = msgspec.to_builtins(request.settings)
    return {
        "messages": masked_messages(masker, request.messages),
        "tools": [spec.name for spec in request.tools],
        "output": None if request.output is None else request.output.name,
        "settings": {name: value for name, value in settings.items() if value not in (None, [], ())},
    }


def masked_response(masker: Masker, response: ChatResponse) -> JsonObject:
    """Return a response as data: message, usage, model and why it stopped."""
    return {
        "message": masked_messages(masker, (response.message,))[0],
        "usage": msgspec.to_builtins(response.usage),
        "model": response.model,
        "response_id": response.response_id,
        "stop_reason": response.stop_reason,
    }


def _message(masker: Masker, message: Message, names: dict[str, str]) -> JsonObject:
    if isinstance(message, ToolMessage):
        tool = message.name or names.get(message.call_id, "")
        result = masked_result(masker, tool, message.content)
        answer: JsonObject = {"type": "tool_call_response", "id": message.call_id, "response": result}
        return {"role": "tool", "parts": [answer]}
    if isinstance(message, SystemMessage):
        return {"role": "system", "parts": [_text(text_of(message.content))]}
    if not isinstance(message, AssistantMessage):
        content = message.content
        parts = [_text(content)] if isinstance(content, str) else [_part(part) for part in content]
        return {"role": "user", "parts": parts}
    said: list[JsonValue] = []
    if message.reasoning:
        said.append({"type": "reasoning", "content": message.reasoning})
    if message.content:
        said.append(_text(text_of(message.content)))
    said.extend(
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": masked_arguments(masker, call)}
        for call in message.tool_calls
    )
    return {"role": "assistant", "parts": said}


def _text(content: str) -> JsonValue:
    return {"type": "text", "content": content}


def _part(part: TextPart | ImagePart | FilePart) -> JsonValue:
    if isinstance(part, TextPart):
        return _text(part.text)
    modality = "image" if isinstance(part, ImagePart) else "file"
    return {"type": modality, "mime_type": part.media_type, "uri": part.url, "bytes": len(part.data)}
