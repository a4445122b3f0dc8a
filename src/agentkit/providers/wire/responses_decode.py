"""Reads answers of the Responses protocol, streamed or whole, from the bytes."""

from __future__ import annotations

from collections.abc import Callable
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
)
from agentkit.errors import BadRequest, StreamBroken
from agentkit.providers.wire.clean import read_json, told_json
from agentkit.providers.wire.failure import error_of_body
from agentkit.providers.wire.fold import Asked, Fold, with_usage
from agentkit.providers.wire.responses_items import ITEMS_KIND, OutputItem, OutputItems, laid_out, text_of_json
from agentkit.providers.wire.responses_shapes import (
    ABSENT,
    Event,
    WireResponse,
    read_event,
    read_response,
    tidied_event,
    tidied_response,
)
from agentkit.providers.wire.responses_usage import ResponsesUsage
from agentkit.providers.wire.sse import SseReader, data_of

__all__ = ["ResponsesDecoder"]

_REASONS: Final[dict[str, StopReason]] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
_ITEM_OF: Final = {
    "output_text": "message",
    "refusal": "message",
    "summary_text": "reasoning",
    "reasoning_text": "reasoning",
}
_NOTHING: Final = (b"", b"null", b"{}", b'""')
_UNFINISHED: Final = ("incomplete", "failed", "cancelled")
_ERRORS: Final = ("error", "response.error")
_BETWEEN: Final = "\n\n"


