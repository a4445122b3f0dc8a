"""A function's parameters as a JSON Schema, and a model's arguments as values for them; built once per function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast

import msgspec

from agentkit.core.contracts import JsonObject
from agentkit.errors import ConfigurationError, ToolError
from agentkit.schema.absent import without_absent
from agentkit.schema.annotations import is_context, parameter_types, plain_function
from agentkit.schema.json_schema import without_titles
from agentkit.schema.json_text import clean_json, read_json
from agentkit.schema.portable import portable

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = ["ToolSignature"]

_EMPTY = inspect.Parameter.empty
_NO_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
_WORDS = {"extra_forbidden": "unexpected", "missing": "missing"}
_MOST_PROBLEMS = 20


class ToolSignature:
    """What a model may pass to a function.

    Mistakes of the author (a parameter without annotation, `*args`) are ConfigurationError at once, with what to
    write; the schema is made on first use. A parameter annotated with the run's context is hidden from the model.
    Texts, numbers and booleans are taken as they are ("5" is no number); dates, enums, models and the like are made
    from their JSON forms.
    """

    def __init__(self, function: Callable[..., object], scope: Mapping[str, object] | None = None) -> None:
        if not callable(function):
            raise ConfigurationError(f"{function!r} is no function; a tool is made of a function or a callable object.")
        plain = plain_function(function)
        named = plain if isinstance(function, functools.partial) or inspect.isroutine(function) else type(function)
        self.name: str = getattr(named, "__name__", "tool")
        self.context_parameter: str | None = None
        self._fields: list[tuple[str, object, object]] = []
        self._extra: object = _EMPTY
        hints = parameter_types(function, self.name, scope or {})
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError as error:
            raise ConfigurationError(f"Tool {self.name!r}: {error}; wrap it in a function of your own.") from error
        for parameter in parameters:
            self._add(parameter, hints.get(parameter.name, _EMPTY))

    @cached_property
    def schema(self) -> JsonObject:
        """Return the parameters as a JSON Schema of type object."""
        schema = without_titles(cast("JsonObject", self._adapter.json_schema()))
        schema.pop("description", None)
        properties = cast("dict[str, JsonObject]", schema.setdefault("properties", {}))
        for name, _, default in self._fields:
            if default is not _EMPTY and name in properties and "default" not in properties[name]:
                with suppress(TypeError, ValueError):
                    properties[name]["default"] = msgspec.to_builtins(default)
        return schema

    def bind(self, arguments: str) -> dict[str, object]:
        """Return keyword arguments for the function; parameters the model left out keep the function's defaults.

        Empty text and null mean no arguments; null for a parameter that has a default and cannot be null means that it
        was left out. Raises ToolError with every problem at once and what is accepted; arguments that are cut or no
        JSON are never taken for empty ones.
        """
        text = arguments
        if "\\u" in text or not text.isascii():
            text = clean_json(text)
        elif not text or text.isspace() or text == "null":
            text = "{}"
        validate, invalid = self._validation
        try:
            return validate(text)
        except invalid as error:
            if "null" in text and (again := self._without_nulls(text)) != text:
                return self.bind(again)
            raise self._problem(cast("ValidationError", error)) from error

    def _without_nulls(self, text: str) -> str:
        """Return arguments without the nulls that stand for parameters left out, where there are any."""
        try:
            given = read_json(text)
        except ValueError:
            return text
        kept = {} if given is None else without_absent(self.schema, given)
        return text if kept == given else msgspec.json.encode(kept).decode()

    @cached_property
    def _validation(self) -> tuple[Callable[[str], dict[str, object]], type[ValueError]]:
        import pydantic

        return self._adapter.validator.validate_json, pydantic.ValidationError

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, object]]:
        import pydantic
        import typing_extensions

        fields: dict[str, object] = {}
        for name, annotation, default in self._fields:
            marker = typing_extensions.Required if default is _EMPTY else typing_extensions.NotRequired
            fields[name] = marker[portable(annotation)]
        make: Callable[..., type[dict[str, object]]] = typing_extensions.TypedDict  # type: ignore[assignment]
        if self._extra is _EMPTY:
            arguments, extra = make("Arguments", fields), "forbid"
        else:
            arguments, extra = make("Arguments", fields, extra_items=portable(self._extra)), "allow"
        config = pydantic.ConfigDict(extra=extra, strict=True, allow_inf_nan=False)  # type: ignore[typeddict-item]
        setattr(arguments, "__pydantic_config__", config)  # noqa: B010
        try:
            adapter = pydantic.TypeAdapter(arguments)
            adapter.json_schema()
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(f"Tool {self.name!r}: a parameter has no JSON Schema: {reason}") from error
        return adapter

    def _add(self, parameter: inspect.Parameter, annotation: object) -> None:
        name, tool = parameter.name, f"Tool {self.name!r}: parameter {parameter.name!r}"
        if parameter.kind in _NO_NAME:
            raise ConfigurationError(f"{tool} cannot be passed by name; models pass arguments by name only.")
        if annotation is _EMPTY:
            hint = f"write its type, such as `{name}: str`"
            if name in ("self", "cls"):
                hint = "make tools of methods from an object: tool(thing.method)"
            raise ConfigurationError(f"{tool} has no annotation; {hint}.")
        if type(parameter.default).__module__ == "pydantic.fields":
            raise ConfigurationError(
                f"{tool} has a Field as its default, which the function would be called with; "
                f"write `{name}: Annotated[..., Field(...)]`, and a plain default after it."
            )
        if is_context(annotation):
            self.context_parameter = name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            self._extra = annotation
        else:
            self._fields.append((name, annotation, parameter.default))

    def _problem(self, error: ValidationError) -> ToolError:
        found = error.errors(include_url=False, include_input=False)
        if found[0]["type"] == "json_invalid":
            reason = found[0].get("ctx", {}).get("error", found[0]["msg"])
            return ToolError(
                f"The arguments of {self.name!r} are no JSON, so they were cut or broken ({reason}).",
                tool=self.name,
                hint="Call it again with complete arguments.",
            )
        problems = [
            f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: "
            f"{_WORDS.get(problem['type'], problem['msg'])}"
            for problem in found[:_MOST_PROBLEMS]
        ]
        accepted = [name if default is _EMPTY else f"{name} (optional)" for name, _, default in self._fields]
        if self._extra is not _EMPTY:
            accepted.append("further names")
        return ToolError(
            f"The arguments of {self.name!r} do not fit: {'; '.join(problems)}.",
            tool=self.name,
            hint=f"It accepts: {', '.join(accepted) or 'no arguments'}.",
        )
