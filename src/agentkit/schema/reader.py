"""The libraries that turn plain data into values of a type, one class each."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.errors import ConfigurationError
from agentkit.schema.envelope import path_of
from agentkit.schema.json_schema import check_schema, validator, walk, without_titles
from agentkit.schema.portable import portable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Reader", "reader_for"]

_MOST_PROBLEMS = 20


class Reader(Protocol):
    """One type: its name, its JSON Schema, and the way from plain data to values and back."""

    name: str
    schema: JsonObject

    def read(self, data: object, /) -> tuple[object, list[str]]:
        """Return the value for plain data, or every problem as `$.path: reason`."""
        ...

    def dump(self, value: object, /) -> JsonValue:
        """Return the value as plain data, under the names of the schema."""
        ...


class PydanticReader:
    """A type that pydantic knows: models, dataclasses, TypedDicts, unions, lists, literals.

    The schema has the aliases of fields; where what is read and what is written have different ones, it has the names
    of the fields, so that what was dumped can be read.
    """

    def __init__(self, spec: object) -> None:
        import pydantic

        self.name = getattr(spec, "__name__", "") or "answer"
        self._adapter: TypeAdapter[object] = pydantic.TypeAdapter(cast("type[object]", portable(spec)))
        self._by_alias = _aliases_agree(self._adapter)
        schema = self._adapter.json_schema(mode="validation", by_alias=self._by_alias)
        self.schema = without_titles(cast("JsonObject", schema))
        self._invalid = pydantic.ValidationError

    def read(self, data: object, /) -> tuple[object, list[str]]:
        """Return the value for plain data, or every problem; an object of Python's is validated as such."""
        try:
            text = msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError):
            text = None
        try:
            if text is None:
                return self._adapter.validate_python(data, by_alias=self._by_alias, by_name=True), []
            return self._adapter.validate_json(text, by_alias=self._by_alias, by_name=True), []
        except self._invalid as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return None, [f"{path_of(problem['loc'])}: {problem['msg']}" for problem in found]

    def dump(self, value: object, /) -> JsonValue:
        """Return the value as plain data without computed fields."""
        return cast(
            "JsonValue",
            self._adapter.dump_python(value, mode="json", by_alias=self._by_alias, round_trip=True),
        )


class MsgspecReader:
    """A type that msgspec knows and pydantic does not: attrs classes and msgspec structs."""

    def __init__(self, spec: type) -> None:
        self._type = spec
        self.name = spec.__name__
        self.schema = without_titles(cast("JsonObject", msgspec.json.schema(spec)))

    def read(self, data: object, /) -> tuple[object, list[str]]:
        """Return the value for plain data, or the first problem."""
        try:
            return msgspec.json.decode(msgspec.json.encode(data), type=self._type), []
        except (TypeError, ValueError, RecursionError) as error:
            reason, _, path = str(error).partition(" - at `")
            return None, [f"{path.rstrip('`') or '$'}: {reason}"]

    def dump(self, value: object, /) -> JsonValue:
        """Return the value as plain data."""
        return cast("JsonValue", msgspec.to_builtins(value))


class SchemaReader:
    """A raw JSON Schema; values are plain data."""

    def __init__(self, schema: JsonObject) -> None:
        self.schema = deepcopy(check_schema(schema, "output"))
        self.name = str(schema.get("title", "answer"))
        self._validator = validator(self.schema, "output")

    def read(self, data: object, /) -> tuple[object, list[str]]:
        """Return the data itself, or its problems."""
        try:
            errors = list(islice(self._validator.iter_errors(data), _MOST_PROBLEMS))
        except (TypeError, ValueError, RecursionError) as error:
            return None, [f"$: {error}"]
        return data, [f"{path_of(list(error.instance_path))}: {error.message}" for error in errors]

    def dump(self, value: object, /) -> JsonValue:
        """Return the value itself."""
        return cast("JsonValue", value)


def reader_for(spec: object) -> Reader:
    """Return the reader for a type or a JSON Schema; raises ConfigurationError for what is neither."""
    if isinstance(spec, dict):
        return SchemaReader(spec)
    if spec is None or isinstance(spec, (str, bytes, int, float, list, set)) or _is_value(spec):
        raise ConfigurationError(f"output={spec!r}: pass a type (such as a pydantic model) or a JSON Schema as a dict.")
    if isinstance(spec, type) and _is_msgspecs(spec):
        return MsgspecReader(spec)
    return PydanticReader(spec)


def _is_value(spec: object) -> bool:
    fields = dataclasses.is_dataclass(spec) or hasattr(type(spec), "model_fields") or hasattr(spec, "__attrs_attrs__")
    return inspect.isroutine(spec) or (fields and not isinstance(spec, type))


def _is_msgspecs(spec: type) -> bool:
    return issubclass(spec, msgspec.Struct) or (hasattr(spec, "__attrs_attrs__") and not dataclasses.is_dataclass(spec))


def _aliases_agree(adapter: TypeAdapter[object]) -> bool:
    read = _property_sets(cast("JsonObject", adapter.json_schema(mode="validation")))
    written = _property_sets(cast("JsonObject", adapter.json_schema(mode="serialization")))
    return not read - written


def _property_sets(schema: JsonObject) -> Counter[frozenset[str]]:
    found: Counter[frozenset[str]] = Counter()

    def count(node: JsonObject) -> None:
        properties = node.get("properties")
        if isinstance(properties, dict):
            computed = (isinstance(child, dict) and child.get("readOnly") is True for child in properties.values())
            found[frozenset(name for name, skip in zip(properties, computed, strict=True) if not skip)] += 1

    walk(schema, count)
    return found
