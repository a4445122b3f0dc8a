"""Reads answers of the Chat Completions protocol, streamed or whole, from the bytes."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from agentkit.core.contracts import (
    ChatEvent,
    JsonValue,
    OpaqueItem,
    ReasoningDelta,
    StopReason,
    TextDelta,
    Usage,
)
from agentkit.errors import StreamBroken
from agentkit.providers.wire.chat_shapes import (
    NO_ERROR,
    CallPiece,
    Choice,
    Chunk,
    Delta,
    FullChunk,
    Function,
    WireUsage,
    read_chunk,
    read_full,
    read_whole,
    tidied,
)
from agentkit.providers.wire.clean import encode_json, join_surrogates, read_json
from agentkit.providers.wire.failure import error_of_body
from agentkit.providers.wire.fold import Asked, Fold, with_usage
from agentkit.providers.wire.sse import SseReader, data_of

__all__ = ["ECHO_KIND", "ChatDecoder"]

ECHO_KIND: Final = "chat.reasoning_content"
_REASONS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "context_window",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "refusal",
}


class ChatDecoder:
    """Decodes one answer of the Chat Completions protocol."""

    __slots__ = ("_decode", "_fold", "_held", "_sse", "_usage", "done")

    def __init__(self, asked: Asked) -> None:
        self._fold = Fold(asked)
        self._sse = SseReader()
        self._decode: msgspec.json.Decoder[Chunk] = read_full
        self._usage: dict[str, int] = {}
        self._held = ""
        self.done = False

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of the stream."""
        events: list[ChatEvent] = []
        for frame in self._sse.feed(data):
            if frame.startswith(b"data: {") and b"\n" not in frame:
                self._read(frame[6:], events)
            elif frame:
                self._read_frame(frame, events)
        return events

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed."""
        events: list[ChatEvent] = []
        try:
            chunk: Chunk = read_whole.decode(body)
            for choice in chunk.choices or ():
                for place, piece in enumerate((choice.delta and choice.delta.tool_calls) or ()):
                    piece.index = place
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._read(_as_chunk(body), events)
        else:
            self._take(chunk, body, events)
        if self._fold.started and self._fold.reason is None:
            self._fold.reason = "stop"
        return events + self.end()

    def end(self) -> list[ChatEvent]:
        """Return the last events; raises StreamBroken when no finish reason came."""
        events: list[ChatEvent] = []
        if (rest := self._sse.rest()).strip() and not self.done:
            self._read_frame(rest, events)
        if self._held:
            self._held = ""
            self._text("\ufffd", events)
        fold = self._fold
        if fold.asked.echo == "content" and fold.reasoning:
            owner = (fold.asked.endpoint, fold.asked.model)
            fold.opaque.append(OpaqueItem(owner, ECHO_KIND, "".join(fold.reasoning)))
        events += fold.end(_REASONS, self.usage())
        return events

    def usage(self) -> Usage:
        """Return the last value of each number; what never came is unknown."""
        found = self._usage
        if not found:
            return Usage(None, None, None, None, None, None)
        read, written = found.get("prompt_tokens"), found.get("completion_tokens")
        if self._fold.asked.output_is_rest and read is not None and "total_tokens" in found:
            written = max(written or 0, found["total_tokens"] - read)
        return Usage(
            read,
            written,
            found.get("cached_tokens", found.get("prompt_cache_hit_tokens", 0)),
            found.get("cache_write_tokens", 0),
            0,
            found.get("reasoning_tokens", 0),
        )

    def _read_frame(self, frame: bytes, events: list[ChatEvent]) -> None:
        name, data = data_of(frame)
        data = data.strip()
        if data == b"[DONE]":
            self.done = True
        elif data and not self.done:
            if name == b"error":
                data = b'{"error":' + data + b"}" if b'"error"' not in data else data
            for piece in _pieces(data):
                if piece == b"[DONE]":
                    self.done = True
                else:
                    self._read(piece, events)

    def _read(self, data: bytes, events: list[ChatEvent]) -> None:
        try:
            chunk = self._decode.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            chunk = self._tolerant(data)
        self._take(chunk, data, events)

    def _take(self, chunk: Chunk, data: bytes, events: list[ChatEvent]) -> None:
        if chunk.usage is not None:
            self._count(chunk.usage)
        if self._decode is read_full:
            self._named(chunk)
        if chunk.error is not NO_ERROR or not chunk.choices:
            self._check_error(chunk, data)
            if not chunk.choices:
                return
        fold = self._fold
        if not fold.started:
            events.append(fold.start())
        choice = chunk.choices[0]
        if choice.index:  # a further answer, which nobody asked for
            return
        delta = choice.delta
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.refusal:
                self._rare(delta, events)
            text = delta.content
            if text:
                if self._held or not text.isascii():
                    self._text(text, events)
                else:
                    fold.text.append(text)
                    events.append(TextDelta(text))
            if delta.tool_calls:
                self._calls(delta.tool_calls, events)
        if choice.finish_reason is not None or choice.usage is not None:
            self._finished(choice, data)

    def _rare(self, delta: Delta, events: list[ChatEvent]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._fold.reasoning.append(reasoning)
            events.append(ReasoningDelta(reasoning))
        if delta.refusal:
            self._fold.refusal.append(delta.refusal)

    def _text(self, text: str, events: list[ChatEvent]) -> None:
        """Tell text beyond ASCII; half a surrogate pair waits for its other half."""
        text = join_surrogates(self._held + text) if self._held else text
        self._held = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if text:
            self._fold.text.append(text)
            events.append(TextDelta(text))

    def _calls(self, pieces: list[CallPiece], events: list[ChatEvent]) -> None:
        assembly = self._fold.calls
        for piece in pieces:
            function = piece.function or Function()
            told = assembly.add(piece.index, piece.id, function.name, function.arguments)
            if told is not None:
                events.append(told)

    def _finished(self, choice: Choice, data: bytes) -> None:
        if choice.usage is not None:
            self._count(choice.usage)
        if choice.finish_reason == "error":
            raise with_usage(error_of_body(read_json(data)), self.usage())
        if choice.finish_reason:
            self._fold.reason = choice.finish_reason

    def _named(self, chunk: Chunk) -> None:
        fold = self._fold
        fold.response_id = fold.response_id or getattr(chunk, "id", None) or ""
        fold.model = fold.model or getattr(chunk, "model", None) or ""
        fold.tier = fold.tier or getattr(chunk, "service_tier", None)
        if fold.response_id and fold.model and fold.started:
            self._decode = read_chunk

    def _count(self, usage: WireUsage) -> None:
        for part in (usage, usage.prompt_tokens_details, usage.completion_tokens_details):
            if part is not None:
                for name in part.__struct_fields__:
                    value = getattr(part, name)
                    if isinstance(value, int):
                        self._usage[name] = value

    def _check_error(self, chunk: Chunk, data: bytes) -> None:
        if bytes(chunk.error) not in (b"null", b"{}", b'""'):
            raise with_usage(error_of_body(read_json(data)), self.usage())
        if chunk.choices is None and chunk.usage is None:
            body = read_json(data)
            failed = isinstance(body, dict) and (
                body.get("object") == "error" or body.get("type") == "error" or "detail" in body
            )
            if failed:
                raise with_usage(error_of_body(body), self.usage())

    def _tolerant(self, data: bytes) -> Chunk:
        try:
            body = read_json(data)
            return msgspec.convert(tidied(body), FullChunk, strict=False)
        except (ValueError, RecursionError):
            broken = StreamBroken("The stream holds something that is no JSON chunk; it may be torn.", accepted=True)
            raise with_usage(broken, self.usage()) from None


def _pieces(data: bytes) -> list[bytes]:
    """Return the data as one document, or line by line where a server left the blank lines out."""
    if b"\n" not in data:
        return [data]
    try:
        msgspec.json.decode(data, type=Raw)
    except msgspec.DecodeError:
        return [line for line in data.split(b"\n") if line.strip()]
    return [data]


def _as_chunk(body: bytes) -> bytes:
    """Return a whole answer in the shape of one chunk that holds everything."""
    try:
        answer = read_json(body)
    except (ValueError, RecursionError):
        raise StreamBroken("The answer is not JSON; it may be torn.", accepted=True) from None
    if not isinstance(answer, dict):
        raise StreamBroken("The answer is not a JSON object.", accepted=True)
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        message = choice.get("message")
        if isinstance(message, dict):
            calls = message.get("tool_calls")
            if isinstance(calls, list):
                numbered: list[JsonValue] = [
                    {**call, "index": place} if isinstance(call, dict) else call for place, call in enumerate(calls)
                ]
                message = {**message, "tool_calls": numbered}
            choice = {**choice, "delta": message}
        answer = {**answer, "choices": [choice]}
    return _lossless(answer)


def _lossless(value: JsonValue) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return encode_json(value)
