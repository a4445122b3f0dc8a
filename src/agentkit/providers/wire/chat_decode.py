"""Reads answers of the Chat Completions protocol, streamed or whole, from the bytes."""

from __future__ import annotations

from collections.abc import Sequence
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
    TextDelta,
    Usage,
    clean_text,
)
from agentkit.errors import ProviderError, StreamBroken
from agentkit.providers.wire.chat_shapes import (
    NO_ERROR,
    CallPiece,
    Choice,
    Chunk,
    Delta,
    Function,
    WireUsage,
    read_chunk,
    read_full,
    told_usage,
)
from agentkit.providers.wire.chat_tidy import documents, is_failure, tidied
from agentkit.providers.wire.clean import count_of, is_json, read_json
from agentkit.providers.wire.evidence import billing_of, kept_usage, sorted_units, units_of
from agentkit.providers.wire.failure import error_of_body, malformed_turn
from agentkit.providers.wire.fold import Asked, Fold, with_usage
from agentkit.providers.wire.sse import SseReader, data_of

__all__ = ["ECHO_KIND", "ChatDecoder"]

ECHO_KIND: Final = "chat.reasoning_content"
_REASONS: Final[dict[str, StopReason]] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "context_window",
    "model_context_window_exceeded": "context_window",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
}
_LASTING: Final = frozenset(
    {"length", "context_window", "content_filter", "refusal"}
)  # no later reason takes one of these back
_FAILED: Final = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})
_NO_JSON: Final = "The stream holds something that is no JSON chunk; it may be torn."


