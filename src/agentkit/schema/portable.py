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

    make: typing.Callable[..., type] = typing_extensions.TypedDict  # type: ignore[assignment]
    rebuilt = done[annotation] = make(annotation.__name__, {})
    rebuilt.__doc__ = annotation.__doc__
    rebuilt.__module__ = annotation.__module__
    required: frozenset[str] = annotation.__required_keys__  # type: ignore[attr-defined]
    needed = set()
    # The fields are filled in afterwards, so that a recursive TypedDict finds its own new self among them.
    for name, hint in typing.get_type_hints(annotation, include_extras=True).items():
        marker = typing.get_origin(hint)
        is_marked = marker in (typing.Required, typing.NotRequired)
        if marker is typing.Required or (not is_marked and name in required):
            needed.add(name)
        rebuilt.__annotations__[name] = _rebuilt(typing.get_args(hint)[0] if is_marked else hint, done)
    keys = frozenset(rebuilt.__annotations__)
    setattr(rebuilt, "__required_keys__", frozenset(needed))  # noqa: B010
    setattr(rebuilt, "__optional_keys__", keys - needed)  # noqa: B010
    config: object = getattr(annotation, "__pydantic_config__", None)
    if config is not None:
        setattr(rebuilt, "__pydantic_config__", config)  # noqa: B010
    return rebuilt