class ResponsesDecoder:
    """Decodes one answer of the Responses protocol.

    Deltas are told as they come. What closes a part, an item or the response holds its whole text again: what of it
    was not told is told then, and whole arguments take the place of their pieces.
    """

    __slots__ = ("_fold", "_items", "_latest", "_reasons", "_sse", "_usage", "done")

    def __init__(self, asked: Asked) -> None:
        self._fold = Fold(asked)
        self._sse = SseReader()
        self._items = OutputItems()
        self._latest: tuple[str | None, OutputItem | None] = (None, None)
        self._usage = ResponsesUsage()
        self._reasons: dict[str, StopReason] = _REASONS
        self.done = False

    def feed(self, data: bytes, /) -> list[ChatEvent]:
        """Return the events of the next bytes of the stream."""
        events: list[ChatEvent] = []
        for frame in self._sse.feed(data):
            start = frame.find(b"\ndata: {")
            if start > 0 and frame.startswith(b"event: ") and frame.find(b"\n", start + 1) < 0:
                self._read(frame[start + 7 :], events, frame)
            elif frame:
                self._read_frame(frame, events)
        return events

    def whole(self, body: bytes, /) -> list[ChatEvent]:
        """Return all events of an answer that was not streamed."""
        events: list[ChatEvent] = []
        response = self._response(body)
        if response.output is None and bytes(response.error) in _NOTHING:
            self._check_error(found := self._json(body), marked=found.get("type") == "error")
            if response.status is None:
                raise StreamBroken("The answer is no response of this protocol.", accepted=True)
        self._conclude(response, response.status or "completed", events)
        return events + self.end()

    def end(self) -> list[ChatEvent]:
        """Return the last events; raises StreamBroken when the response was neither completed nor cut by a limit."""
        events: list[ChatEvent] = []
        if (rest := self._sse.rest()).strip() and not self.done:
            self._read_frame(rest, events)
        fold = self._fold
        if layout := laid_out(self._items.in_order()):
            fold.opaque.append(OpaqueItem((fold.asked.endpoint, fold.asked.model), ITEMS_KIND, layout))
        return events + fold.end(self._reasons, self.reported())

    def usage(self) -> Usage:
        """Return the last value of each number; what never came is unknown."""
        return self._usage.total(item.given for item in self._items.all)

    def reported(self) -> Reported:
        """Return what is known of the bill so far, the usage with its evidence."""
        items, fold = (item.given for item in self._items.all), self._fold
        return self._usage.reported(items, fold.tier, fold.asked.words)

    def _read_frame(self, frame: bytes, events: list[ChatEvent]) -> None:
        data = data_of(frame)[1].strip()
        if data and data != b"[DONE]":
            self._read(data, events, frame)

    def _read(self, data: bytes, events: list[ChatEvent], frame: bytes) -> None:
        if self.done:
            return
        try:
            event = read_event(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            event = tidied_event(self._json(data))
        if not event.type:
            event.type = data_of(frame)[0].decode("utf-8", "replace")
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            if not self._fold.started and event.response is ABSENT:
                events.append(self._fold.start())
            handler(self, event, events)
        elif event.type in _ERRORS or not event.type.startswith("response."):
            self._check_error(self._json(data), marked=event.type in _ERRORS)

    def _check_error(self, body: JsonObject, *, marked: bool = False) -> None:
        """Raise for an error; other kinds of events are newer than this reader and mean nothing to it."""
        marked = marked or body.get("object") == "error" or "detail" in body
        if body.get("error") is not None:
            raise with_usage(error_of_body(body), self.usage())
        if marked:
            told: JsonObject = {name: value for name, value in body.items() if value != "error"}
            raise with_usage(error_of_body(told), self.usage())

    # --- text and reasoning

    def _text_delta(self, event: Event, events: list[ChatEvent]) -> None:
        if text := event.delta:
            item = self._item("message", event, events)
            part = f"text {event.content_index}" if event.content_index else "text 0"
            item.told[part] = item.told.get(part, 0) + len(text)
            self._tell(item, text, events)

    def _text_done(self, event: Event, events: list[ChatEvent]) -> None:
        item = self._item("message", event, events)
        self._tell(item, item.untold(f"text {event.content_index or 0}", event.text or ""), events)

    def _refusal_delta(self, event: Event, events: list[ChatEvent]) -> None:
        if text := event.delta:
            item = self._item("message", event, events)
            part = f"refusal {event.content_index or 0}"
            item.told[part] = item.told.get(part, 0) + len(text)
            self._refuse(text)

    def _refusal_done(self, event: Event, events: list[ChatEvent]) -> None:
        item = self._item("message", event, events)
        self._refuse(item.untold(f"refusal {event.content_index or 0}", event.refusal or ""))

    def _reasoning_delta(self, event: Event, events: list[ChatEvent]) -> None:
        if text := event.delta:
            item, part = self._item("reasoning", event, events), _reasoning_part(event)
            known = item.told.get(part, 0)
            item.told[part] = known + len(text)
            self._think(text, events, new=not known)

    def _reasoning_done(self, event: Event, events: list[ChatEvent]) -> None:
        item, part = self._item("reasoning", event, events), _reasoning_part(event)
        new = part not in item.told
        self._think(item.untold(part, event.text or ""), events, new=new)

    def _part_done(self, event: Event, events: list[ChatEvent]) -> None:
        given = self._json(event.part)
        kind = _ITEM_OF.get(text_of_json(given.get("type")))
        if kind is not None:
            index = event.summary_index if given.get("type") == "summary_text" else event.content_index
            self._part(self._item(kind, event, events), index or 0, given, events)

    def _part(self, item: OutputItem, index: int, given: JsonValue, events: list[ChatEvent]) -> None:
        """Tell what of a whole part was not told."""
        if not isinstance(given, dict):
            return
        kind, text = given.get("type"), text_of_json(given.get("text"))
        if kind == "output_text":
            self._tell(item, item.untold(f"text {index}", text), events)
        elif kind == "refusal":
            self._refuse(item.untold(f"refusal {index}", text_of_json(given.get("refusal"))))
        elif kind in ("summary_text", "reasoning_text"):
            part = f"{kind} {index}"
            new = part not in item.told
            self._think(item.untold(part, text), events, new=new)

    def _tell(self, item: OutputItem, text: str, events: list[ChatEvent]) -> None:
        if text:
            item.length += self._fold.say(text, events)

    def _refuse(self, text: str) -> None:
        if text:
            self._fold.category = "refusal"
            self._fold.refusal.append(text)

    def _think(self, text: str, events: list[ChatEvent], *, new: bool) -> None:
        if text:
            self._fold.think(_BETWEEN + text if new and self._fold.reasoning else text, events)

    # --- items

    def _item(self, kind: str, event: Event, events: list[ChatEvent]) -> OutputItem:
        """Return the item that an event belongs to, a new one when it was not announced."""
        item_id, item = self._latest
        if item is not None and item.kind == kind and item_id == event.item_id and item_id and not item.closed:
            return item
        item = self._items.find(kind, event.item_id, event.output_index)
        if item is None:
            given: JsonObject = {"type": kind, "id": event.item_id}
            item = self._open(given, event.output_index, events)
        self._latest = (event.item_id, item)
        return item

    def _open(self, given: JsonObject, index: int | None, events: list[ChatEvent]) -> OutputItem:
        kind = text_of_json(given.get("type"))
        item = self._items.open(kind, given, index)
        if kind == "function_call":
            item.call, told = self._fold.calls.open(text_of_json(given.get("call_id")), text_of_json(given.get("name")))
            if told is not None:
                events.append(told)
        return item

    def _added(self, event: Event, events: list[ChatEvent]) -> None:
        given = self._json(event.item)
        known = self._items.find(text_of_json(given.get("type")), text_of_json(given.get("id")), None)
        if known is None or known.closed or not given.get("id") or not known.is_same(given):
            self._open(given, event.output_index, events)

    def _item_done(self, event: Event, events: list[ChatEvent]) -> None:
        self._close(self._json(event.item), event.output_index, events)

    def _close(self, given: JsonObject, index: int | None, events: list[ChatEvent]) -> None:
        kind = text_of_json(given.get("type"))
        item = self._items.find(kind, text_of_json(given.get("id")), index)
        if item is None or (item.closed and not item.is_same(given)):
            item = self._open(given, index, events)
        item.given, item.closed = given, True
        if kind == "function_call":
            self._settle(item, given, events)
            return
        for name in ("content", "summary"):
            parts = given.get(name)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                self._part(item, number, part, events)

    def _arguments_delta(self, event: Event, events: list[ChatEvent]) -> None:
        if event.delta:
            told = self._fold.calls.extend(self._item("function_call", event, events).call, event.delta)
            if told is not None:
                events.append(told)

    def _arguments_done(self, event: Event, events: list[ChatEvent]) -> None:
        self._settle(self._item("function_call", event, events), {"arguments": event.arguments}, events)

    def _settle(self, item: OutputItem, given: JsonObject, events: list[ChatEvent]) -> None:
        arguments = given.get("arguments")
        if isinstance(arguments, dict):
            arguments = told_json(arguments).decode()
        call_id, name = text_of_json(given.get("call_id")), text_of_json(given.get("name"))
        told = self._fold.calls.settle(item.call, call_id, name, text_of_json(arguments))
        if told is not None:
            events.append(told)

    # --- the response

    def _progress(self, event: Event, events: list[ChatEvent]) -> None:
        self._name(self._response(event.response), events)

    def _ended(self, event: Event, events: list[ChatEvent]) -> None:
        response = self._response(event.response)
        status = response.status if response.status in _UNFINISHED else event.type.removeprefix("response.")
        self._conclude(response, status, events)

    def _conclude(self, response: WireResponse, status: str, events: list[ChatEvent]) -> None:
        self._name(response, events)
        if bytes(response.error) not in _NOTHING or status == "failed":
            error = self._json(response.error)
            raise with_usage(error_of_body({"error": error or "the response failed"}), self.usage())
        if status == "cancelled":
            raise with_usage(StreamBroken("The server cancelled the response.", accepted=True), self.usage())
        if status in ("queued", "in_progress"):
            raise with_usage(
                BadRequest("The server answers in the background; take background out of settings.extra."), self.usage()
            )
        for place, given in self._items.missing([self._json(raw) for raw in response.output or ()]):
            self._close(given, place, events)
        self._fold.reason = "completed"
        if status == "incomplete":
            details = self._json(response.incomplete_details)
            self._fold.reason = reason = text_of_json(details.get("reason")) or "incomplete"
            self._reasons = {reason: "length", **_REASONS}
        elif response.incomplete_details is ABSENT and self._at_cap():  # this server does not say that it cut the text
            self._reasons = {**_REASONS, "completed": "length"}
        self.done = True

    def _at_cap(self) -> bool:
        cap, output = self._fold.asked.max_tokens, self._usage.output_tokens
        return cap is not None and output is not None and output >= cap

    def _name(self, response: WireResponse, events: list[ChatEvent]) -> None:
        fold = self._fold
        fold.response_id = response.id or fold.response_id
        fold.model = response.model or fold.model
        fold.tier = response.service_tier or fold.tier
        self._usage.count(self._json(response.usage), self._json(response.tool_usage))
        if not fold.started:
            events.append(fold.start())

    def _response(self, data: bytes | Raw) -> WireResponse:
        try:
            return read_response(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return tidied_response(self._json(data))

    def _json(self, data: bytes | Raw) -> JsonObject:
        if data is ABSENT:
            return {}
        try:
            found = read_json(bytes(data))
        except (ValueError, RecursionError):
            broken = StreamBroken("The stream holds something that is no JSON event; it may be torn.", accepted=True)
            raise with_usage(broken, self.usage()) from None
        return found if isinstance(found, dict) else {}


def _reasoning_part(event: Event) -> str:
    """Return which part of the reasoning an event tells of; summaries and the reasoning itself are numbered apart."""
    if "summary" in event.type:
        return f"summary_text {event.summary_index or 0}"
    return f"reasoning_text {event.content_index or 0}"


_Handler = Callable[[ResponsesDecoder, Event, list[ChatEvent]], None]
_HANDLERS: Final[dict[str, _Handler]] = {
    "response.output_text.delta": ResponsesDecoder._text_delta,
    "response.output_text.done": ResponsesDecoder._text_done,
    "response.refusal.delta": ResponsesDecoder._refusal_delta,
    "response.refusal.done": ResponsesDecoder._refusal_done,
    "response.reasoning_text.delta": ResponsesDecoder._reasoning_delta,
    "response.reasoning_text.done": ResponsesDecoder._reasoning_done,
    "response.reasoning_summary_text.delta": ResponsesDecoder._reasoning_delta,
    "response.reasoning_summary_text.done": ResponsesDecoder._reasoning_done,
    "response.reasoning_summary_part.done": ResponsesDecoder._part_done,
    "response.content_part.done": ResponsesDecoder._part_done,
    "response.function_call_arguments.delta": ResponsesDecoder._arguments_delta,
    "response.function_call_arguments.done": ResponsesDecoder._arguments_done,
    "response.output_item.added": ResponsesDecoder._added,
    "response.output_item.done": ResponsesDecoder._item_done,
    "response.created": ResponsesDecoder._progress,
    "response.queued": ResponsesDecoder._progress,
    "response.in_progress": ResponsesDecoder._progress,
    "response.completed": ResponsesDecoder._ended,
    "response.incomplete": ResponsesDecoder._ended,
    "response.failed": ResponsesDecoder._ended,
    "response.cancelled": ResponsesDecoder._ended,
}
