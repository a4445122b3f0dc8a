"""Amazon's binary event stream, as Bedrock answers, turned back into the server-sent events it carries.

A message is: its length, its headers' length (4 bytes each, big endian), a checksum, headers, payload, a checksum.
The payload is JSON with the event in base64 under "bytes". Source: "Event stream encoding" of the AWS SDK reference.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final

import msgspec

from agentkit.core.contracts import JsonObject
from agentkit.errors import StreamBroken

__all__ = ["EVENT_STREAM", "unframed"]

EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
_PRELUDE = 12
_CHECKSUM = 4
_STRING = 7
_LARGEST = 1 << 25


async def unframed(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a framed body as server-sent events; raises StreamBroken for a torn frame."""
    held = b""
    async for data in body:
        held += data
        while len(held) >= _PRELUDE:
            total, headers = struct.unpack_from(">II", held)
            if not _PRELUDE + _CHECKSUM + headers <= total <= _LARGEST:
                raise StreamBroken("The event stream is torn: a frame has an impossible length.", accepted=True)
            if len(held) < total:
                break
            frame, held = held[:total], held[total:]
            if binascii.crc32(frame[:-_CHECKSUM]) != int.from_bytes(frame[-_CHECKSUM:], "big"):
                raise StreamBroken("The event stream is torn: a checksum is wrong.", accepted=True)
            yield _event(frame, headers)
    if held:
        raise StreamBroken("The event stream ended inside a frame.", accepted=True)


def _event(frame: bytes, headers: int) -> bytes:
    named = dict(_headers(frame[_PRELUDE : _PRELUDE + headers]))
    payload = frame[_PRELUDE + headers : -_CHECKSUM]
    try:
        if named.get(":message-type") in ("exception", "error"):
            return b"event: error\ndata: " + msgspec.json.encode(_error(named, payload)) + b"\n\n"
        event = base64.b64decode(msgspec.json.decode(payload)["bytes"])
        kind: str = msgspec.json.decode(event)["type"]
    except (ValueError, KeyError, TypeError):
        raise StreamBroken("The event stream holds a frame without an event.", accepted=True) from None
    return b"event: " + kind.encode() + b"\ndata: " + event + b"\n\n"


def _error(named: dict[str, str], payload: bytes) -> JsonObject:
    said = msgspec.json.decode(payload or b"{}")
    kind = named.get(":exception-type") or named.get(":error-code") or "api_error"
    kinds = {"throttlingException": "rate_limit_error", "validationException": "invalid_request_error"}
    message = said.get("message") or named.get(":error-message") or kind
    return {"type": "error", "error": {"type": kinds.get(kind, kind), "message": message}}


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers that are text, which are those that matter; another type ends the reading."""
    place = 0
    while place < len(block):
        end = place + 1 + block[place]
        name = block[place + 1 : end].decode()
        if block[end] != _STRING:
            return
        length = int.from_bytes(block[end + 1 : end + 3], "big")
        place = end + 3 + length
        yield name, block[end + 3 : place].decode()
