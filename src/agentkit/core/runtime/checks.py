"""Checks of constructor arguments, each naming the parameter and the next step."""

from __future__ import annotations

from typing import TypeVar

from agentkit.errors import ConfigurationError

__all__ = ["at_least", "choice", "text", "whole"]

C = TypeVar("C", bound=str)


def at_least(owner: str, name: str, value: int | None, lowest: int) -> int | None:
    """Return the value when it is None or a whole number from `lowest` on; raises ConfigurationError otherwise."""
    if value is None:
        return None
    return whole(owner, name, value, lowest)


def whole(owner: str, name: str, value: object, lowest: int) -> int:
    """Return the value when it is a whole number from `lowest` on; raises ConfigurationError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigurationError(f"{owner}({name}={value!r}): pass a whole number of at least {lowest}.")
    return value


def text(owner: str, name: str, value: object) -> str:
    """Return the value when it is a text with something in it; raises ConfigurationError otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{owner}({name}={value!r}): pass a non-empty text.")
    return value


def choice(owner: str, name: str, value: C, known: tuple[C, ...]) -> C:
    """Return the value when it is one of the known ones; raises ConfigurationError listing them otherwise."""
    if value not in known:
        raise ConfigurationError(f"{owner}({name}={value!r}): pass one of {', '.join(map(repr, known))}.")
    return value
