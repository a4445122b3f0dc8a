"""The output items of a response: what of each was told so far, and how they are kept for their owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agentkit.core.contracts import JsonObject, JsonValue, clean_text

__all__ = ["ITEMS_KIND", "OutputItem", "OutputItems", "laid_out", "text_of_json"]

ITEMS_KIND: Final = "responses.items"
_OWN_FIELDS: Final = frozenset({"id", "type", "status", "role", "content", "call_id", "name", "arguments"})
_PLAIN: Final = frozenset({"type", "length", "index"})


class OutputItem:
    """One output item while its pieces arrive.

    `told` counts the characters told of each part, `length` those of the message's text; `call` is the position among
    the calls, -1 for what is none; `closed` says that the item as a whole has come.
    """

    __slots__ = ("call", "closed", "given", "kind", "length", "place", "told")

    def __init__(self, kind: str, given: JsonObject, place: int) -> None:
        self.kind = kind
        self.given = given
        self.place = place
        self.call = -1
        self.length = 0
        self.told: dict[str, int] = {}
        self.closed = False

    def is_same(self, given: JsonObject) -> bool:
        """Return whether this is the item given, told by both its ids: some servers give every item one id."""
        return all(self.given.get(name) == given.get(name) for name in ("id", "call_id"))

    def untold(self, part: str, text: str) -> str:
        """Return what of this part's whole text was not told yet, and count it as told."""
        known = self.told.get(part, 0)
        if len(text) <= known:
            return ""
        self.told[part] = len(text)
        return text[known:] if known else text


class OutputItems:
    """The items in the order they came, found by id, else by output index, else as the last open one of their kind.

    Servers leave ids or indexes out, give every item the same index, or close an item under another id.
    """

    __slots__ = ("_by_id", "_by_index", "all")

    def __init__(self) -> None:
        self.all: list[OutputItem] = []
        self._by_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}

    def find(self, kind: str, item_id: str | None, index: int | None) -> OutputItem | None:
        """Return the item of this kind that a piece belongs to, None when there is none yet."""
        if item_id:
            item = self._by_id.get(item_id)
            if item is not None and item.kind == kind:
                return item
        last = self.all[-1] if self.all else None
        item = last if index is None else self._by_index.get(index)
        return item if item is not None and item.kind == kind and not item.closed else None

    def open(self, kind: str, given: JsonObject, index: int | None) -> OutputItem:
        """Return a new item."""
        item = OutputItem(kind, given, len(self.all) if index is None else index)
        self.all.append(item)
        if item_id := text_of_json(given.get("id")):
            self._by_id[item_id] = item
        if index is not None:
            self._by_index[index] = item
        return item

    def in_order(self) -> list[OutputItem]:
        """Return the items by their place in the output; of one place, as they came."""
        return sorted(self.all, key=lambda item: item.place)

    def missing(self, given: Sequence[JsonObject]) -> Iterator[tuple[int, JsonObject]]:
        """Yield those items of the finished response, with their places, that did not come whole before."""
        if len(given) <= len(self.all) and all(item.closed for item in self.all):
            return
        ordered = self.in_order()
        for place, item in enumerate(given):
            known = self._by_id.get(text_of_json(item.get("id")))
            if known is None and place < len(ordered) and ordered[place].kind == item.get("type"):
                known = ordered[place]
                self._by_id[text_of_json(item.get("id"))] = known
            if known is None or not known.closed:
                yield place, item


def laid_out(items: Sequence[OutputItem]) -> list[JsonValue]:
    """Return the items with text and calls by reference; nothing when the message alone says it all."""
    layout = [_laid_out(item) for item in items if item.call >= 0 or item.length or (item.closed and item.kind)]
    plain = all(
        item.keys() <= _PLAIN
        and (item.get("type") == "function_call" or (item.get("type") == "message" and number == 0))
        for number, item in enumerate(layout)
    )
    return [] if plain else list(layout)


def _laid_out(item: OutputItem) -> JsonObject:
    if item.kind not in ("message", "function_call"):
        return item.given
    more = {name: value for name, value in item.given.items() if name not in _OWN_FIELDS and value is not None}
    if item.kind == "message":
        return {"type": "message", "length": item.length, **more}
    return {"type": "function_call", "index": item.call, **more}


def text_of_json(value: JsonValue) -> str:
    """Return the value, clean, if it is text, else nothing."""
    return clean_text(value) if isinstance(value, str) else ""
