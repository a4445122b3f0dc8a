"""A function's parameters as a JSON Schema, and a model's arguments as values for them; built once per function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast

import msgspec

from agentkit.core.contracts import JsonObject
from agentkit.core.contracts.text import clean_text
from agentkit.errors import ConfigurationError, ToolError
from agentkit.schema.json_schema import without_titles
from agentkit.schema.portable import portable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["ToolSignature"]

_EMPTY = inspect.Parameter.empty
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ToolSignature:
    """What a model may pass to a function.

    Mistakes of the author (a parameter without annotation, `*args`) are ConfigurationError at once, with what to
    write; the schema is made on first use. A parameter annotated with the run's context is hidden from the model.
    """

    def __init__(self, function: Callable[..., object], scope: Mapping[str, object] | None = None) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.context_parameter: str | None = None
        self._fields: list[tuple[str, object, object]] = []
        self._extra: object = None
        hints = _hints(function, self.name, scope or {})
        for parameter in inspect.signature(function).parameters.values():
            self._add(parameter, hints.get(parameter.name, _EMPTY))

    @cached_property
    def schema(self) -> JsonObject:
        """Return the parameters as a JSON Schema of type object."""
        schema = without_titles(cast("JsonObject", self._adapter.json_schema()))
        schema.pop("description", None)
        properties = cast("dict[str, JsonObject]", schema.setdefault("properties", {}))
        for name, _, default in self._fields:
            if default is not _EMPTY and "default" not in properties[name]:
                with suppress(TypeError, ValueError):
                    properties[name]["default"] = msgspec.to_builtins(default)
        return schema

    def bind(self, arguments: str) -> dict[str, object]:
        """Return keyword arguments for the function; parameters the model left out keep the function's defaults.

        Empty text and null mean no arguments. Raises ToolError with every problem at once and what is accepted;
        arguments that are cut or no JSON are never taken for empty ones.
        """
        text = arguments
        if "\\u" in text or not text.isascii():
            text = self._cleaned(text)
        elif not text or text.isspace() or text == "null":
            text = "{}"
        validate, invalid = self._validation
        try:
            return validate(text)
        except invalid as error:
            if text.strip() == "null":
                return self.bind("{}")
            raise self._problem(error) from error

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
        config = pydantic.ConfigDict(extra="forbid" if self._extra is None else "allow")
        make: Callable[..., type[dict[str, object]]] = typing_extensions.TypedDict  # type: ignore[assignment]
        arguments = make("Arguments", fields)
        setattr(arguments, "__pydantic_config__", config)  # noqa: B010
        try:
            adapter = pydantic.TypeAdapter(arguments)
            adapter.json_schema()
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(f"Tool {self.name!r}: a parameter has no JSON Schema: {reason}") from error
        return adapter

    def _add(self, parameter: inspect.Parameter, annotation: object) -> None:
        name = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"Tool {self.name!r}: parameter {name!r} cannot be passed by name; models pass arguments by name only."
            )
        if annotation is _EMPTY:
            raise ConfigurationError(
                f"Tool {self.name!r}: parameter {name!r} has no annotation; write its type, such as `{name}: str`."
            )
        if getattr(annotation, "__agentkit_context__", False):
            self.context_parameter = name
        elif parameter.kind in _VARIADIC:
            self._extra = annotation
        else:
            self._fields.append((name, annotation, parameter.default))

    def _cleaned(self, text: str) -> str:
        try:
            data = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
        except (msgspec.DecodeError, UnicodeError):
            return _decoded_leniently(text)
        return msgspec.json.encode(_clean(data)).decode()

    def _problem(self, error: BaseException) -> ToolError:
        problems = []
        for problem in error.errors():  # type: ignore[attr-defined]
            if problem["type"] == "json_invalid":
                reason = problem.get("ctx", {}).get("error", problem["msg"])
                return ToolError(
                    f"The arguments of {self.name!r} are no JSON, so they were cut or broken ({reason}).",
                    tool=self.name,
                    hint="Call it again with complete arguments.",
                )
            where = ".".join(str(part) for part in problem["loc"]) or "arguments"
            word = {"extra_forbidden": "unexpected", "missing": "missing"}.get(problem["type"], problem["msg"])
            problems.append(f"{where}: {word}")
        accepted = ", ".join(name if default is _EMPTY else f"{name} (optional)" for name, _, default in self._fields)
        return ToolError(
            f"The arguments of {self.name!r} do not fit: {'; '.join(problems)}.",
            tool=self.name,
            hint=f"It accepts: {accepted or 'no arguments'}.",
        )


def _hints(function: Callable[..., object], name: str, scope: Mapping[str, object]) -> dict[str, object]:
    try:
        target = function if inspect.isroutine(function) else type(function).__call__
        return typing.get_type_hints(target, localns=dict(scope), include_extras=True)
    except (NameError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"Tool {name!r}: an annotation cannot be resolved ({error}); define that type at module level."
        ) from error


def _clean(data: object) -> object:
    if isinstance(data, str):
        return clean_text(data)
    if isinstance(data, list):
        return [_clean(item) for item in data]
    if isinstance(data, dict):
        return {clean_text(key): _clean(item) for key, item in data.items()}
    return data


def _decoded_leniently(text: str) -> str:
    import json

    try:
        return json.dumps(_clean(json.loads(text)), ensure_ascii=False)
    except ValueError:
        return clean_text(text)
