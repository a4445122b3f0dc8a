"""The content blocks of one answer of the Messages protocol, and how they are kept so that they can go back."""

from __future__ import annotations

from typing import Final

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.providers.wire.clean import read_json

__all__ = ["BLOCKS_KIND", "CONTAINER_KIND", "Block", "is_plain"]

BLOCKS_KIND: Final = "messages.blocks"
CONTAINER_KIND: Final = "messages.container"
_PLAIN = frozenset({"type", "length", "index"})
_KIND_OF = {
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "text_delta": "text",
    "citations_delta": "text",
    "input_json_delta": "tool_use",
}


class Block:
    """One content block while its pieces arrive.

    `given` is what its start brought; `length` is that of a text block in the message's text, `position` that of a
    client's tool call among the message's calls, -1 for every other block. `untold` is input that counts only when no
    piece of it follows: what came with the start, or a placeholder; `told` says that such a piece was passed on.
    """

    __slots__ = ("_citations", "_fields", "given", "length", "pieces", "position", "told", "untold")

    def __init__(self, given: JsonObject) -> None:
        self.given = given
        self.length = 0
        self.position = -1
        self.told = False
        self.untold = ""
        self.pieces: list[str] = []
        self._fields: dict[str, list[str]] = {}
        self._citations: list[JsonValue] = []

    @classmethod
    def unannounced(cls, delta_kind: str) -> Block:
        """Return the block of a piece whose start never came, of the kind such a piece belongs to."""
        kind = _KIND_OF.get(delta_kind)
        return cls({} if kind is None else {"type": kind})

    def cite(self, citation: JsonValue) -> None:
        """Take one more citation."""
        self._citations.append(citation)

    def extend(self, name: str, text: str) -> None:
        """Take a piece of a text field that is no part of the answer, such as a signature."""
        self._fields.setdefault(name, []).append(text)

    def merge(self, delta: JsonObject) -> None:
        """Take a piece of a kind that is newer than this reader: texts are joined, other values replaced."""
        for name, value in delta.items():
            if name == "type":
                continue
            if isinstance(value, str):
                self.extend(name, value)
            else:
                self.given[name] = value

    def unsaid_input(self) -> str:
        """Return the input of a client's tool that was held back and that nothing followed, once."""
        untold, self.untold = self.untold, ""
        return untold if self.position >= 0 else ""

    def laid_out(self) -> JsonObject:
        """Return the block as it goes back, with text and calls by reference to the message that holds them."""
        given = self.given
        for name, texts in self._fields.items():
            before = given.get(name)
            given[name] = "".join([before if isinstance(before, str) else "", *texts])
        self._fields = {}
        if self._citations:
            before = given.get("citations")
            given["citations"] = [*(before if isinstance(before, list) else ()), *self._citations]
        kind = given.get("type")
        if kind == "text":
            said = {name: value for name, value in given.items() if value is not None and value != []}
            return {"length": self.length, **said}
        if self.position >= 0:
            kept = {name: value for name, value in given.items() if name not in ("id", "name", "input")}
            return {"index": self.position, **kept}
        if kind == "thinking":
            return {**given, "thinking": "".join(self.pieces)}
        return {**given, "input": self._input()} if self.pieces else given

    def _input(self) -> JsonValue:
        """Return the input of a server's tool; one that was cut off is as it was given at the start."""
        try:
            return read_json("".join(self.pieces).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return self.given.get("input")


def is_plain(layout: list[JsonObject]) -> bool:
    """Return whether the message alone says all of it: text at most once and first, then calls."""
    return all(
        item.keys() <= _PLAIN and (item.get("type") == "tool_use" or (number == 0 and item.get("type") == "text"))
        for number, item in enumerate(layout)
    )
