"""Tool calls for models that have none: made through an enforced JSON schema, around any model port."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    LLMPort,
    Message,
    OutputSpec,
    Part,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
    text_of,
)
from agentkit.errors import StreamBroken
from agentkit.providers.schema_envelope import allowed_tools, build_envelope, describe_tools
from agentkit.providers.schema_reply import ReplyReader

__all__ = ["SchemaTools", "with_schema_tools"]

_SHORT = 500  # characters of a question that is worth repeating after a tool's result


class _Form(Struct, frozen=True):
    """What one set of tools, choice and output asks of the model; kept while a conversation repeats it."""

    tools: tuple[ToolSpec, ...]
    choice: ToolChoice | None
    output: OutputSpec | None
    envelope: OutputSpec | None
    instruction: str

    def fits(self, request: ChatRequest) -> bool:
        same = self.tools is request.tools and self.output is request.output
        return same and self.choice == request.tool_choice


class SchemaTools:
    """A model port that calls tools by filling a JSON schema, over an inner port that enforces one.

    A request's tools become a short instruction and one output schema with a branch per tool and, unless a call is
    required, a branch for the answer; the reply becomes the same events as a native call's. Earlier calls and
    results are told to the model as plain turns. Usage is the inner port's. A call cut off by the token limit ends
    up in the message with its broken arguments, without `ToolCallReady`. Raises ConfigurationError for a tool
    choice or a schema reference that points nowhere; closes nothing but what it opened: `aclose` passes on.
    """

    def __init__(self, inner: LLMPort) -> None:
        self.inner = inner
        self._form: _Form | None = None

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of one call; a conversation without tools goes to the inner port as it is."""
        request = call.request
        if not request.tools and not any(_is_about_tools(message) for message in request.messages):
            return self.inner.stream(call)
        form = self._form
        if form is None or not form.fits(request):
            self._form = form = _form(request)
        if form.envelope is None:
            return self.inner.stream(replace(call, request=_plain(request)))
        return self._decoded(replace(call, request=_formed(request, form)), form, _next_id(request.messages))

    async def aclose(self) -> None:
        """Close the inner port when it can be closed."""
        close = getattr(self.inner, "aclose", None)
        if close is not None:
            await close()

    async def _decoded(self, call: Call[ChatRequest], form: _Form, call_id: str) -> AsyncGenerator[ChatEvent, None]:
        reader = ReplyReader(typed=form.output is not None)
        async with aclosing(self.inner.stream(call)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    if text := reader.feed(event.text):
                        yield TextDelta(text)
                elif isinstance(event, ChatEnd):
                    for last in _ending(reader, event.response, call_id):
                        yield last
                    return
                else:
                    yield event
        raise StreamBroken("the model's stream ended without its last event")


def with_schema_tools(port: LLMPort) -> SchemaTools:
    """Return the port with tool calls made through an enforced schema; a wrapped port is returned as it is."""
    return port if isinstance(port, SchemaTools) else SchemaTools(port)


def _form(request: ChatRequest) -> _Form:
    tools, may_answer = allowed_tools(request)
    envelope, instruction = None, ""
    if tools:
        envelope = build_envelope(tools, request.output, may_answer=may_answer)
        instruction = describe_tools(tools, may_answer=may_answer, typed=request.output is not None)
    return _Form(request.tools, request.tool_choice, request.output, envelope, instruction)


def _plain(request: ChatRequest) -> ChatRequest:
    """Return the request for an answer in prose: with calls shown as JSON, a small model would go on calling."""
    messages: list[Message] = []
    for message in _told(request.messages, show_calls=False):
        last = messages[-1] if messages else None
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            messages[-1] = UserMessage(_joined(last.content, message.content))
        else:
            messages.append(message)
    return replace(request, messages=tuple(messages), tools=(), tool_choice=None)


def _formed(request: ChatRequest, form: _Form) -> ChatRequest:
    messages = list(_told(request.messages, show_calls=True))
    first = messages[0] if messages else None
    if isinstance(first, SystemMessage):
        messages[0] = SystemMessage(f"{first.content}\n\n{form.instruction}")
    else:
        messages.insert(0, SystemMessage(form.instruction))
    return replace(request, messages=tuple(messages), tools=(), tool_choice=None, output=form.envelope)


def _is_about_tools(message: Message) -> bool:
    return isinstance(message, ToolMessage) or (isinstance(message, AssistantMessage) and bool(message.tool_calls))


def _told(messages: Sequence[Message], *, show_calls: bool) -> Iterator[Message]:
    """Yield the conversation with calls and results as plain turns; results that follow each other are one turn."""
    calls: dict[str, ToolCall] = {}
    results: list[ToolMessage] = []
    question = ""
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message)
            continue
        if results:
            yield _result_turn(results, calls, "")
            results = []
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls.update((call.id, call) for call in message.tool_calls)
            shown = map(_as_reply, message.tool_calls) if show_calls else ()
            if text := "\n".join(filter(None, [message.content, *shown])):
                yield AssistantMessage(text, opaque=message.opaque)
        else:
            question = text_of(message.content) if isinstance(message, UserMessage) else question
            yield message
    if results:
        reminder = f"Now answer my question: {question}" if show_calls and len(question) < _SHORT else ""
        yield _result_turn(results, calls, reminder)


def _as_reply(call: ToolCall) -> str:
    return f'{{"tool": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'


def _result_turn(results: Sequence[ToolMessage], calls: dict[str, ToolCall], reminder: str) -> UserMessage:
    content: str | tuple[Part, ...] = ""
    for result in results:
        call = calls.get(result.call_id)
        name = f"{call.name}({call.arguments})" if call else result.name or "the tool"
        verb = "failed" if result.is_error else "returned"
        told = f"{name} {verb}: {text_of(result.content)}"
        rest = () if isinstance(result.content, str) else result.content
        content = _joined(content, told)
        if others := tuple(part for part in rest if not isinstance(part, TextPart)):
            content = _joined(content, others)
    return UserMessage(_joined(content, reminder))


def _joined(left: str | tuple[Part, ...], right: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(left, str) and isinstance(right, str):
        return f"{left}\n{right}" if left and right else left or right
    return _parts(left) + _parts(right)


def _parts(content: str | tuple[Part, ...]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content


def _next_id(messages: Sequence[Message]) -> str:
    taken = {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}
    number = len(taken) + 1
    while f"call_{number}" in taken:
        number += 1
    return f"call_{number}"


def _ending(reader: ReplyReader, response: ChatResponse, call_id: str) -> Iterator[ChatEvent]:
    reply, rest = reader.finish()
    if rest:
        yield TextDelta(rest)
    message = replace(response.message, content=reply.text)
    stop_reason = response.stop_reason
    if reply.tool:
        call = ToolCall(call_id, reply.tool, reply.arguments)
        message = replace(message, tool_calls=(call,))
        yield ToolCallDelta(0, call.id, call.name, call.arguments)
        if reply.complete:
            stop_reason = "tool_calls"
            yield ToolCallReady(0, call)
    yield ChatEnd(replace(response, message=message, stop_reason=stop_reason))
