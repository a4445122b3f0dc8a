"""Remembers how a message or tool is written, for as long as that very object lives."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

__all__ = ["WireMemo"]

T = TypeVar("T", bound=object)


class _Entry(weakref.ref[T]):
    __slots__ = ("key", "written")
    key: int
    written: bytes


class WireMemo(Generic[T]):
    """Maps objects, by identity, to their bytes; an entry goes with its object, so nothing is kept alive."""

    __slots__ = ("__weakref__", "_entries", "_forget")

    def __init__(self) -> None:
        entries: dict[int, _Entry[T]] = {}

        def forget(entry: weakref.ref[T]) -> None:
            entries.pop(entry.key, None)  # type: ignore[attr-defined]

        self._entries = entries
        self._forget = forget

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, item: T, /) -> bytes | None:
        """Return the bytes kept for this very object, None when there are none."""
        entry = self._entries.get(id(item))
        return entry.written if entry is not None and entry() is item else None

    def put(self, item: T, written: bytes, /) -> bytes:
        """Keep the bytes for this object and return them."""
        entry = _Entry(item, self._forget)
        entry.key = id(item)
        entry.written = written
        self._entries[entry.key] = entry
        return written
