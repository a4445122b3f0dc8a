"""The shape of an answer: from a Python type or JSON Schema to what a model is told, and back to a value."""

from __future__ import annotations

from functools import lru_cache
from typing import Generic, TypeVar, cast, overload

from agentkit.core.contracts import JsonObject, JsonValue, OutputSpec
from agentkit.errors import ConfigurationError
from agentkit.schema.absent import without_absent
from agentkit.schema.envelope import WRAPPED, invalid, is_object, unfenced, wrap
from agentkit.schema.json_schema import schema_name, with_root
from agentkit.schema.json_text import read_answer
from agentkit.schema.reader import Reader, reader_for

__all__ = ["OutputType", "output_type"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class OutputType(Generic[T_co]):
    """One shape: `spec` is what a model is told, `parse` reads its answer.

    A shape that is no object (a list, a number) is asked for as {"value": ...}; an answer without that is taken too.
    Null for a property that may be missing and not be null counts as left out, since strict servers write it so.
    """

    __slots__ = ("_reader", "spec", "wrapped")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.wrapped = not is_object(reader.schema)
        schema = wrap(reader.schema) if self.wrapped else with_root(reader.schema)
        self.spec = OutputSpec(schema_name(reader.name), schema)

    def __repr__(self) -> str:
        return f"OutputType({self.spec.name!r})"

    def parse(self, text: str) -> T_co:
        """Return the answer as a value; one code fence around all of it is taken off.

        Raises OutputInvalid with `$.path: reason` for each problem, and the head of the text.
        """
        try:
            data = read_answer(unfenced(text))
        except ValueError as error:
            raise invalid(text, [f"$: not JSON: {error}"]) from error
        return self._validated(data, text)

    def validate(self, value: object) -> T_co:
        """Return plain data (what `parse` would read from JSON), or a value of the type, as a value of the type.

        Raises OutputInvalid.
        """
        return self._validated(value, value)

    def dump(self, value: object) -> JsonValue:
        """Return the value as plain data under the names of the schema, so that `parse` reads it back from JSON."""
        data = self._reader.dump(value)
        return {WRAPPED: data} if self.wrapped else data

    def _validated(self, data: object, shown: object) -> T_co:
        problems: list[str] = []
        if self.wrapped and isinstance(data, dict) and set(data) == {WRAPPED}:
            value, inside = self._read(data[WRAPPED])
            if not inside:
                return cast("T_co", value)
            problems = [problem.replace("$", f"$.{WRAPPED}", 1) for problem in inside]
        value, outside = self._read(data)
        if not outside:
            return cast("T_co", value)
        if self.wrapped and not problems:
            problems = [f'$: expected {{"{WRAPPED}": ...}}']
        raise invalid(shown, problems or outside)

    def _read(self, data: object) -> tuple[object, list[str]]:
        value, problems = self._reader.read(data)
        if problems and isinstance(data, (dict, list)):
            pruned = without_absent(self._reader.schema, cast("JsonValue", data))
            if pruned != data:
                return self._reader.read(pruned)
        return value, problems


@overload
def output_type(spec: type[T]) -> OutputType[T]: ...
@overload
def output_type(spec: JsonObject) -> OutputType[JsonValue]: ...
@overload
def output_type(spec: object) -> OutputType[object]: ...
def output_type(spec: object) -> OutputType[object]:
    """Return the shape for a type or a JSON Schema; built once per type.

    Types are pydantic models, dataclasses, TypedDicts, attrs classes, msgspec structs, and lists, unions, literals and
    plain types. Raises ConfigurationError for what is neither, before anything is sent.
    """
    if isinstance(spec, dict):
        return _build(spec)
    try:
        return _for_type(spec)
    except TypeError:  # what cannot be hashed is built anew each time
        return _build(spec)


def _build(spec: object) -> OutputType[object]:
    try:
        return OutputType(reader_for(spec))
    except ConfigurationError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"output={spec!r} has no JSON Schema: {reason} Pass a pydantic model, a dataclass, a TypedDict or a "
            "JSON Schema."
        ) from error


_for_type = lru_cache(maxsize=256)(_build)
