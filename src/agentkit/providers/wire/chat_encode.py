"""Writes requests of the Chat Completions protocol; what was written once for a message is not written again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    ChatRequest,
    JsonObject,
    JsonValue,
    Message,
    ModelSettings,
    OutputSpec,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agentkit.providers.history import wire_id
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.chat_echo import ECHO_KINDS, sign_calls
from agentkit.providers.wire.chat_parts import written_content, written_result
from agentkit.providers.wire.chat_roles import arranged
from agentkit.providers.wire.clean import encode_json, whole_arguments
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["ChatWriter", "is_strict", "schema_instruction"]


class ChatWriter(BodyWriter):
    """Writes bodies for one model of one server."""

    __slots__ = ()

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, ECHO_KINDS[profile.echo])

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; `messages` are those of the request after the history guard."""
        profile, output = self._profile, request.output
        if output is not None and profile.schemas in ("prompt", "text"):
            messages = (SystemMessage(schema_instruction(output)), *messages)
            self.changes.append(
                Adjustment("schema", "response_format", f"{profile.name} enforces no schema; it went into the prompt")
            )
        if profile.roles != "any" or profile.empty_assistant != "keep":
            messages = arranged(messages, profile, self.changes)
        kept = self._memo
        written = [Raw(kept.get(message) or kept.put(message, self._message(message))) for message in messages]
        body: dict[str, object] = {"model": self._model, "messages": written}
        if request.stream:
            body["stream"] = True
            if profile.stream_usage:
                body["stream_options"] = {"include_usage": True}
        if request.tools:
            self._put_tools(body, request.tools, request.tool_choice)
        if output is not None and profile.schemas != "text":
            body["response_format"] = self._format(output)
        self._settings(body, request.settings, max_tokens, with_tools=bool(request.tools))
        return encode_json(body)

    def _put_tools(self, body: dict[str, object], tools: tuple[ToolSpec, ...], choice: ToolChoice | None) -> None:
        profile, mode = self._profile, choice.mode if choice is not None else None
        if "tool_choice" in profile.rejects and mode is not None:
            if mode == "none":
                return
            if mode != "auto":
                self.changes.append(
                    Adjustment("setting", "tool_choice", f"{profile.name} cannot be made to call a tool")
                )
            mode = None if mode != "tool" else mode
        if choice is None or mode is None:
            body["tools"] = self._tool_list(tools)
        elif mode != "tool":
            body["tools"], body["tool_choice"] = self._tool_list(tools), mode
        elif profile.named_tool:
            body["tools"] = self._tool_list(tools)
            body["tool_choice"] = {"type": "function", "function": {"name": wire_name(choice.name)}}
        else:
            body["tools"] = [self._tool(tool) for tool in tools if tool.name == choice.name]
            if "tool_choice" not in profile.rejects:
                body["tool_choice"] = "required"

    def _settings(
        self, body: dict[str, object], settings: ModelSettings, max_tokens: int | None, *, with_tools: bool
    ) -> None:
        effort = settings.reasoning_effort
        if effort == "none" and self._profile.thinking_switch:
            body["thinking"], effort = {"type": "disabled"}, None
        given: dict[str, object] = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            self._profile.max_tokens_field: max_tokens,
            "stop": list(settings.stop) or None,
            "seed": settings.seed,
            "reasoning_effort": effort,
            "parallel_tool_calls": settings.parallel_tool_calls if with_tools else None,
            "service_tier": settings.service_tier,
            "metadata": settings.metadata,
        }
        self._put(body, given)
        for name, other in self._profile.renames:
            if name in body:
                body[other] = body.pop(name)
        if settings.extra:
            self._merge(body, settings.extra)

    def _tool(self, tool: ToolSpec) -> JsonObject:
        function: JsonObject = {
            "name": wire_name(tool.name),
            "description": tool.description,
            "parameters": tool.parameters,
        }
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
            return encode_json({"role": "user", "content": written_content(message.content, self._profile)})
        if isinstance(message, ToolMessage):
            call_id = wire_id(message.call_id, self._profile.call_ids)
            return encode_json({"role": "tool", "tool_call_id": call_id, "content": written_result(message.content)})
        return encode_json(self._assistant(message))

    def _assistant(self, message: AssistantMessage) -> JsonObject:
        own = self.replay.own(message)
        echo = self._profile.echo
        written: JsonObject = {"role": "assistant", "content": message.content}
        if echo == "details" and own:
            written["reasoning_details"] = own[0].data
        if not message.tool_calls:
            return written
        if not message.content:
            if self._profile.null_content == "null":
                written["content"] = None
            elif self._profile.null_content == "omit":
                del written["content"]
        if echo == "content":
            written["reasoning_content"] = own[0].data if own else ""
        calls = [self._call(call) for call in message.tool_calls]
        if echo == "signatures":
            sign_calls(calls, own[0].data if own else None)
        written["tool_calls"] = list[JsonValue](calls)
        return written

    def _call(self, call: ToolCall) -> JsonObject:
        return {
            "id": wire_id(call.id, self._profile.call_ids),
            "type": "function",
            "function": {"name": wire_name(call.name), "arguments": whole_arguments(call.arguments)},
        }


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
