"""Writes requests of the Messages protocol; what was written once for a message is not written again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Raw

from agentkit.core.contracts import (
    AssistantMessage,
    ChatRequest,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    ModelSettings,
    Part,
    SystemMessage,
    TextPart,
    ToolChoice,
    ToolMessage,
    ToolSpec,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.history import wire_id
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.clean import encode_json, whole_arguments
from agentkit.providers.wire.messages_decode import BLOCKS_KIND
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["MessagesWriter"]

_Role: TypeAlias = Literal["user", "assistant"]
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class MessagesWriter(BodyWriter):
    """Writes bodies for one model of one server.

    Each message is kept as its content blocks; neighbours of one role share a message on the wire, so that all
    results of a turn stand together and first.
    """

    __slots__ = ()

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, BLOCKS_KIND)

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; leading system messages become the system text, later ones stay in their place."""
        system: list[str] = []
        start = 0
        while start < len(messages) and isinstance(first := messages[start], SystemMessage):
            system.append(first.content)
            start += 1
        turns = self._turns(messages[start:])
        if not turns:
            raise ConfigurationError("The conversation holds no user message with content; this server needs one.")
        body: dict[str, object] = {"model": self._model, "max_tokens": max_tokens, "messages": turns}
        if any(system):
            body["system"] = "\n\n".join(filter(None, system))
        if request.stream:
            body["stream"] = True
        if request.tools:
            body["tools"] = self._tool_list(request.tools)
            choice = _choice(request.tool_choice, request.settings.parallel_tool_calls)
            if choice is not None:
                body["tool_choice"] = choice
        self._settings(body, request)
        return encode_json(body)

    def _settings(self, body: dict[str, object], request: ChatRequest) -> None:
        settings = request.settings
        output: JsonObject = {}
        if request.output is not None:
            output["format"] = {"type": "json_schema", "schema": request.output.schema}
        if settings.reasoning_effort == "none":
            body["thinking"] = {"type": "disabled"}
        elif settings.reasoning_effort is not None:
            body["thinking"] = {"type": "adaptive"}
            output["effort"] = "low" if settings.reasoning_effort == "minimal" else settings.reasoning_effort
        user = (settings.metadata or {}).get("user_id")
        given: dict[str, object] = {
            "output_config": output or None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop_sequences": list(settings.stop) or None,
            "service_tier": settings.service_tier,
            "metadata": {"user_id": user} if user else None,
        }
        self._put(body, given, _unknown(settings))
        if settings.extra:
            body.update(settings.extra)

    def _tool(self, tool: ToolSpec) -> JsonObject:
        written: JsonObject = {
            "name": wire_name(tool.name),
            "description": tool.description,
            "input_schema": tool.parameters,
        }
        if tool.strict is not None and self._profile.strict_tools:
            written["strict"] = tool.strict
        return written

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, object]]:
        turns: list[dict[str, object]] = []
        role: _Role | None = None
        blocks: list[bytes] = []
        kept = self._memo
        for message in messages:
            written = kept.get(message)
            if written is None:
                written = kept.put(message, b",".join(encode_json(block) for block in self._content(message)))
            if not written:
                continue
            now: _Role = "assistant" if isinstance(message, AssistantMessage) else "user"
            if now != role and blocks:
                turns.append({"role": role, "content": Raw(b"[" + b",".join(blocks) + b"]")})
                blocks = []
            role = now
            blocks.append(written)
        if blocks:
            turns.append({"role": role, "content": Raw(b"[" + b",".join(blocks) + b"]")})
        return turns

    def _content(self, message: Message) -> Iterator[object]:
        """Yield the blocks of a message; empty text, which the server refuses, gives none."""
        if isinstance(message, AssistantMessage):
            yield from self._assistant(message)
        elif isinstance(message, ToolMessage):
            result: JsonObject = {
                "type": "tool_result",
                "tool_use_id": wire_id(message.call_id, self._profile.call_ids),
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

    def _assistant(self, message: AssistantMessage) -> Iterator[object]:
        for item in self.replay.own(message):
            if isinstance(item.data, list):
                yield from self._replayed(message, item.data)
                return
        if message.content:
            yield {"type": "text", "text": message.content}
        for index in range(len(message.tool_calls)):
            yield self._call(message, index, {})

    def _replayed(self, message: AssistantMessage, layout: list[JsonValue]) -> Iterator[object]:
        """Yield the owner's own blocks in their order, with the text and calls the message has now."""
        items = [dict(item) for item in layout if isinstance(item, dict)]
        texts = [item for item in items if item.get("type") == "text"]
        unchanged = sum(length for item in texts if isinstance(length := item.get("length"), int)) == len(
            message.content
        )
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
                    yield self._call(message, called, item)
                    called += 1
            else:
                yield item
        for index in range(called, len(message.tool_calls)):
            yield self._call(message, index, {})

    def _call(self, message: AssistantMessage, index: int, more: JsonObject) -> dict[str, object]:
        call = message.tool_calls[index]
        return {
            **more,
            "type": "tool_use",
            "id": wire_id(call.id, self._profile.call_ids),
            "name": wire_name(call.name),
            "input": Raw(whole_arguments(call.arguments).encode()),
        }


def _unknown(settings: ModelSettings) -> list[str]:
    """Return the settings asked for that the protocol has no field for."""
    names = [] if settings.seed is None else ["seed"]
    return [*names, "metadata"] if set(settings.metadata or ()) - {"user_id"} else names


def _choice(choice: ToolChoice | None, parallel: bool | None) -> JsonObject | None:
    if choice is None and parallel is not False:
        return None
    mode = "auto" if choice is None else choice.mode
    written: JsonObject = {"type": _CHOICES.get(mode, "tool")}
    if choice is not None and mode == "tool":
        written["name"] = wire_name(choice.name)
    if parallel is False and mode != "none":
        written["disable_parallel_tool_use"] = True
    return written


def _parts(parts: tuple[Part, ...]) -> Iterator[JsonObject]:
    for part in parts:
        if isinstance(part, TextPart):
            if part.text:
                yield {"type": "text", "text": part.text}
        elif isinstance(part, ImagePart):
            yield {"type": "image", "source": _source(part.url, part.data, part.media_type or "image/png")}
        elif part.file_id:
            yield {"type": "document", "source": {"type": "file", "file_id": part.file_id}}
        else:
            document: JsonObject = {
                "type": "document",
                "source": _source(part.url, part.data, part.media_type or "application/pdf"),
            }
            if part.name:
                document["title"] = part.name
            yield document


def _source(url: str, data: bytes, media_type: str) -> JsonObject:
    if url:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
