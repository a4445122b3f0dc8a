"""What a request needs of a model, held against what is known of it before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.core.contracts import (
    UNKNOWN_CAPABILITIES,
    Capabilities,
    ChatRequest,
    FilePart,
    ImagePart,
    Message,
    Route,
    TextPart,
    UserMessage,
)
from agentkit.errors import CapabilityMissing

__all__ = ["least_tokens", "missing_capability"]

_LONGEST_TOKEN = 128  # characters, such as a run of blanks; no common vocabulary has longer ones


def missing_capability(route: Route, request: ChatRequest) -> CapabilityMissing | None:
    """Return the error for the first thing the request needs and the route's model is known to lack, None for none.

    An output schema is never missing: where a model enforces none, the schema goes into the prompt.
    """
    known = route.capabilities
    if known is UNKNOWN_CAPABILITIES:
        return None
    found = _tools(known, request) or _effort(known, request)
    if found is None and (known.vision is False or known.files is False):
        found = _parts(known, request.messages)
    if found is None:
        return None
    capability, what = found
    name = f"{route.provider}:{route.model}"
    return CapabilityMissing(f"{name} {what}", capability=capability, model=route.model, provider=route.provider)


def least_tokens(messages: Sequence[Message]) -> int:
    """Return a number of tokens that the texts of these messages have at the very least, whatever the tokenizer.

    A word is a token or more, and no token is longer than 128 characters; images and files count nothing.
    """
    return sum(_least(text) for message in messages for text in _texts(message))


def _least(text: str) -> int:
    return max(len(text.split()), len(text) // _LONGEST_TOKEN)


def _texts(message: Message) -> list[str]:
    content = message.content
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
    return texts + [call.arguments for call in getattr(message, "tool_calls", ())]


def _tools(known: Capabilities, request: ChatRequest) -> tuple[str, str] | None:
    choice = request.tool_choice
    if request.tools and known.tools is False and (choice is None or choice.mode != "none"):
        return "tools", (
            "cannot call tools, and this request has some. Use a model that can, or, where it enforces JSON schemas, "
            "bind it with profile='NAME+schema', which makes tool calls through one."
        )
    if choice is not None and choice.mode in ("required", "tool") and known.required_tools is False:
        return "required_tools", (
            f"cannot be held to a tool call, which tool_choice={choice.mode!r} asks for. Leave the choice to the model "
            "(mode 'auto') or use another model."
        )
    if request.tools and request.settings.parallel_tool_calls and known.parallel_tools is False:
        return "parallel_tools", (
            "makes one tool call at a time, and parallel_tool_calls=True asks for more. Leave that setting out or use "
            "another model."
        )
    return None


def _effort(known: Capabilities, request: ChatRequest) -> tuple[str, str] | None:
    effort, efforts = request.settings.reasoning_effort, known.reasoning_efforts
    if effort is None or efforts is None or effort in efforts:
        return None
    takes = f"takes {', '.join(map(repr, efforts))}" if efforts else "takes no reasoning effort; leave it out"
    return "reasoning_efforts", f"does not take reasoning_effort={effort!r}; it {takes}."


def _parts(known: Capabilities, messages: tuple[Message, ...]) -> tuple[str, str] | None:
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage) or isinstance(message.content, str):
            continue
        for part in message.content:
            if isinstance(part, ImagePart) and known.vision is False:
                return "vision", f"reads no images, and messages[{index}] holds one. Use a model with vision."
            if isinstance(part, FilePart) and known.files is False:
                return "files", (
                    f"reads no files, and messages[{index}] holds one. Pass its text, or use a model that reads files."
                )
    return None
