"""The shape of an answer: from a Python type or JSON Schema to what a model is told, and back to a value."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec

from agentkit.core.contracts import JsonObject, JsonValue, OutputSpec
from agentkit.errors import ConfigurationError, OutputInvalid
from agentkit.schema.json_schema import check_schema, schema_name, validator, without_titles
from agentkit.schema.portable import portable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["OutputType", "output_type"]

T = TypeVar("T")
_FENCE = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\r?\n(?P<body>.*?)\r?\n?[ \t]*```\s*", re.DOTALL)
_HEAD = 500
_MOST_PROBLEMS = 20
_WRAPPED = "value"


class OutputType(Generic[T]):
    """One shape: `spec` is what a model is told, `parse` reads its answer.

    A shape that is no object (a list, a number) is asked for as {"value": ...} and taken out of it again.
    """

    def __init__(self, name: str, schema: JsonObject) -> None:
        self.wrapped = not _is_object(schema)
        self.spec = OutputSpec(schema_name(name), _wrap(schema) if self.wrapped else schema)

    def parse(self, text: str) -> T:
        """Return the answer as a value; one code fence around all of it is taken off.

        Raises OutputInvalid with `$.path: reason` for each problem, and the head of the text.
        """
        body = _unfenced(text)
        try:
            data = msgspec.json.decode(body.encode("utf-8", "replace"))
        except msgspec.DecodeError as error:
            raise _invalid(text, [f"$: not JSON: {error}"]) from error
        if self.wrapped:
            if not isinstance(data, dict) or set(data) != {_WRAPPED}:
                raise _invalid(text, [f'$: expected {{"{_WRAPPED}": ...}}'])
            data = data[_WRAPPED]
        value, problems = self._read(data)
        if problems:
            inside = [problem.replace("$", "$.value", 1) for problem in problems]
            raise _invalid(text, inside if self.wrapped else problems)
        return cast("T", value)

    def validate(self, value: object) -> T:
        """Return plain data (dicts, lists, texts, numbers) as a value; raises OutputInvalid."""
        read, problems = self._read(value)
        if problems:
            raise _invalid(repr(value), problems)
        return cast("T", read)

    def dump(self, value: T) -> JsonValue:
        """Return the value as plain data, under the names the schema has."""
        raise NotImplementedError

    def _read(self, data: object) -> tuple[object, list[str]]:
        raise NotImplementedError


class PydanticOutput(OutputType[T]):
    """A shape that pydantic knows: models, dataclasses, TypedDicts, unions, lists, literals."""

    def __init__(self, spec: object) -> None:
        import pydantic

        name = getattr(spec, "__name__", "") or "answer"
        try:
            self._adapter: TypeAdapter[T] = pydantic.TypeAdapter(cast("type[T]", portable(spec)))
            schema = cast("JsonObject", self._adapter.json_schema(mode="validation"))
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"output={spec!r} has no JSON Schema: {reason} Pass a pydantic model, a dataclass, a TypedDict or a "
                "JSON Schema."
            ) from error
        super().__init__(name, without_titles(schema))

    def dump(self, value: T) -> JsonValue:
        """Return the value as plain data, under the names the schema has."""
        return cast("JsonValue", self._adapter.dump_python(value, mode="json", by_alias=True))

    def _read(self, data: object) -> tuple[object, list[str]]:
        import pydantic

        try:
            return self._adapter.validate_json(msgspec.json.encode(data)), []
        except pydantic.ValidationError as error:
            return None, [f"{_path(problem['loc'])}: {problem['msg']}" for problem in error.errors()]


class MsgspecOutput(OutputType[T]):
    """A shape that msgspec knows and pydantic does not: attrs classes and msgspec structs."""

    def __init__(self, spec: type[T]) -> None:
        self._type = spec
        schema = cast("JsonObject", msgspec.json.schema(spec))
        super().__init__(spec.__name__, without_titles(schema))

    def dump(self, value: T) -> JsonValue:
        """Return the value as plain data, under the names the schema has."""
        return cast("JsonValue", msgspec.to_builtins(value))

    def _read(self, data: object) -> tuple[object, list[str]]:
        try:
            return msgspec.json.decode(msgspec.json.encode(data), type=self._type), []
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `")
            return None, [f"{path.rstrip('`') or '$'}: {reason}"]


class SchemaOutput(OutputType[JsonValue]):
    """A raw JSON Schema; values are plain data."""

    def __init__(self, schema: JsonObject) -> None:
        check_schema(schema, "output")
        self._validator = validator(schema, "output")
        super().__init__(str(schema.get("title", "answer")), schema)

    def dump(self, value: JsonValue) -> JsonValue:
        """Return the value itself."""
        return value

    def _read(self, data: object) -> tuple[object, list[str]]:
        problems: list[str] = []
        for error in self._validator.iter_errors(data):
            problems.append(f"{_path(tuple(error.instance_path))}: {error.message}")
            if len(problems) == _MOST_PROBLEMS:
                break
        return data, problems


def output_type(spec: object) -> OutputType[object]:
    """Return the shape for a type or a JSON Schema; built once per type.

    Raises ConfigurationError for what is neither, before anything is sent.
    """
    if isinstance(spec, dict):
        return cast("OutputType[object]", SchemaOutput(spec))
    if spec is None or isinstance(spec, (str, bytes, int, float, list, set)):
        raise ConfigurationError(f"output={spec!r}: pass a type (such as a pydantic model) or a JSON Schema as a dict.")
    if isinstance(spec, Hashable):
        return _for_type(spec)
    return _build(spec)


@lru_cache(maxsize=256)
def _for_type(spec: Hashable) -> OutputType[object]:
    return _build(spec)


def _build(spec: object) -> OutputType[object]:
    if isinstance(spec, type) and _is_msgspecs(spec):
        return MsgspecOutput(spec)
    return PydanticOutput(spec)


def _is_msgspecs(spec: type) -> bool:
    return issubclass(spec, msgspec.Struct) or (hasattr(spec, "__attrs_attrs__") and not dataclasses.is_dataclass(spec))


def _is_object(schema: JsonObject) -> bool:
    node: JsonValue = schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        for part in reference[2:].split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return isinstance(node, dict) and (node.get("type") == "object" or "properties" in node)


def _wrap(schema: JsonObject) -> JsonObject:
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "definitions", "$schema")}
    outer: JsonObject = {
        "type": "object",
        "properties": {_WRAPPED: inner},
        "required": [_WRAPPED],
        "additionalProperties": False,
    }
    for key in ("$defs", "definitions"):
        if key in schema:
            outer[key] = schema[key]
    return outer


def _unfenced(text: str) -> str:
    match = _FENCE.fullmatch(text)
    return text.strip() if match is None else match["body"]


def _path(parts: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _invalid(text: str, problems: list[str]) -> OutputInvalid:
    shown = problems[:_MOST_PROBLEMS]
    head = text if len(text) <= _HEAD else text[:_HEAD] + "…"
    return OutputInvalid(f"The answer does not fit the declared output: {'; '.join(shown)}.", problems=shown, text=head)
