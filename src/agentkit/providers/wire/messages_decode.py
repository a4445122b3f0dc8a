"""Reads answers of the Messages protocol, streamed or whole, from the bytes."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from agentkit.core.contracts import (
    ChatEvent,
    JsonObject,
    JsonValue,
    OpaqueItem,
    ReasoningDelta,
    StopReason,
    TextDelta,
    Usage,
    clean_text,
)
from agentkit.errors import StreamBroken
from agentkit.providers.wire.clean import encode_json, read_json
from agentkit.providers.wire.failure import error_of_body
from agentkit.providers.wire.fold import Asked, Fold, with_usage
from agentkit.providers.wire.sse import SseReader, data_of

__all__ = ["BLOCKS_KIND", "MessagesDecoder"]

BLOCKS_KIND: Final = "messages.blocks"
_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: JsonValue = None
    stop_reason: str | None = None
    stop_details: JsonValue = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: Raw = Raw(b"null")
    message: Raw = Raw(b"null")
    usage: Raw = Raw(b"null")


class _Whole(Struct):
    content: list[Raw] = []


class _Input(Struct):
    input: Raw = Raw(b"{}")


class _Block:
    """One content block while its pieces arrive."""

    __slots__ = ("given", "length", "pieces", "position", "untold")

    def __init__(self, given: JsonObject) -> None:
        self.given = given
        self.pieces: list[str] = []
        self.length = 0
        self.position = -1
        self.untold = ""


class MessagesDecoder:
    """Decodes one answer of the Messages protocol."""

    __slots__ = ("_blocks", "_details", "_fold", "_sse", "_usage", "done")

    def __init__(self, asked: Asked) -> None:
        self._fold = Fold(asked, compact=True)
        self._sse = SseReader()
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._details = ""
        self.done = False

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of the stream."""
        events: list[ChatEvent] = []
        for frame in self._sse.feed(data):
            start = frame.find(b"\ndata: {")
            if start > 0 and frame.startswith(b"event: ") and frame.find(b"\n", start + 1) < 0:
                self._read(frame[start + 7 :], events)
            elif frame:
                self._read_frame(frame, events)
        return events

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed."""
        events: list[ChatEvent] = []
        message = self._json(body)
        if message.get("type") == "error" or "error" in message:
            raise error_of_body(message)
        try:
            blocks = msgspec.json.decode(body, type=_Whole).content
        except (msgspec.MsgspecError, UnicodeDecodeError):
            content = message.get("content")
            blocks = [Raw(encode_json(block)) for block in content] if isinstance(content, list) else []
        self._begin(message, events)
        for index, raw in enumerate(blocks):
            self._open(index, raw, events)
            self._close(index, events)
        reason = message.get("stop_reason")
        self._fold.reason = reason if isinstance(reason, str) else "end_turn"
        self._explain(message.get("stop_details"))
        self.done = True
        return events + self.end()

    def end(self) -> list[ChatEvent]:
        """Return the last events; raises StreamBroken when no message_stop came."""
        events: list[ChatEvent] = []
        if (rest := self._sse.rest()).strip() and not self.done:
            self._read_frame(rest, events)
        fold = self._fold
        if not self.done:
            fold.reason = None
        if fold.reason == "refusal" and not fold.text and self._details:
            fold.refusal.append(self._details)
        self._keep_blocks()
        return events + fold.end(_REASONS, self.usage())

    def usage(self) -> Usage:
        """Return the last value of each number; input counts cache reads and writes too."""
        found = self._usage
        ordinary = found.get("input_tokens")
        read, written = found.get("cache_read_input_tokens", 0), found.get("cache_creation_input_tokens", 0)
        if not found:
            return Usage(None, None, None, None, None, None)
        return Usage(
            None if ordinary is None else ordinary + read + written,
            found.get("output_tokens"),
            read,
            written,
            found.get("ephemeral_1h_input_tokens", 0),
            found.get("thinking_tokens", 0),
        )

    def _read_frame(self, frame: bytes, events: list[ChatEvent]) -> None:
        _, data = data_of(frame)
        data = data.strip()
        if data and data != b"[DONE]" and not self.done:
            self._read(data, events)

    def _read(self, data: bytes, events: list[ChatEvent]) -> None:
        try:
            event = _read_event(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            event = self._tolerant(data)
        kind = event.type
        if kind == "content_block_delta":
            if event.delta is not None:
                self._delta(event.index, event.delta, events)
        elif kind == "content_block_start":
            self._open(event.index, event.content_block, events)
        elif kind == "content_block_stop":
            self._close(event.index, events)
        elif kind == "message_delta":
            self._count(self._json(event.usage))
            if event.delta is not None:
                self._fold.reason = event.delta.stop_reason or self._fold.reason
                self._explain(event.delta.stop_details)
        elif kind == "message_start":
            self._begin(self._json(event.message), events)
        elif kind == "message_stop":
            self.done = True
        elif kind != "ping":
            self._unknown(data)

    def _unknown(self, data: bytes) -> None:
        """Raise for an error; other kinds of events are newer than this reader and mean nothing to it."""
        body = read_json(data)
        if isinstance(body, dict) and (body.get("type") == "error" or "error" in body):
            raise with_usage(error_of_body(body), self.usage())

    def _begin(self, message: JsonObject, events: list[ChatEvent]) -> None:
        fold = self._fold
        if fold.started:
            return
        fold.response_id = _text(message.get("id"))
        fold.model = _text(message.get("model"))
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._count(usage)
        events.append(fold.start())

    def _open(self, index: int, raw: Raw, events: list[ChatEvent]) -> None:
        given = self._json(raw)
        block = self._blocks[index] = _Block(given)
        kind = given.get("type")
        if kind == "text":
            if text := _text(given.pop("text", "")):
                self._delta(index, _Delta("text_delta", text=text), events)
        elif kind == "thinking":
            if thinking := _text(given.get("thinking")):
                given["thinking"] = ""
                self._delta(index, _Delta("thinking_delta", thinking=thinking), events)
        elif kind == "tool_use":
            block.position = len(self._fold.calls)
            block.untold = bytes(_read_input(bytes(raw)).input).decode("utf-8", "replace")
            told = self._fold.calls.add(index, _text(given.get("id")), _text(given.get("name")), "")
            if told is not None:
                events.append(told)

    def _delta(self, index: int, delta: _Delta, events: list[ChatEvent]) -> None:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _Block({"type": _KIND_OF.get(delta.type, "text")})
        kind = delta.type
        if kind == "text_delta":
            if delta.text:
                block.length += len(delta.text)
                self._fold.text.append(delta.text)
                events.append(TextDelta(delta.text))
        elif kind == "input_json_delta":
            if delta.partial_json:
                self._arguments(index, block, delta.partial_json, events)
        elif kind == "thinking_delta":
            if delta.thinking:
                block.pieces.append(delta.thinking)
                self._fold.reasoning.append(delta.thinking)
                events.append(ReasoningDelta(delta.thinking))
        elif kind == "signature_delta":
            block.given["signature"] = _text(block.given.get("signature")) + (delta.signature or "")
        elif kind == "citations_delta":
            known = block.given.get("citations")
            block.given["citations"] = [*(known if isinstance(known, list) else []), delta.citation]

    def _arguments(self, index: int, block: _Block, text: str, events: list[ChatEvent]) -> None:
        block.untold = ""
        if block.position < 0:  # a server tool's input: kept in its block
            block.pieces.append(text)
            return
        told = self._fold.calls.add(index, None, None, text)
        if told is not None:
            events.append(told)

    def _close(self, index: int, events: list[ChatEvent]) -> None:
        block = self._blocks.get(index)
        if block is not None and block.position >= 0 and block.untold not in ("", "{}", "null"):
            self._arguments(index, block, block.untold, events)

    def _keep_blocks(self) -> None:
        """Keep the order of the blocks, with text and calls by reference, when the message alone does not say it."""
        layout = [_laid_out(block) for _, block in sorted(self._blocks.items())]
        plain = all(
            item.keys() <= _PLAIN and (item["type"] == "tool_use" or number == 0) for number, item in enumerate(layout)
        )
        if not plain:
            owner = (self._fold.asked.endpoint, self._fold.asked.model)
            self._fold.opaque.append(OpaqueItem(owner, BLOCKS_KIND, list(layout)))

    def _count(self, usage: JsonObject) -> None:
        for name, value in usage.items():
            if isinstance(value, dict):
                self._count(value)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                self._usage[name] = int(value)
        tier = usage.get("service_tier")
        if isinstance(tier, str):
            self._fold.tier = tier

    def _explain(self, details: JsonValue) -> None:
        if isinstance(details, dict):
            self._details = _text(details.get("explanation")) or _text(details.get("category"))

    def _json(self, data: bytes | Raw) -> JsonObject:
        try:
            found = read_json(bytes(data))
        except (ValueError, RecursionError):
            raise self._torn() from None
        return found if isinstance(found, dict) else {}

    def _tolerant(self, data: bytes) -> _Event:
        body = self._json(data)
        index, delta = body.get("index"), body.get("delta")
        event = _Event(_text(body.get("type")), index if isinstance(index, int) else 0)
        if isinstance(delta, dict):
            strings = {name: clean_text(value) for name, value in delta.items() if isinstance(value, str)}
            event.delta = msgspec.convert(strings, _Delta)
        for name in ("content_block", "message", "usage"):
            if name in body:
                setattr(event, name, Raw(encode_json(body[name])))
        return event

    def _torn(self) -> Exception:
        broken = StreamBroken("The stream holds something that is no JSON event; it may be torn.", accepted=True)
        return with_usage(broken, self.usage())


_read_event = msgspec.json.Decoder(_Event).decode
_read_input = msgspec.json.Decoder(_Input).decode
_PLAIN = frozenset({"type", "length", "index"})
_KIND_OF = {"thinking_delta": "thinking", "signature_delta": "thinking"}


def _laid_out(block: _Block) -> JsonObject:
    given = block.given
    kind = given.get("type")
    if kind == "text":
        return {
            "length": block.length,
            **{name: value for name, value in given.items() if value is not None and value != []},
        }
    if block.position >= 0:
        kept = {name: value for name, value in given.items() if name not in ("id", "name", "input")}
        return {"index": block.position, **kept}
    if kind == "thinking":
        return {**given, "thinking": "".join(block.pieces)}
    if block.pieces:
        try:
            return {**given, "input": read_json("".join(block.pieces).encode("utf-8", "replace"))}
        except ValueError:
            return given
    return given


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
