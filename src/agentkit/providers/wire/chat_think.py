"""Reasoning that a server leaves in the text, between <think> and </think>, told as reasoning."""

from __future__ import annotations

from typing import Final

from agentkit.core.contracts import ChatEvent, JsonObject
from agentkit.providers.wire.chat_decode import ChatDecoder
from agentkit.providers.wire.chat_shapes import Chunk
from agentkit.providers.wire.fold import Asked

__all__ = ["ThinkDecoder"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class _Split:
    """Takes the text in pieces and says what of it is reasoning; only an answer that begins with the tag has any."""

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that are certain now; what may be half a tag waits."""
        text, self._held = self._held + text, ""
        if self._state == "start":
            begin = text.lstrip()
            if len(begin) < len(_OPEN) and _OPEN.startswith(begin):
                self._held = text
                return "", ""
            if not begin.startswith(_OPEN):
                self._state = "text"
                return "", text
            self._state, text = "thinking", begin[len(_OPEN) :]
        if self._state == "thinking":
            thought, closed, rest = text.partition(_CLOSE)
            if not closed:
                kept = _half_tag(text)
                self._held = text[len(text) - kept :]
                return text[: len(text) - kept], ""
            self._state = "after"
            return thought, self._after(rest)
        return "", self._after(text)

    def rest(self) -> tuple[str, str]:
        """Return what was held back when nothing more comes."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "thinking" else ("", held)

    def _after(self, text: str) -> str:
        """Return the answer's text without the blank lines between the tag and it."""
        if self._state == "after" and (text := text.lstrip()):
            self._state = "text"
        return text


class ThinkDecoder(ChatDecoder):
    """Decodes an answer whose reasoning stands in its text."""

    __slots__ = ("_split",)

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._split = _Split()

    def _flush(self, events: list[ChatEvent]) -> None:
        thought, text = self._split.rest()
        self._fold.think(thought, events)
        self._fold.say(text, events)
        super()._flush(events)

    def _take(self, chunk: Chunk, data: bytes | JsonObject, events: list[ChatEvent]) -> None:
        for choice in (chunk.choices or ())[:1]:
            delta = choice.delta
            if delta is not None and delta.content and not choice.index:
                thought, delta.content = self._split.feed(delta.content)
                if thought:
                    delta.reasoning = thought
        super()._take(chunk, data, events)


def _half_tag(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    return next((size for size in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:size])), 0)
