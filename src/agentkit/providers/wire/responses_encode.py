"""Writes requests of the Responses protocol; what was written once for a message is not written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Raw

from agentkit.core.contracts import (
    AssistantMessage,
    ChatRequest,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    text_of,
)
from agentkit.providers.history import wire_id
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import data_url, encode_json, whole_arguments
from agentkit.providers.wire.responses_items import ITEMS_KIND
from agentkit.providers.wire.schemas import OutputShape, ToolShape
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["ResponsesWriter"]

_ENCRYPTED: Final = "reasoning.encrypted_content"
_NO_REASONING: Final = ("gpt-3.5", "gpt-4", "chatgpt-4", "ft:gpt-4", "ft:gpt-3.5")


class ResponsesWriter(BodyWriter):
    """Writes bodies for one model of one server.

    Nothing is stored by the server: each body holds the whole conversation as input items, and where the model may
    reason it asks for the reasoning in a form that can be sent back. `store` and `include` in settings.extra change
    that; items then still go back, which a server that keeps them takes as the same ones.
    """

    __slots__ = ("_may_reason",)

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, ITEMS_KIND)
        self._may_reason = (
            not (model.startswith(_NO_REASONING) or "-chat" in model) and "include" not in profile.rejects
        )

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; leading system messages become the instructions, later ones stay in their place."""
        system: list[str] = []
        for message in messages:
            if not isinstance(message, SystemMessage):
                break
            system.append(message.content)
        if len(system) == len(messages):  # a conversation of instructions alone still needs an input
            system = []
        body: dict[str, object] = {"model": self._model, "input": self._input(messages[len(system) :])}
        shape, written_format = (None, None) if request.output is None else self._output(request.output)
        if shape is not None and shape.instruction is not None:
            system.append(shape.instruction.content)
        if any(system):
            body["instructions"] = "\n\n".join(filter(None, system))
        if request.stream:
            body["stream"] = True
        if request.tools:
            body["tools"] = self._tool_list(request.tools)
            if request.tool_choice is not None:
                mode, name = request.tool_choice.mode, request.tool_choice.name
                body["tool_choice"] = {"type": "function", "name": wire_name(name)} if mode == "tool" else mode
        self._settings(body, request, max_tokens, written_format)
        return encode_json(body)

    def _settings(
        self, body: dict[str, object], request: ChatRequest, max_tokens: int | None, written_format: Raw | None
    ) -> None:
        settings = request.settings
        effort, rejects = settings.reasoning_effort, self._profile.rejects
        unknown = ["stop"] if settings.stop else []
        if settings.seed is not None:
            unknown.append("seed")
        if effort is not None and not rejects.isdisjoint(("reasoning", "reasoning_effort")):
            unknown.append("reasoning_effort")
            effort = None
        if "store" not in rejects:
            body["store"] = False
        if self._may_reason and effort != "none":
            body["include"] = [_ENCRYPTED]
        given: dict[str, object] = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_output_tokens": max_tokens,
            "reasoning": None if effort is None else {"effort": effort},
            **({} if written_format is None else self._placed(written_format)),
            "parallel_tool_calls": settings.parallel_tool_calls if request.tools else None,
            "service_tier": settings.service_tier,
            "metadata": settings.metadata,
        }
        self._put(body, given, unknown)
        if settings.extra:
            self._merge(body, settings.extra)

    def _tool(self, tool: ToolSpec, shape: ToolShape) -> JsonObject:
        return {
            "type": "function",
            "name": wire_name(tool.name),
            "description": tool.description,
            "parameters": shape.parameters,
            "strict": shape.strict is True,
        }

    def _placed(self, written: Raw) -> dict[str, object]:
        return {"response_format": written} if self._profile.chat_format else {"text": {"format": written}}

    def _format(self, shape: OutputShape) -> JsonObject | None:
        if shape.schema is None:
            return {"type": "json_object"} if self._profile.schemas == "prompt" else None
        schema: JsonObject = {"name": shape.name, "schema": shape.schema}
        if shape.strict is not None:
            schema["strict"] = shape.strict
        return {"type": "json_schema", **({"json_schema": schema} if self._profile.chat_format else schema)}

    def _input(self, messages: Sequence[Message]) -> Raw:
        kept = self._memo
        written: list[bytes] = []
        for message in messages:
            items = kept.get(message)
            if items is None:
                items = kept.put(message, b",".join(encode_json(item) for item in self._items(message)))
            if items:
                written.append(items)
        return Raw(b"[" + b",".join(written) + b"]")

    def _items(self, message: Message) -> Iterator[JsonObject]:
        if isinstance(message, AssistantMessage):
            yield from self._assistant(message)
        elif isinstance(message, ToolMessage):
            yield {
                "type": "function_call_output",
                "call_id": wire_id(message.call_id, self._profile.call_ids),
                "output": _result(message.content),
            }
        elif isinstance(message, UserMessage):
            content = message.content
            parts: JsonValue = content if isinstance(content, str) else [_part(part) for part in content]
            yield {"role": "user", "content": parts}
        else:
            yield {"role": "system", "content": message.content}

    def _assistant(self, message: AssistantMessage) -> Iterator[JsonObject]:
        for item in self.replay.own(message):
            if isinstance(item.data, list):
                yield from self._replayed(message, item.data)
                return
        if message.content:
            yield self._said(message.content)
        for index in range(len(message.tool_calls)):
            yield self._call(message, index)

    def _replayed(self, message: AssistantMessage, layout: list[JsonValue]) -> Iterator[JsonObject]:
        """Yield the owner's own items in their order, with the text and calls the message has now."""
        items = [dict(item) for item in layout if isinstance(item, dict)]
        said = [item for item in items if item.get("type") == "message"]
        lengths = [length for item in said if isinstance(length := item.get("length"), int)]
        unchanged = sum(lengths) == len(message.content)
        start, called = 0, 0
        if message.content and not lengths:
            yield self._said(message.content)
        for item in items:
            kind = item.get("type")
            if kind == "message":
                length = item.pop("length", 0)
                end = start + length if unchanged and isinstance(length, int) else len(message.content)
                if text := message.content[start:end]:
                    yield {**self._said(text), **item}
                start = end
            elif kind == "function_call":
                if called < len(message.tool_calls):
                    item.pop("index", None)
                    yield {**item, **self._call(message, called)}
                    called += 1
            elif kind != "reasoning":
                yield item
            elif item.get("encrypted_content") or item.get("content"):  # without either it names what was not kept
                yield {"summary": [], **item}
        for index in range(called, len(message.tool_calls)):
            yield self._call(message, index)

    def _said(self, text: str) -> JsonObject:
        return {"type": "message", "role": "assistant", "content": text}

    def _call(self, message: AssistantMessage, index: int) -> JsonObject:
        call = message.tool_calls[index]
        return {
            "type": "function_call",
            "call_id": wire_id(call.id, self._profile.call_ids),
            "name": wire_name(call.name),
            "arguments": whole_arguments(call.arguments),
        }


def _part(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ImagePart):
        url = part.url or data_url(part.data, part.media_type or "image/png")
        return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
    if part.file_id:
        return {"type": "input_file", "file_id": part.file_id}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    data = data_url(part.data, part.media_type or "application/octet-stream")
    return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def _result(content: str | tuple[Part, ...]) -> JsonValue:
    """Return a result as text where it is text, which every server takes, else as parts."""
    if isinstance(content, str) or all(isinstance(part, TextPart) for part in content):
        return text_of(content)
    return [_part(part) for part in content]
