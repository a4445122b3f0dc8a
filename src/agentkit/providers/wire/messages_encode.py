"""Writes requests of the Messages protocol; what was written once for a message is not written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Raw

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    ChatRequest,
    JsonObject,
    Message,
    ModelSettings,
    SystemMessage,
    ToolChoice,
    ToolMessage,
    ToolSpec,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.names import wire_name
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.claude import claude_of
from agentkit.providers.wire.clean import encode_json
from agentkit.providers.wire.messages_blocks import BLOCKS_KIND, CONTAINER_KIND
from agentkit.providers.wire.messages_content import content_of, holds_server_blocks
from agentkit.providers.wire.messages_thinking import thinking_for
from agentkit.providers.wire.schemas import OutputShape, ToolShape
from agentkit.providers.wire.writing import BodyWriter

__all__ = ["MessagesWriter"]

_Role: TypeAlias = Literal["user", "assistant"]
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_THINKING = ("adaptive", "enabled")


class MessagesWriter(BodyWriter):
    """Writes bodies for one model of one server.

    Each message is kept as its content blocks; neighbours of one role share a message on the wire, so that all
    results of a turn stand together and first. What a Claude model takes is told by its name.
    """

    __slots__ = ("_claude",)

    def __init__(self, profile: Profile, endpoint: str, model: str) -> None:
        super().__init__(profile, endpoint, model, BLOCKS_KIND, CONTAINER_KIND)
        self._claude = claude_of(model)

    def write(self, request: ChatRequest, messages: Sequence[Message], max_tokens: int | None) -> bytes:
        """Return the body; leading system messages become the system text, later ones stay in their place."""
        system: list[str] = []
        start = 0
        while start < len(messages) and isinstance(first := messages[start], SystemMessage):
            system.append(first.content)
            start += 1
        shape, written_format = (None, None) if request.output is None else self._output(request.output)
        if shape is not None and shape.instruction is not None:
            system.append(shape.instruction.content)
        turns = self._turns(messages[start:])
        self._check_order(turns, messages)
        body: dict[str, object] = {"model": self._model, "max_tokens": max_tokens, "messages": turns}
        self._system(body, "\n\n".join(filter(None, system)), request.settings)
        if request.stream:
            body["stream"] = True
        if request.tools:
            body["tools"] = self._tool_list(request.tools)
        self._settings(body, request, max_tokens, written_format)
        if container := self._container(messages):
            body["container"] = container
        if request.settings.extra:
            self._merge(body, request.settings.extra)
        if "tools" in body and "tool_choice" not in body:
            self._choose(body, request.tool_choice, request.settings.parallel_tool_calls)
        return encode_json(body)

    def _system(self, body: dict[str, object], system: str, settings: ModelSettings) -> None:
        """Put the system text into the body, and ask for the cache: of tools and system, and of the whole request."""
        if system:
            body["system"] = system
        if settings.prompt_cache is None:
            return
        control: JsonObject = {"type": "ephemeral", "ttl": settings.prompt_cache}
        reach = self._profile.prompt_cache
        if system and reach:
            body["system"] = [{"type": "text", "text": system, "cache_control": control}]
        if reach == "all":
            body["cache_control"] = control
            return
        why = "only tools and system text are cached here" if reach else "is not asked for by a setting here; left out"
        self.changes.append(Adjustment("setting", "prompt_cache", f"{self._profile.name}: {why}"))

    def _settings(
        self, body: dict[str, object], request: ChatRequest, max_tokens: int | None, written_format: Raw | None
    ) -> None:
        settings = request.settings
        output: dict[str, object] = {}
        if written_format is not None:
            output["format"] = written_format
        thinking: JsonObject | None = None
        if settings.reasoning_effort is not None:
            found = thinking_for(self._claude, settings.reasoning_effort, max_tokens)
            thinking = found.thinking
            if found.effort is not None:
                output["effort"] = found.effort
            self.changes.extend(found.changes)
        user = (settings.metadata or {}).get("user_id")
        given: dict[str, object] = {
            "thinking": thinking,
            "output_config": output or None,
            **self._sampling(settings, thinking),
            "stop_sequences": list(settings.stop) or None,
            "service_tier": settings.service_tier,
            "metadata": {"user_id": user} if user else None,
        }
        self._put(body, given, _unknown(settings))

    def _sampling(self, settings: ModelSettings, thinking: JsonObject | None) -> dict[str, object]:
        given: dict[str, object] = {"temperature": settings.temperature, "top_p": settings.top_p}
        claude = self._claude
        if claude is None:
            return given
        why = "" if claude.samples else "this model does not take it; left out"
        if not why and thinking is not None and thinking["type"] in _THINKING:
            why = "it cannot be set while the model thinks; left out"
        if not why:
            return given
        for name, value in given.items():
            if value is not None and name not in self._profile.rejects:
                self.changes.append(Adjustment("setting", name, why))
        return {name: value if name in self._profile.rejects else None for name, value in given.items()}

    def _choose(self, body: dict[str, object], choice: ToolChoice | None, parallel: bool | None) -> None:
        """Put the choice of a tool into the body; raises ConfigurationError for a forced one that the model refuses."""
        written = _choice(choice, parallel)
        if written is None:
            return
        body["tool_choice"] = written
        if choice is None or choice.mode not in ("required", "tool") or self._claude is None:
            return
        thinking = body.get("thinking")
        if not self._claude.forces_tools:
            raise ConfigurationError(
                f"ToolChoice({choice.mode!r}) is refused by {self._model}, which always thinks; use ToolChoice('auto') "
                "and say in the prompt which tool to call."
            )
        if isinstance(thinking, dict) and thinking.get("type") in _THINKING:
            raise ConfigurationError(
                f"ToolChoice({choice.mode!r}) is refused by {self._model} while it thinks; use ToolChoice('auto'), or "
                "ModelSettings(reasoning_effort='none')."
            )

    def _tool(self, tool: ToolSpec, shape: ToolShape) -> JsonObject:
        written: JsonObject = {
            "name": wire_name(tool.name),
            "description": tool.description,
            "input_schema": shape.parameters,
        }
        if shape.strict is not None:
            written["strict"] = shape.strict
        return written

    def _format(self, shape: OutputShape) -> JsonObject | None:
        return None if shape.schema is None else {"type": "json_schema", "schema": shape.schema}

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, object]]:
        turns: list[dict[str, object]] = []
        role: _Role | None = None
        blocks: list[bytes] = []
        kept = self._memo
        for message in messages:
            written = kept.get(message)
            if written is None:
                written = kept.put(message, self._content(message))
            if not written:
                continue
            now: _Role = "assistant" if isinstance(message, AssistantMessage) else "user"
            if now != role and blocks:
                turns.append({"role": role, "content": Raw(b"[" + b",".join(blocks) + b"]")})
                blocks = []
            role = now
            blocks.append(written)
            if type(message) is SystemMessage:
                why = "this protocol has no system messages between others; sent as the user's"
                self.changes.append(Adjustment("history", "a later system message", why))
        if blocks:
            turns.append({"role": role, "content": Raw(b"[" + b",".join(blocks) + b"]")})
        return turns

    def _content(self, message: Message) -> bytes:
        own = self.replay.own(message) if isinstance(message, AssistantMessage) else ()
        return b",".join(encode_json(block) for block in content_of(message, own, self._profile.call_ids))

    def _check_order(self, turns: list[dict[str, object]], messages: Sequence[Message]) -> None:
        """Raise ConfigurationError for an order of turns that the model refuses."""
        if not turns:
            raise ConfigurationError("The conversation holds no user message with content; this server needs one.")
        claude = self._claude
        if claude is None:
            return
        if turns[0]["role"] == "assistant":
            raise ConfigurationError(
                f"The conversation begins with an assistant message, which {self._model} refuses; begin with a "
                "UserMessage."
            )
        if turns[-1]["role"] == "assistant" and not (claude.prefills or self._goes_on(messages)):
            raise ConfigurationError(
                f"The conversation ends with an assistant message, which {self._model} does not go on with; end with a "
                "UserMessage, and say there how the answer has to begin."
            )

    def _goes_on(self, messages: Sequence[Message]) -> bool:
        """Return whether the last answer is one that the server paused in the middle of its own tools."""
        for message in reversed(messages):
            if not isinstance(message, AssistantMessage):
                return False
            if holds_server_blocks(self.replay.own(message)):
                return True
        return False

    def _container(self, messages: Sequence[Message]) -> str:
        """Return the container in which the server's tools of the turn that goes on here ran, "" for none."""
        answered = False
        for message in reversed(messages):
            if isinstance(message, AssistantMessage):
                answered = True
                for item in self.replay.own(message) if message.opaque else ():
                    if item.kind == CONTAINER_KIND and isinstance(item.data, str):
                        return item.data
            elif answered or not isinstance(message, ToolMessage):
                break
        return ""


def _unknown(settings: ModelSettings) -> list[str]:
    names = ["seed"] if settings.seed is not None else []
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
