"""Remembers what was made of a message, tool or output, for as long as that very object lives."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

__all__ = ["IdentityMemo", "WireMemo"]

T = TypeVar("T", bound=object)
V = TypeVar("V")


class _Entry(weakref.ref[T], Generic[T, V]):
    __slots__ = ("key", "made")
    key: int
    made: V


class IdentityMemo(Generic[T, V]):
    """Maps objects, by identity, to what was made of them; an entry goes with its object: nothing is kept alive."""

    __slots__ = ("__weakref__", "_entries", "_forget")

    def __init__(self) -> None:
        entries: dict[int, _Entry[T, V]] = {}

        def forget(entry: weakref.ref[T]) -> None:
            entries.pop(entry.key, None)  # type: ignore[attr-defined]

        self._entries = entries
        self._forget = forget

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, item: T, /) -> V | None:
        """Return what is kept for this very object, None when there is nothing."""
        entry = self._entries.get(id(item))
        return entry.made if entry is not None and entry() is item else None

    def put(self, item: T, made: V, /) -> V:
        """Keep what was made of this object and return it."""
        entry: _Entry[T, V] = _Entry(item, self._forget)
        entry.key = id(item)
        entry.made = made
        self._entries[entry.key] = entry
        return made


class WireMemo(IdentityMemo[T, bytes]):
    """Maps objects, by identity, to their bytes on the wire."""

    __slots__ = ()
