"""What servers put beside a chat answer and want back with it: reasoning details, and the signatures of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from agentkit.core.contracts import ChatEvent, JsonObject, JsonValue, OpaqueItem
from agentkit.providers.profiles import Echo
from agentkit.providers.wire.chat_decode import ECHO_KIND, ChatDecoder
from agentkit.providers.wire.chat_shapes import NO_ERROR, CallPiece, Choice, Chunk, Delta, FullChunk
from agentkit.providers.wire.chat_think import ThinkDecoder
from agentkit.providers.wire.clean import read_json
from agentkit.providers.wire.fold import Asked

__all__ = ["ECHO_KINDS", "EchoDecoder", "chat_decoder", "sign_calls"]

ECHO_KINDS: Final[dict[Echo, str]] = {
    "": ECHO_KIND,
    "content": ECHO_KIND,
    "details": "chat.reasoning_details",
    "signatures": "chat.call_signatures",
}
_NONE: Final = NO_ERROR
_UNSIGNED: Final = "skip_thought_signature_validator"  # Google's word for a call that another model made
_GROWING: Final = ("text", "summary", "data")


class _Piece(CallPiece):
    extra_content: Raw = _NONE


class _Delta(Delta):
    tool_calls: list[_Piece] | None = None  # type: ignore[assignment]
    reasoning_details: Raw = _NONE


class _Choice(Choice):
    delta: _Delta | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class _Chunk(FullChunk):
    choices: list[_Choice] | None = None  # type: ignore[assignment]


_read: Final[msgspec.json.Decoder[Chunk]] = msgspec.json.Decoder(_Chunk)


class EchoDecoder(ChatDecoder):
    """Decodes an answer and keeps what has to go back with it; for servers whose profile asks for that."""

    __slots__ = ("_details", "_signatures")

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._decode = _read
        self._details: list[JsonObject] = []
        self._signatures: dict[int, JsonValue] = {}

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed."""
        try:
            answer = read_json(body)
        except (ValueError, RecursionError):
            answer = None
        message = _message(answer)
        details, calls = message.get("reasoning_details"), message.get("tool_calls")
        self._add_details(details)
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and call.get("extra_content"):
                self._signatures[place] = call["extra_content"]
        return super().whole(body)

    def _flush(self, events: list[ChatEvent]) -> None:
        super()._flush(events)
        fold = self._fold
        data: JsonValue = None
        if fold.asked.echo == "details":
            data = list[JsonValue](self._details)
        elif self._signatures:
            data = [self._signatures.get(place) for place in range(len(fold.calls))]
        if data:
            fold.opaque.append(OpaqueItem((fold.asked.endpoint, fold.asked.model), ECHO_KINDS[fold.asked.echo], data))

    def _take(self, chunk: Chunk, data: bytes | JsonObject, events: list[ChatEvent]) -> None:
        self._named(chunk)
        super()._take(chunk, data, events)
        for choice in (chunk.choices or ())[:1]:
            details = getattr(choice.delta, "reasoning_details", _NONE)
            if details is not _NONE and not choice.index:
                self._add_details(read_json(bytes(details)))

    def _named(self, chunk: Chunk) -> None:
        super()._named(chunk)
        self._decode = _read

    def _calls(self, pieces: Sequence[CallPiece], events: list[ChatEvent]) -> None:
        for piece in pieces:
            super()._calls([piece], events)
            extra = getattr(piece, "extra_content", _NONE)
            if extra is not _NONE and (signature := read_json(bytes(extra))):
                self._signatures[len(self._fold.calls) - 1] = signature

    def _add_details(self, details: JsonValue) -> None:
        """Add the details; pieces of one detail, which come in a row, are put together."""
        for detail in details if isinstance(details, list) else ():
            if not isinstance(detail, dict):
                continue
            last = self._details[-1] if self._details else None
            if last is None or _mark(last) != _mark(detail):
                self._details.append(dict(detail))
                continue
            for name, value in detail.items():
                before = last.get(name)
                if name in _GROWING and isinstance(before, str) and isinstance(value, str):
                    last[name] = before + value
                elif value is not None:
                    last[name] = value


def chat_decoder(asked: Asked) -> ChatDecoder:
    """Return the decoder for an answer, the plain one where nothing but its text goes back."""
    if asked.echo in ("details", "signatures"):
        return EchoDecoder(asked)
    return ThinkDecoder(asked) if asked.think_tags else ChatDecoder(asked)


def sign_calls(calls: Sequence[JsonObject], signatures: JsonValue) -> None:
    """Put each call's own signature back on it; the first call of a turn that has none says that it has none."""
    for call, signature in zip(calls, signatures if isinstance(signatures, list) else (), strict=False):
        if signature:
            call["extra_content"] = signature
    if calls and not any("extra_content" in call for call in calls):
        calls[0]["extra_content"] = {"google": {"thought_signature": _UNSIGNED}}


def _mark(detail: JsonObject) -> tuple[JsonValue, JsonValue]:
    return detail.get("type"), detail.get("index")


def _message(answer: JsonValue) -> JsonObject:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}
