"""The one JSON Schema that holds every tool call and the answer, for models that only know structured output."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.core.contracts import ChatRequest, JsonObject, JsonValue, OutputSpec, ToolSpec
from agentkit.errors import ConfigurationError

__all__ = ["allowed_tools", "build_envelope", "describe_tools"]

_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "enum", "default", "examples"})
_HOISTED = frozenset({"$defs", "definitions"})


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
    hoist = _Hoist()
    branches: list[JsonValue] = []
    for tool in tools:
        name: JsonObject = {"const": tool.name}
        branches.append(_exactly({"tool": name, "arguments": hoist.move(tool.parameters, f"tool {tool.name!r}")}))
    if may_answer:
        text: JsonObject = {"type": "string"}
        branches.append(_exactly({"answer": hoist.move(output.schema, "the output") if output else text}))
    schema: JsonObject = {"oneOf": branches} if len(branches) > 1 else _only(branches)
    if hoist.defs:
        schema = {**schema, "$defs": hoist.defs}
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


class _Hoist:
    """Moves what schemas refer to inside themselves under one `$defs`, each under a name of its own."""

    def __init__(self) -> None:
        self.defs: JsonObject = {}
        self._names: dict[tuple[str, str], str] = {}

    def move(self, root: JsonObject, owner: str) -> JsonObject:
        """Return the schema without its definitions, its local references pointing at the common ones."""
        kept = {key: value for key, value in root.items() if key not in _HOISTED}
        moved = self._schema(kept, root, owner)
        assert isinstance(moved, dict)
        return moved

    def _schema(self, node: JsonValue, root: JsonObject, owner: str) -> JsonValue:
        if isinstance(node, list):
            return [self._schema(item, root, owner) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: self._keyword(key, value, root, owner) for key, value in node.items()}

    def _keyword(self, key: str, value: JsonValue, root: JsonObject, owner: str) -> JsonValue:
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            return f"#/$defs/{self._name(value, root, owner)}"
        if key in _DATA:
            return value
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            return {name: self._schema(schema, root, owner) for name, schema in value.items()}
        return self._schema(value, root, owner)

    def _name(self, ref: str, root: JsonObject, owner: str) -> str:
        known = self._names.get((owner, ref))
        if known is not None:
            return known
        target = _resolve(ref, root, owner)
        stem = "".join(c if c.isalnum() or c in "_-" else "_" for c in ref.rpartition("/")[2]).strip("#") or "root"
        name, number = stem, 2
        while name in self.defs:
            name, number = f"{stem}_{number}", number + 1
        self._names[owner, ref] = name
        self.defs[name] = True
        whole = {key: value for key, value in target.items() if key not in _HOISTED} if target is root else target
        self.defs[name] = self._schema(whole, root, owner)
        return name


def _resolve(ref: str, root: JsonObject, owner: str) -> JsonObject:
    node: JsonValue = root
    for token in ref[1:].split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise ConfigurationError(f"the schema of {owner} refers to {ref!r}, which it does not define")
    if not isinstance(node, dict):
        raise ConfigurationError(f"the schema of {owner} refers to {ref!r}, which is not a schema")
    return node