class ChatDecoder:
    """Decodes one answer of the Chat Completions protocol."""

    __slots__ = ("_decode", "_fold", "_sse", "_told", "_usage", "done")

    def __init__(self, asked: Asked) -> None:
        self._fold = Fold(asked)
        self._sse = SseReader()
        self._decode: msgspec.json.Decoder[Chunk] = read_full
        self._usage: dict[str, int] = {}
        self._told: bytes | JsonObject = {}  # the last chunk with a usage
        self.done = False

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of the stream; what follows its end marker means nothing."""
        events: list[ChatEvent] = []
        if self.done:
            return events
        for frame in self._sse.feed(data):
            if frame.startswith(b"data: {") and b"\n" not in frame:
                self._read(frame[6:], events)
            elif frame:
                self._read_frame(frame, events)
                if self.done:
                    break
        return events

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed, or of a stream that came in one piece."""
        try:
            chunk: Chunk = read_full.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            try:
                (one,) = documents(body)
                chunk = tidied(one)
            except (ValueError, RecursionError):
                return self._whole_stream(body)
        events: list[ChatEvent] = []
        complete = False
        for choice in chunk.choices or ():
            complete = complete or choice.message is not None
            choice.delta, choice.message = choice.message or choice.delta, None
            for place, piece in enumerate((choice.delta and choice.delta.tool_calls) or ()):
                piece.index = place
        self._take(chunk, body, events)
        if complete and self._fold.reason is None:
            self._fold.reason = "stop"
        return events + self.end()

    def end(self) -> list[ChatEvent]:
        """Return the last events; raises StreamBroken when no finish reason came."""
        events: list[ChatEvent] = []
        if (rest := self._sse.rest()).strip() and not self.done:
            self._read_frame(rest, events)
        fold = self._fold
        self._flush(events)
        if fold.asked.echo == "content" and fold.reasoning:
            owner = (fold.asked.endpoint, fold.asked.model)
            fold.opaque.append(OpaqueItem(owner, ECHO_KIND, "".join(fold.reasoning)))
        events += fold.end(_REASONS, self.reported())
        return events

    def _flush(self, events: list[ChatEvent]) -> None:
        self._fold.flush(events)

    def usage(self) -> Usage:
        """Return the last value of each number; what never came is unknown."""
        return self._counted(told_usage(self._told))

    def reported(self) -> Reported:
        """Return what is known of the bill so far, the usage with its evidence."""
        raw, fold = told_usage(self._told), self._fold
        kept = kept_usage(raw, fold.asked.words)
        return Reported(usage=self._counted(raw), raw=kept, service_tier=fold.tier, billing=billing_of(raw))

    def _counted(self, raw: JsonObject) -> Usage:
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
            units=sorted_units(units_of(raw)),
        )

    def _whole_stream(self, body: bytes) -> list[ChatEvent]:
        start = body.lstrip()[:1]
        if start in (b"<", b""):
            what = "an HTML or XML page" if start else "an empty body"
            raise StreamBroken(
                f"The server answered with {what} in place of an answer; look at base_url, and at proxies on the way.",
                accepted=True,
            )
        if start != b"{" and b"data:" not in body:
            raise StreamBroken("The answer is no JSON object; it may be torn.", accepted=True)
        return self.feed(body) + self.end()

    def _read_frame(self, frame: bytes, events: list[ChatEvent]) -> None:
        name, data = data_of(frame)
        data = data.strip()
        if data == b"[DONE]":
            self.done = True
        elif data and not self.done:
            if name == b"error":
                raise with_usage(error_of_body(_error_in(data)), self.usage())
            for piece in _pieces(data):
                if piece == b"[DONE]":
                    self.done = True
                    return
                self._read(piece, events)

    def _read(self, data: bytes, events: list[ChatEvent]) -> None:
        try:
            chunk = self._decode.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._read_odd(data, events)
        else:
            self._take(chunk, data, events)

    def _read_odd(self, data: bytes, events: list[ChatEvent]) -> None:
        try:
            for body in documents(data):
                self._take(tidied(body), body, events)
        except (ValueError, RecursionError):
            raise with_usage(StreamBroken(_NO_JSON, accepted=True), self.usage()) from None

    def _take(self, chunk: Chunk, data: bytes | JsonObject, events: list[ChatEvent]) -> None:
        if chunk.usage is not None:
            self._count(chunk.usage, data)
        if self._decode is read_full:
            self._named(chunk)
        if chunk.error is not NO_ERROR or not chunk.choices or chunk.x_groq is not None:
            self._check_error(chunk, data)
            if not chunk.choices:
                return
        fold = self._fold
        if not fold.started:
            events.append(fold.start())
        choice = chunk.choices[0]
        if choice.index and (choice := _first(chunk.choices)) is None:  # type: ignore[assignment]
            return
        delta = choice.delta
        if delta is None and choice.message is not None and not (fold.text or len(fold.calls)):
            delta = choice.message  # in place of deltas; after them it only says all again
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.refusal or delta.function_call is not None:
                self._rare(delta, events)
            text = delta.content
            if text:
                if text.isascii() and "\x00" not in text and not fold.words.held:
                    fold.text.append(text)
                    events.append(TextDelta(text))
                else:
                    fold.say(text, events)
            if delta.tool_calls:
                if len(delta.tool_calls) > 1:
                    self._number(delta.tool_calls)
                self._calls(delta.tool_calls, events)
        if choice.finish_reason is not None or choice.usage is not None:
            self._finished(choice, data)

    def _rare(self, delta: Delta, events: list[ChatEvent]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._fold.think(reasoning, events)
        if delta.refusal:
            self._fold.refusal.append(clean_text(delta.refusal))
        if delta.function_call is not None:
            self._calls([CallPiece(0, None, delta.function_call)], events)

    def _number(self, pieces: Sequence[CallPiece]) -> None:
        """Number several pieces without any number: they are whole calls, one after the other."""
        if all(piece.index is None and piece.function for piece in pieces):
            for place, piece in enumerate(pieces, len(self._fold.calls)):
                piece.index = place

    def _calls(self, pieces: Sequence[CallPiece], events: list[ChatEvent]) -> None:
        assembly = self._fold.calls
        for piece in pieces:
            function = piece.function or _NO_FUNCTION
            told = assembly.add(piece.index, piece.id, function.name, function.arguments)
            if told is not None:
                events.append(told)

    def _finished(self, choice: Choice, data: bytes | JsonObject) -> None:
        if choice.usage is not None:
            self._count(choice.usage, data)
        reason = choice.finish_reason
        if not reason:
            return
        name = reason.lower()
        if name in _FAILED:
            raise with_usage(_failure_of(data, reason), self.usage())
        if name == "malformed_function_call":
            raise with_usage(malformed_turn(f"the server ended it as {reason}"), self.usage())
        known = self._fold.reason
        if known is None or _REASONS.get(known.lower()) not in _LASTING:
            self._fold.reason = reason

    def _named(self, chunk: Chunk) -> None:
        fold = self._fold
        fold.response_id = fold.response_id or clean_text(getattr(chunk, "id", None) or "")
        fold.model = fold.model or clean_text(getattr(chunk, "model", None) or "")
        fold.tier = fold.tier or getattr(chunk, "service_tier", None)
        if fold.response_id and fold.model and fold.started:
            self._decode = read_chunk

    def _count(self, usage: WireUsage, data: bytes | JsonObject) -> None:
        self._told = data
        for part in (usage, usage.prompt_tokens_details, usage.completion_tokens_details):
            if part is not None:
                for name in part.__struct_fields__:
                    value = getattr(part, name)
                    if isinstance(value, int) and count_of(value) is not None:
                        self._usage[name] = value

    def _check_error(self, chunk: Chunk, data: bytes | JsonObject) -> None:
        groq = chunk.x_groq
        if groq is not None:
            if groq.usage is not None:
                self._count(groq.usage, data)
            if bytes(groq.error) not in _NOTHING:
                raise with_usage(error_of_body({"error": read_json(bytes(groq.error))}), self.usage())
        if bytes(chunk.error) not in _NOTHING:
            raise with_usage(error_of_body(_body(data)), self.usage())
        if chunk.choices is None and chunk.usage is None:
            body = _body(data)
            if is_failure(body):
                raise with_usage(error_of_body(body), self.usage())


_NOTHING: Final = (b"null", b"{}", b'""', b"false", b"[]")
_NO_FUNCTION: Final = Function()


def _first(choices: list[Choice]) -> Choice | None:
    """Return the answer that was asked for, None where only further ones are told of."""
    return next((choice for choice in choices if not choice.index), None)


def _body(data: bytes | JsonObject) -> JsonObject:
    return data if isinstance(data, dict) else next(documents(data), {})


def _failure_of(data: bytes | JsonObject, reason: str) -> ProviderError:
    """Return the error of a chunk that ends with a failure: the one it tells, in the chunk or in its choice."""
    body = _body(data)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    found = body.get("error") or (choice.get("error") if isinstance(choice, dict) else None)
    told: JsonValue = {"message": f"the server ended the answer with {reason!r}", "code": reason}
    return error_of_body({"error": found or told})


def _error_in(data: bytes) -> JsonValue:
    """Return the body of an event that is named an error, whatever it is."""
    try:
        body = read_json(data)
    except (ValueError, RecursionError):
        body = data.decode("utf-8", "replace")
    return body if isinstance(body, dict) and "error" in body else {"error": body}


def _pieces(data: bytes) -> list[bytes]:
    """Return the data as one document, or line by line where a server left the blank lines out."""
    if b"\n" not in data:
        return [data]
    try:
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        lines = [line.strip() for line in data.split(b"\n") if line.strip()]
        each = all(line == b"[DONE]" or is_json(line.decode("utf-8", "replace")) for line in lines)
        return lines if each else [data]
    return [data]
