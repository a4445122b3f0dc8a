"""Writes requests of the Chat Completions protocol; what was written once for a message is not written again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from agentkit.core.contracts import (
    AssistantMessage,
    ChatRequest,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    ModelSettings,
    OutputSpec,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    text_of,
)
from agentkit.providers.history import wire_id
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.chat_decode import ECHO_KIND
from agentkit.providers.wire.clean import data_url, encode_json, whole_arguments
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["ChatWriter", "is_strict", "schema_instruction"]


class ChatWriter(BodyWriter):
    """Writes bodies for one model of one server."""

    __slots__ = ()

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, ECHO_KIND)

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; `messages` are those of the request after the history guard."""
        kept = self._memo
        written = [Raw(kept.get(message) or kept.put(message, self._message(message))) for message in messages]
        profile = self._profile
        if request.output is not None and profile.schemas == "prompt":
            written.insert(0, Raw(encode_json({"role": "system", "content": schema_instruction(request.output)})))
        body: dict[str, object] = {"model": self._model, "messages": written}
        if request.stream:
            body["stream"] = True
            if profile.stream_usage:
                body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = self._tool_list(request.tools)
            if request.tool_choice is not None:
                mode, name = request.tool_choice.mode, request.tool_choice.name
                body["tool_choice"] = {"type": "function", "function": {"name": name}} if mode == "tool" else mode
        if request.output is not None:
            body["response_format"] = self._format(request.output)
        self._settings(body, request.settings, max_tokens, with_tools=bool(request.tools))
        return encode_json(body)

    def _settings(
        self, body: dict[str, object], settings: ModelSettings, max_tokens: int | None, *, with_tools: bool
    ) -> None:
        given: dict[str, object] = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            self._profile.max_tokens_field: max_tokens,
            "stop": list(settings.stop) or None,
            "seed": settings.seed,
            "reasoning_effort": settings.reasoning_effort,
            "parallel_tool_calls": settings.parallel_tool_calls if with_tools else None,
            "service_tier": settings.service_tier,
            "metadata": settings.metadata,
        }
        self._put(body, given)
        if settings.extra:
            body.update(settings.extra)

    def _tool(self, tool: ToolSpec) -> JsonObject:
        function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        if tool.strict is not None and self._profile.strict_tools:
            function["strict"] = tool.strict
        return {"type": "function", "function": function}

    def _format(self, output: OutputSpec) -> JsonObject:
        if self._profile.schemas == "prompt":
            return {"type": "json_object"}
        schema: JsonObject = {"name": output.name, "schema": output.schema}
        if self._profile.schemas == "strict":
            schema["strict"] = is_strict(output.schema) if output.strict is None else output.strict
        return {"type": "json_schema", "json_schema": schema}

    def _message(self, message: Message) -> bytes:
        if isinstance(message, SystemMessage):
            return encode_json({"role": "system", "content": message.content})
        if isinstance(message, UserMessage):
            return encode_json({"role": "user", "content": _content(message.content)})
        if isinstance(message, ToolMessage):
            call_id = wire_id(message.call_id, self._profile.call_ids)
            return encode_json({"role": "tool", "tool_call_id": call_id, "content": _result(message.content)})
        return encode_json(self._assistant(message))

    def _assistant(self, message: AssistantMessage) -> JsonObject:
        own = self.replay.own(message)
        written: JsonObject = {"role": "assistant", "content": message.content}
        if not message.tool_calls:
            return written
        if not message.content:
            if self._profile.null_content == "null":
                written["content"] = None
            elif self._profile.null_content == "omit":
                del written["content"]
        if self._profile.echo_reasoning:
            written["reasoning_content"] = own[0].data if own else ""
        written["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return written

    def _call(self, call: ToolCall) -> JsonObject:
        return {
            "id": wire_id(call.id, self._profile.call_ids),
            "type": "function",
            "function": {"name": call.name, "arguments": whole_arguments(call.arguments)},
        }


def _content(content: str | tuple[Part, ...]) -> JsonValue:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        image: JsonObject = {"url": part.url or data_url(part.data, part.media_type or "image/png")}
        if part.detail:
            image["detail"] = part.detail
        return {"type": "image_url", "image_url": image}
    if part.file_id:
        return {"type": "file", "file": {"file_id": part.file_id}}
    if part.url:
        return {"type": "file", "file": {"file_url": part.url}}
    data = data_url(part.data, part.media_type or "application/octet-stream")
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": data}}


def _result(content: str | tuple[Part, ...]) -> str:
    """Return a result as text, which is all that the protocol takes there; other parts are named, not hidden."""
    if isinstance(content, str):
        return content
    others = sum(not isinstance(part, TextPart) for part in content)
    note = f"[{others} images or files of this result are left out: results are text here]" if others else ""
    return "\n".join(filter(None, (text_of(content), note)))


def schema_instruction(output: OutputSpec) -> str:
    """Return the prompt that stands for a schema where the server enforces none."""
    schema = encode_json(output.schema).decode()
    return f"Answer with one JSON object, and nothing else, that fits this JSON Schema ({output.name}):\n{schema}"


_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")
_SINGLE = ("items", "not", "additionalProperties")


def is_strict(schema: JsonValue) -> bool:
    """Return whether every object in the schema forbids further properties and requires all it has."""
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
    if is_object:
        properties = schema.get("properties")
        names = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required")
        if (
            schema.get("additionalProperties") is not False
            or not isinstance(required, list)
            or names - set(map(str, required))
        ):
            return False
    children: list[JsonValue] = [schema.get(name) for name in _SINGLE]
    for name in _LISTS:
        found = schema.get(name)
        children += found if isinstance(found, list) else []
    for name in _MAPS:
        found = schema.get(name)
        children += found.values() if isinstance(found, dict) else ()
    return all(is_strict(child) for child in children)
