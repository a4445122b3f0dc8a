"""What is asked of a model."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from agentkit.core.contracts.messages import JsonObject, JsonValue, Message
from agentkit.errors import ConfigurationError

__all__ = ["ChatRequest", "ModelSettings", "OutputSpec", "ReasoningEffort", "ToolChoice", "ToolSpec", "WireProtocol"]

WireProtocol: TypeAlias = Literal["chat", "responses", "messages"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ToolSpec(Struct, frozen=True, weakref=True):
    """A tool as a model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool | None = None


class OutputSpec(Struct, frozen=True, weakref=True):
    """The JSON Schema an answer has to fit; `strict` None lets the provider's profile decide."""

    name: str
    schema: JsonObject
    strict: bool | None = None


class ToolChoice(Struct, frozen=True):
    """Whether and which tool the model has to call; `name` only with mode "tool"."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str = ""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """Knobs of a call; None leaves the provider's default. Raises ConfigurationError for a value that means nothing.

    `max_tokens` caps the output including reasoning; `prompt_cache` asks for the conversation to be cached for so long
    where that has to be asked for; `replay` says what happens to a provider's own items in a conversation that goes to
    another server or model: "drop" (the default) leaves them out and says so in the answer's adjustments, "refuse"
    raises; `extra` is merged into the wire body last, for what has no common name: its `tools`, such as those that
    a server runs itself, are added to the request's, an object joins the object of its name unless it has a type of its
    own, anything else takes the place of what is there.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: ReasoningEffort | None = None
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    prompt_cache: Literal["5m", "1h"] | None = None
    replay: Literal["drop", "refuse"] | None = None
    metadata: dict[str, str] | None = None
    extra: dict[str, JsonValue] | None = None

    def __post_init__(self) -> None:
        tokens = self.max_tokens
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
            raise ConfigurationError(f"ModelSettings(max_tokens={tokens!r}): pass a whole number of at least 1.")
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
                raise ConfigurationError(f"ModelSettings({name}={value!r}): pass a number from 0 on.")
        for name, known in (("prompt_cache", ("5m", "1h")), ("replay", ("drop", "refuse"))):
            value = getattr(self, name)
            if value not in (None, *known):
                raise ConfigurationError(f"ModelSettings({name}={value!r}): pass {known[0]!r} or {known[1]!r}.")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigurationError(f"ModelSettings(stop={self.stop!r}): pass a tuple of texts, such as ('END',).")

    def over(self, base: ModelSettings | None) -> ModelSettings:
        """Return these settings with the gaps filled from `base`."""
        if base is None:
            return self
        fields = {
            name: mine if (mine := getattr(self, name)) not in (None, ()) else getattr(base, name)
            for name in self.__struct_fields__
        }
        return ModelSettings(**fields)


class ChatRequest(Struct, frozen=True):
    """One request to a model: the conversation, what it may call, the shape of the answer, the knobs.

    `stream` asks the wire for a stream; events are the same either way.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    output: OutputSpec | None = None
    settings: ModelSettings = ModelSettings()
    stream: bool = True
