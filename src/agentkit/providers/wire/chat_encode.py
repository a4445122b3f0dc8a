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
from agentkit.providers.wire.schemas import OutputShape, ToolShape
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["ChatWriter"]


class ChatWriter(BodyWriter):
    """Writes bodies for one model of one server."""

    __slots__ = ()

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, ECHO_KINDS[profile.echo])

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; `messages` are those of the request after the history guard."""
        profile, output = self._profile, request.output
        shape, response_format = (None, None) if output is None else self._output(output)
        if shape is not None and shape.instruction is not None:
            messages = (shape.instruction, *messages)
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
        if response_format is not None:
            body["response_format"] = response_format
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
            body["tools"] = [self._tool(tool, self._shape(tool)) for tool in tools if tool.name == choice.name]
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

    def _tool(self, tool: ToolSpec, shape: ToolShape) -> JsonObject:
        function: JsonObject = {
            "name": wire_name(tool.name),
            "description": tool.description,
            "parameters": shape.parameters,
        }
        if shape.strict is not None:
            function["strict"] = shape.strict
        return {"type": "function", "function": function}

    def _format(self, shape: OutputShape) -> JsonObject | None:
        if shape.schema is None:
            return {"type": "json_object"} if self._profile.schemas == "prompt" else None
        schema: JsonObject = {"name": shape.name, "schema": shape.schema}
        if shape.strict is not None:
            schema["strict"] = shape.strict
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
