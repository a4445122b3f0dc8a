"""One answer of a server as bytes: what kind it is, the rest of it, its failure."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from agentkit.core.contracts import JsonValue
from agentkit.errors import ProviderError
from agentkit.providers.transports.port import HttpResponse
from agentkit.providers.wire.clean import read_json
from agentkit.providers.wire.failure import error_of_status, redact
from agentkit.providers.wire.rate_limits import rate_limit_of

__all__ = ["drain", "hide", "is_stream", "read_failure", "rest_of"]

_log = logging.getLogger(__name__)
_DRAIN = 0.25  # seconds for a server to close the body after its end marker, so that the connection can be kept
_MOST_ERROR = 65_536


def is_stream(response: HttpResponse, first: bytes) -> bool:
    """Return whether the body is an event stream, by its type or, where that is missing or wrong, by its first byte."""
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return True
    return not kind.startswith("application/json") and first.lstrip()[:1] not in (b"{", b"[", b"<", b"")


async def rest_of(response: HttpResponse, first: bytes) -> bytes:
    """Return the whole body, of which `first` has been read."""
    return first if response.at_end else first + await response.read()


async def drain(response: HttpResponse) -> None:
    """Read what follows the end marker, for a moment, so that the connection can be kept."""
    try:
        async with asyncio.timeout(_DRAIN):
            while await response.chunk():
                pass
    except (TimeoutError, ProviderError):
        _log.debug("the server kept the body open after its end marker; the connection is not reused")


async def read_failure(response: HttpResponse) -> tuple[ProviderError, JsonValue]:
    """Return the error of an answer that is not 200, and its JSON body, None where it has none.

    The error is free of the credentials that the client added, the body is not.
    """
    body = b""
    try:
        while len(body) < _MOST_ERROR and (data := await response.chunk()):
            body += data
    except ProviderError:
        _log.debug("the body of an error answer broke off")
    try:
        parsed = read_json(body)
    except (ValueError, RecursionError):
        parsed = None
    text = body.decode("utf-8", "replace") if parsed is None and not body.lstrip().startswith(b"<") else ""
    error = error_of_status(response.status, response.headers, parsed, text=text)
    hide(error, *response.secrets)
    limit = rate_limit_of(response.headers)
    if limit is not None:
        error.rate_limit = msgspec.to_builtins(limit)
    return error, parsed


def hide(error: ProviderError, *secrets: str) -> None:
    """Take these secrets out of all that an error shows: some servers quote the key they refuse."""
    error.message = redact(error.message, *secrets)
    error.args = (error.message,)
    error.code = error.code and redact(error.code, *secrets)
    error.request_id = error.request_id and redact(error.request_id, *secrets)
    error.headers = {name: redact(value, *secrets) for name, value in error.headers.items()}
