"""From what a user passes to what a run needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct

from agentkit.calls.binding import Binding
from agentkit.cognition import Cognition, Job, ReAct, SingleCall, execute
from agentkit.core.contracts import (
    AgentResult,
    AssistantMessage,
    ComposedPrompt,
    EventSink,
    FilePart,
    ImagePart,
    Message,
    ModelSettings,
    Prompt,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolPort,
    UserMessage,
    clean_text,
)
from agentkit.core.contracts.history import clean_message
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import DeadlineLike
from agentkit.core.runtime.identity import new_id
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import ConfigurationError
from agentkit.schema import OutputType, output_type
from agentkit.tools import Toolbox

__all__ = ["Tools", "Work", "ask_work", "job_for", "new_run_id", "opening", "placed", "run_work"]

Tools = Sequence[ToolPort | Callable[..., object]]

_PARTS = (TextPart, ImagePart, FilePart)
_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


def new_run_id() -> str:
    """Return a run id that no other process makes up."""
    return f"run-{new_id()}"


def placed(ctx: RunContext, budget: Budget | None, deadline: DeadlineLike, sink: EventSink | None) -> RunContext:
    """Return the context under the call's own limits; a budget that applies already is not charged twice."""
    further = None if any(each is budget for each in ctx.all_meters) else budget
    return ctx.limited(budget=further, deadline=deadline, sink=sink)


def opening(prompt: Prompt) -> tuple[Message, ...]:
    """Return the prompt as messages, with NULs and lone surrogates replaced.

    Raises ConfigurationError for an empty prompt, or one that is none.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigurationError("prompt is empty; pass the question, or a sequence of messages.")
        return (UserMessage(clean_text(prompt)),)
    if isinstance(prompt, ComposedPrompt):
        if not prompt.user or (isinstance(prompt.user, str) and not prompt.user.strip()):
            raise ConfigurationError("prompt.user is empty; pass the question.")
        system = (SystemMessage(clean_text(prompt.system)),) if prompt.system else ()
        return (*system, clean_message(UserMessage(prompt.user)))
    if not isinstance(prompt, Sequence):
        raise ConfigurationError(f"prompt={prompt!r}: pass a str, a ComposedPrompt or a sequence of messages.")
    messages: tuple[Message, ...] = tuple(cast("Sequence[Message]", prompt))
    if not messages:
        raise ConfigurationError("prompt is an empty sequence; pass at least one message.")
    for index, message in enumerate(messages):
        if not isinstance(message, _MESSAGES):
            raise ConfigurationError(f"prompt[{index}]={message!r}: pass messages such as UserMessage('...').")
        content: object = message.content
        if not isinstance(content, str) and not _are_parts(content):
            raise ConfigurationError(f"prompt[{index}].content={content!r}: pass text, or a tuple of parts.")
    return tuple(clean_message(message) for message in messages)


def _are_parts(content: object) -> bool:
    return isinstance(content, tuple) and all(isinstance(part, _PARTS) for part in content)


def job_for(
    ctx: RunContext,
    binding: Binding,
    *,
    name: str,
    instructions: str,
    toolbox: Toolbox,
    output: object,
    settings: ModelSettings | None,
    corrections: int = 1,
) -> Job:
    """Return the prepared job; raises ConfigurationError for a binding or output that leads nowhere."""
    models = ctx.services.models
    if models is None:
        raise ConfigurationError("The context's services have no models; make it with CallRuntime.context(...).")
    route = models.route(binding)
    shape: OutputType[object] | None = None if output is None or output is str else output_type(output)
    merged = binding.settings if settings is None else settings.over(binding.settings)
    return Job(name, route, instructions, toolbox, shape, merged or _NO_SETTINGS, corrections)


class Work(Struct, frozen=True):
    """One call of a user, not yet bound to a place to run in."""

    cognition: Cognition
    binding: Binding
    messages: tuple[Message, ...]
    toolbox: Toolbox
    output: object
    instructions: str | None
    settings: ModelSettings | None

    async def perform(self, ctx: RunContext) -> AgentResult[object]:
        """Do it in this context's place."""
        job = job_for(
            ctx,
            self.binding,
            name=self.cognition.name,
            instructions=self.instructions or "",
            toolbox=self.toolbox,
            output=self.output,
            settings=self.settings,
        )
        return await execute(job, self.cognition, self.messages, ctx, durable=False)


def ask_work(
    binding: Binding, prompt: Prompt, output: object, instructions: str | None, settings: ModelSettings | None
) -> Work:
    """Return the work of `ask`."""
    return Work(_SINGLE_CALL, binding, opening(prompt), _NO_TOOLS, output, instructions, settings)


def run_work(
    binding: Binding,
    prompt: Prompt,
    tools: Tools | None,
    output: object,
    instructions: str | None,
    settings: ModelSettings | None,
    max_turns: int,
) -> Work:
    """Return the work of `run`."""
    toolbox = _NO_TOOLS if tools is None else Toolbox(tools)
    return Work(ReAct(max_turns=max_turns), binding, opening(prompt), toolbox, output, instructions, settings)


_SINGLE_CALL = SingleCall()
_NO_TOOLS = Toolbox(())
_NO_SETTINGS = ModelSettings()
