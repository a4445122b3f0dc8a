"""The types of a function's parameters, also where they were written as strings."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping

from agentkit.core.contracts import Ctx
from agentkit.errors import ConfigurationError

__all__ = ["is_context", "parameter_types", "plain_function"]


def plain_function(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that has the annotations and the docstring: inside a partial, or an object's `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def parameter_types(function: Callable[..., object], name: str, scope: Mapping[str, object]) -> dict[str, object]:
    """Return each annotated parameter's type; `scope` has the names that were local where the function was written.

    Raises ConfigurationError naming the parameter whose annotation means nothing. What the function returns is not
    looked at.
    """
    plain = inspect.unwrap(plain_function(function))
    names: dict[str, object] = {**scope, **_closure(plain)}
    found: dict[str, object] = {}
    for parameter, annotation in getattr(plain, "__annotations__", {}).items():
        if parameter == "return":
            continue
        holder = types.SimpleNamespace(__annotations__={parameter: annotation})
        try:
            hints = typing.get_type_hints(holder, getattr(plain, "__globals__", {}), names, include_extras=True)
        except Exception as error:
            raise ConfigurationError(
                f"Tool {name!r}: the annotation of parameter {parameter!r} cannot be resolved ({error}); "
                "define or import that type at module level, outside of TYPE_CHECKING."
            ) from error
        found[parameter] = hints[parameter]
    return found


def is_context(annotation: object) -> bool:
    """Return whether a parameter takes the run's context, which a model neither sees nor gives."""
    if typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        return any(is_context(part) for part in typing.get_args(annotation))
    return annotation is Ctx or getattr(annotation, "__agentkit_context__", False) is True


def _closure(function: object) -> dict[str, object]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if not isinstance(code, types.CodeType) or not cells:
        return {}
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    return found
