"""The one JSON Schema that holds every tool call and the answer, for models that only know structured output."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.core.contracts import ChatRequest, JsonObject, JsonValue, OutputSpec, ToolSpec
from agentkit.errors import ConfigurationError
from agentkit.schema import Definitions

__all__ = ["allowed_tools", "build_envelope", "describe_tools"]


def allowed_tools(request: ChatRequest) -> tuple[tuple[ToolSpec, ...], bool]:
    """Return the tools this request lets the model call, and whether it may answer instead.

    Raises ConfigurationError when the tool choice names a tool that is not among the request's.
    """
    choice = request.tool_choice
    if choice is None or choice.mode == "auto":
        return request.tools, True
    if choice.mode == "required":
        return request.tools, False
    if choice.mode == "none":
        return (), True
    named = tuple(tool for tool in request.tools if tool.name == choice.name)
    if not named:
        names = ", ".join(tool.name for tool in request.tools)
        raise ConfigurationError(f"tool_choice names {choice.name!r}, which is not a tool of this request: {names}")
    return named, False


def build_envelope(tools: Sequence[ToolSpec], output: OutputSpec | None, *, may_answer: bool) -> OutputSpec:
    """Return the output every reply has to fit: one call of one tool or, if it may, the answer.

    References inside the tools' and the output's schemas keep pointing at what they pointed at.
    """
    common = Definitions()
    branches: list[JsonValue] = []
    for tool in tools:
        name: JsonObject = {"const": tool.name}
        branches.append(_exactly({"tool": name, "arguments": common.move(tool.parameters, f"tool {tool.name!r}")}))
    if may_answer:
        text: JsonObject = {"type": "string"}
        branches.append(_exactly({"answer": common.move(output.schema, "the output") if output else text}))
    schema: JsonObject = {"oneOf": branches} if len(branches) > 1 else _only(branches)
    if common.defs:
        schema = {**schema, "$defs": common.defs}
    return OutputSpec(name="reply", schema=schema)


def describe_tools(tools: Sequence[ToolSpec], *, may_answer: bool, typed: bool) -> str:
    """Return the short instruction that tells a small model its tools and the form of a reply."""
    lines = ["You have these tools:"]
    lines += [f"- {tool.name}({_signature(tool.parameters)}): {tool.description}".rstrip(": ") for tool in tools]
    lines.append('To call a tool, reply with JSON: {"tool": "name", "arguments": {...}}')
    if may_answer:
        answer = "{...}" if typed else '"..."'
        lines.append(f'When you know the answer, reply with JSON: {{"answer": {answer}}}')
    return "\n".join(lines)


def _signature(parameters: JsonObject) -> str:
    properties, required = parameters.get("properties"), parameters.get("required")
    if not isinstance(properties, dict):
        return ""
    must = required if isinstance(required, list) else []
    return ", ".join(f"{name}{'' if name in must else '?'}: {_kind(prop)}" for name, prop in properties.items())


def _kind(prop: JsonValue) -> str:
    if not isinstance(prop, dict):
        return "any"
    values, kind, about = prop.get("enum"), prop.get("type"), prop.get("description")
    text = "|".join(str(value) for value in values) if isinstance(values, list) else str(kind or "object")
    return f"{text} ({about})" if about else text


def _exactly(properties: JsonObject) -> JsonObject:
    required: list[JsonValue] = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _only(branches: list[JsonValue]) -> JsonObject:
    (branch,) = branches
    assert isinstance(branch, dict)
    return branch
