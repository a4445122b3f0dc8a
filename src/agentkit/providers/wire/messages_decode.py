"""Reads answers of the Messages protocol, streamed or whole, from the bytes."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from agentkit.core.contracts import (
    ChatEvent,
    JsonObject,
    JsonValue,
    OpaqueItem,
    Reported,
    StopReason,
    Usage,
    clean_text,
)
from agentkit.errors import StreamBroken
from agentkit.providers.wire.clean import read_json, told_json
from agentkit.providers.wire.failure import error_of_body
from agentkit.providers.wire.fold import Asked, Fold, with_usage
from agentkit.providers.wire.messages_blocks import BLOCKS_KIND, CONTAINER_KIND, Block, is_plain
from agentkit.providers.wire.messages_shapes import (
    AnyDelta,
    Delta,
    Event,
    read_content,
    read_event,
    read_input,
    read_piece,
)
from agentkit.providers.wire.messages_usage import MessagesUsage
from agentkit.providers.wire.sse import SseReader, data_of

__all__ = ["BLOCKS_KIND", "MessagesDecoder"]

_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}
_PIECE = b"event: content_block_delta\ndata: {"
_PIECE_AT = len(_PIECE) - 1
_NO_INPUT = ("{}", "null")
_DONE = b"[DONE]"  # some gateways end this protocol as they end the other one


class MessagesDecoder:
    """Decodes one answer of the Messages protocol.

    Blocks are kept in the order in which they open, whatever their index. Those that only their owner can read, which
    are all but text and the client's tool calls, go into the message's opaque items and never run here.
    """

    __slots__ = ("_blocks", "_by_index", "_container", "_fold", "_sse", "_usage", "done")

    def __init__(self, asked: Asked) -> None:
        self._fold = Fold(asked, compact=True)
        self._sse = SseReader()
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._usage = MessagesUsage()
        self._container = ""
        self.done = False

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of the stream."""
        events: list[ChatEvent] = []
        for frame in self._sse.feed(data):
            if frame.startswith(_PIECE) and frame.find(b"\n", _PIECE_AT) < 0:
                self._read_piece(frame, events)
                continue
            start = frame.find(b"\ndata: {")
            if start > 0 and frame.startswith(b"event: ") and frame.find(b"\n", start + 1) < 0:
                self._read(frame[start + 7 :], events, frame)
            elif frame:
                self._read_frame(frame, events)
            if self.done:
                break
        return events

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed."""
        events: list[ChatEvent] = []
        message = self._json(body)
        if message.get("type") == "error" or "error" in message:
            raise error_of_body(message)
        if "content" not in message and "stop_reason" not in message:
            raise StreamBroken("The answer is no message of this protocol.", accepted=True)
        self._begin(message, events, streamed=False)
        for index, raw in enumerate(self._content(body, message)):
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
        for index in tuple(self._by_index):  # a server may leave out the stop of its last block
            self._close(index, events)
        self._keep_blocks()
        return events + fold.end(_REASONS, self.reported())

    def usage(self) -> Usage:
        """Return the last value of each number; input counts cache reads and writes too."""
        return self._usage.total()

    def reported(self) -> Reported:
        """Return what is known of the bill so far, the usage with its evidence."""
        return self._usage.reported(self._fold.asked.words)

    def _read_frame(self, frame: bytes, events: list[ChatEvent]) -> None:
        _, data = data_of(frame)
        data = data.strip()
        if data == _DONE:
            self.done = self.done or self._fold.reason is not None
        elif data and not self.done:
            self._read(data, events, frame)

    def _read_piece(self, frame: bytes, events: list[ChatEvent]) -> None:
        """Read a piece as servers write nearly all of them, most of a stream, with only the fields it has."""
        data = frame[_PIECE_AT:]
        try:
            piece = read_piece(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._read(data, events, frame)
            return
        if piece.type == "content_block_delta" and piece.delta is not None:
            self._delta(piece.index, piece.delta, events, data)
        else:
            self._read(data, events, frame)

    def _read(self, data: bytes, events: list[ChatEvent], frame: bytes) -> None:
        try:
            event = read_event(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            event = self._tolerant(data)
        kind = event.type or data_of(frame)[0].decode("ascii", "replace")
        if kind == "content_block_delta":
            if event.delta is not None:
                self._delta(event.index, event.delta, events, data)
        elif kind == "content_block_start":
            self._open(event.index, event.content_block, events)
        elif kind == "content_block_stop":
            self._close(event.index, events)
        elif kind == "message_delta":
            self._usage.count(self._json(event.usage))
            if event.delta is not None:
                self._finish(event.delta)
        elif kind == "message_start":
            self._begin(self._json(event.message), events)
        elif kind == "message_stop":
            self.done = True
        elif kind != "ping":
            self._unknown(kind, data, frame)

    def _unknown(self, kind: str, data: bytes, frame: bytes) -> None:
        """Raise for an error; other kinds of events are newer than this reader and mean nothing to it."""
        body = self._json(data)
        if kind == "error" or "error" in body or data_of(frame)[0] == b"error":
            raise with_usage(error_of_body(body), self.usage())

    def _begin(self, message: JsonObject, events: list[ChatEvent], *, streamed: bool = True) -> None:
        """Take what is known of the message; llama.cpp streams some answers without saying anything of it."""
        fold = self._fold
        fold.response_id = _text(message.get("id")) or fold.response_id
        fold.model = _text(message.get("model")) or fold.model
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage.count(usage)
        self._contain(message.get("container"))
        if not fold.started:
            events.append(fold.start(self.reported() if usage and streamed else None))

    def _finish(self, delta: AnyDelta) -> None:
        self._fold.reason = delta.stop_reason or self._fold.reason
        self._explain(delta.stop_details)
        self._contain(delta.container)

    def _content(self, body: bytes, message: JsonObject) -> list[Raw]:
        try:
            return read_content(body).content
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            content = message.get("content")
            return [Raw(told_json(block)) for block in content] if isinstance(content, list) else []

    def _open(self, index: int, raw: Raw, events: list[ChatEvent]) -> None:
        given = self._json(raw)
        if not self._fold.started:
            self._begin({}, events)
        if index in self._by_index:
            self._close(index, events)
        block = self._by_index[index] = Block(given)
        self._blocks.append(block)
        kind = given.get("type")
        if kind == "text":
            if text := _text(given.pop("text", "")):
                self._delta(index, Delta("text_delta", text=text), events, b"")
        elif kind == "thinking":
            if thinking := _text(given.get("thinking")):
                given["thinking"] = ""
                self._delta(index, Delta("thinking_delta", thinking=thinking), events, b"")
        elif kind == "tool_use":
            given_input = bytes(read_input(bytes(raw)).input).decode("utf-8", "replace")
            block.untold = "" if given_input in _NO_INPUT else given_input
            self._call(block, _text(given.get("id")), _text(given.get("name")), events)

    def _call(self, block: Block, given: str, name: str, events: list[ChatEvent]) -> None:
        block.position = len(self._fold.calls)
        told = self._fold.calls.add(block.position, given, name, "")
        if told is not None:
            events.append(told)

    def _delta(self, index: int, delta: Delta, events: list[ChatEvent], data: bytes) -> None:
        block = self._by_index.get(index)
        kind = delta.type
        if block is None:
            block = self._late(index, kind, events)
        if kind == "text_delta":
            if delta.text:
                block.length += self._fold.say(delta.text, events)
        elif kind == "input_json_delta":
            if delta.partial_json:
                self._input(block, delta.partial_json, events)
        elif kind == "thinking_delta":
            if delta.thinking:
                block.pieces.append(delta.thinking)
                self._fold.think(delta.thinking, events)
        elif kind == "signature_delta":
            block.extend("signature", delta.signature or "")
        elif kind == "citations_delta":
            block.cite(delta.citation)
        elif isinstance(raw := self._json(data).get("delta"), dict):
            block.merge(raw)

    def _late(self, index: int, kind: str, events: list[ChatEvent]) -> Block:
        """Return a block for a piece that came without one; a call without its start has no name and will not run."""
        if not self._fold.started:
            self._begin({}, events)
        block = self._by_index[index] = Block.unannounced(kind)
        self._blocks.append(block)
        if kind == "input_json_delta":
            self._call(block, "", "", events)
        return block

    def _input(self, block: Block, text: str, events: list[ChatEvent]) -> None:
        if block.position < 0:  # a server tool's input: kept in its block
            block.pieces.append(text)
        elif block.told:
            self._arguments(block, text, events)
        elif text == "{}":
            block.untold = text  # a placeholder that a gateway sent on as a piece, unless nothing follows
        else:
            block.untold = ""
            self._arguments(block, text, events)

    def _arguments(self, block: Block, text: str, events: list[ChatEvent]) -> None:
        block.told = True
        told = self._fold.calls.add(block.position, None, None, text)
        if told is not None:
            events.append(told)

    def _close(self, index: int, events: list[ChatEvent]) -> None:
        block = self._by_index.get(index)
        if block is not None and (untold := block.unsaid_input()):
            self._arguments(block, untold, events)

    def _keep_blocks(self) -> None:
        """Keep the blocks in their order when the message alone does not say it, and the container they ran in."""
        fold = self._fold
        owner = (fold.asked.endpoint, fold.asked.model)
        layout = [block.laid_out() for block in self._blocks]
        if not is_plain(layout) or (fold.reason == "pause_turn" and layout):
            fold.opaque.append(OpaqueItem(owner, BLOCKS_KIND, list(layout)))
        if self._container:
            fold.opaque.append(OpaqueItem(owner, CONTAINER_KIND, self._container))

    def _explain(self, details: JsonValue) -> None:
        if isinstance(details, dict):
            self._fold.category = _text(details.get("category"))
            self._fold.explanation = _text(details.get("explanation"))

    def _contain(self, container: JsonValue) -> None:
        if isinstance(container, dict):
            self._container = _text(container.get("id"))

    def _json(self, data: bytes | Raw) -> JsonObject:
        try:
            found = read_json(bytes(data))
        except (ValueError, RecursionError):
            raise self._torn() from None
        return found if isinstance(found, dict) else {}

    def _tolerant(self, data: bytes) -> Event:
        body = self._json(data)
        index, delta = body.get("index"), body.get("delta")
        event = Event(_text(body.get("type")), index if isinstance(index, int) else 0)
        if isinstance(delta, dict):
            fields: JsonObject = {name: clean_text(value) for name, value in delta.items() if isinstance(value, str)}
            fields.update({name: delta.get(name) for name in ("citation", "stop_details", "container")})
            event.delta = msgspec.convert(fields, AnyDelta)
        for name in ("content_block", "message", "usage"):
            if name in body:
                setattr(event, name, Raw(told_json(body[name])))
        return event

    def _torn(self) -> Exception:
        broken = StreamBroken("The stream holds something that is no JSON event; it may be torn.", accepted=True)
        return with_usage(broken, self.usage())


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
