"""TypedDicts of Python 3.11, which pydantic takes only from typing_extensions."""

from __future__ import annotations

import sys
import types
import typing
from functools import reduce
from operator import or_

__all__ = ["portable"]


def portable(annotation: object) -> object:
    """Return the annotation with every TypedDict of the typing module rebuilt, where this Python needs it."""
    if sys.version_info >= (3, 12):
        return annotation
    return _rebuilt(annotation, {})


def _rebuilt(annotation: object, done: dict[object, object]) -> object:
    if typing.is_typeddict(annotation) and isinstance(annotation, type):
        return _rebuilt_dict(annotation, done)
    arguments = typing.get_args(annotation)
    if not arguments or typing.get_origin(annotation) is typing.Literal:
        return annotation
    rebuilt = tuple(_rebuilt(argument, done) for argument in arguments)
    if all(new is old for new, old in zip(rebuilt, arguments, strict=True)):
        return annotation
    if isinstance(annotation, types.UnionType):
        return reduce(or_, rebuilt)
    metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
    if metadata:
        return typing.Annotated[(rebuilt[0], *metadata)]
    return annotation.copy_with(rebuilt) if hasattr(annotation, "copy_with") else typing.get_origin(annotation)[rebuilt]  # type: ignore[index]


def _rebuilt_dict(annotation: type, done: dict[object, object]) -> object:
    if annotation.__module__ == "typing_extensions" or annotation in done:
        return done.get(annotation, annotation)
    import typing_extensions

    hints = typing.get_type_hints(annotation, include_extras=True)
    required: frozenset[str] = annotation.__required_keys__  # type: ignore[attr-defined]
    fields = {}
    for name, hint in hints.items():
        inner = _rebuilt(hint, done)
        marker = typing_extensions.Required if name in required else typing_extensions.NotRequired
        marked = typing.get_origin(inner) in (typing.Required, typing.NotRequired)
        fields[name] = marker[typing.get_args(inner)[0] if marked else inner]
    make: typing.Callable[..., type] = typing_extensions.TypedDict  # type: ignore[assignment]
    rebuilt = make(annotation.__name__, fields)
    rebuilt.__doc__ = annotation.__doc__
    done[annotation] = rebuilt
    return rebuilt
