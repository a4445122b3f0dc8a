"""The parts of Responses events that are read, and how odd events are brought into that shape."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from agentkit.core.contracts import JsonObject, clean_text
from agentkit.providers.wire.clean import told_json, whole_number

__all__ = ["ABSENT", "Event", "WireResponse", "read_event", "read_response", "tidied_event", "tidied_response"]

ABSENT: Final = Raw(b"")


class Event(Struct):
    """One event; which fields it has depends on its type. Items, parts and responses stay raw until they are needed."""

    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: Raw = ABSENT
    part: Raw = ABSENT
    response: Raw = ABSENT


class WireResponse(Struct):
    """What is read of a response: `incomplete_details` is ABSENT where a server has no such field."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    service_tier: str | None = None
    usage: Raw = ABSENT
    tool_usage: Raw = ABSENT
    output: list[Raw] | None = None
    error: Raw = ABSENT
    incomplete_details: Raw = ABSENT


read_event: Final = msgspec.json.Decoder(Event).decode
read_response: Final = msgspec.json.Decoder(WireResponse).decode
_TEXTS: Final = ("type", "delta", "item_id", "text", "refusal", "arguments")
_INDEXES: Final = ("output_index", "content_index", "summary_index")


def tidied_event(body: JsonObject) -> Event:
    """Return an odd event in the usual shape; values of wrong types are left out, arguments may be an object."""
    event = Event()
    for name in _TEXTS:
        if isinstance(value := body.get(name), str):
            setattr(event, name, clean_text(value))
    for name in _INDEXES:
        setattr(event, name, whole_number(body.get(name)))
    for name in ("item", "part", "response"):
        if name in body:
            setattr(event, name, Raw(told_json(body[name])))
    if isinstance(arguments := body.get("arguments"), dict):
        event.arguments = told_json(arguments).decode()
    return event


def tidied_response(body: JsonObject) -> WireResponse:
    """Return an odd response in the usual shape; values of wrong types are left out."""
    response = WireResponse()
    for name in ("id", "model", "status", "service_tier"):
        if isinstance(value := body.get(name), str):
            setattr(response, name, clean_text(value))
    for name in ("usage", "tool_usage", "error", "incomplete_details"):
        if name in body:
            setattr(response, name, Raw(told_json(body[name])))
    if isinstance(output := body.get("output"), list):
        response.output = [Raw(told_json(item)) for item in output]
    return response
