"""From what an HTTP library or SDK raises to the error tree: by type, and by the type's name where they share it."""

from __future__ import annotations

import asyncio
import re
import ssl
import weakref
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from agentkit.errors import AgentkitError, AuthFailed, ConfigurationError, StreamBroken
from agentkit.providers.wire.failure import redact

__all__ = [
    "OneLoop",
    "broken",
    "broken_connection",
    "closed_under_way",
    "no_connection",
    "too_late",
    "unread_encoding",
    "unreadable",
]

_NOT_SENT = frozenset({"ConnectError", "ProxyError"})
_NOT_SENDABLE = frozenset({"InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "TypeError"})
_LIMITS: Final = {
    "ConnectTimeout": "connect",
    "WriteTimeout": "write",
    "PoolTimeout": "pool",
    "ReadTimeout": "idle",
    "APITimeoutError": "idle",
}
_OF_THE_WAY = frozenset({"TransportError", "StreamError", "DecodingError", "APIError", "AnthropicError", "OpenAIError"})
_REFUSALS = (401, 403, 407)
_MOST_TEXT = 300
_READABLE = frozenset({"", "identity", "gzip", "deflate"})
_QUOTED = re.compile(r"(?:bytearray\()?\bb['\"]")


def broken(error: BaseException, url: str, timeout: object) -> AgentkitError:
    """Return the error of this package for a failed request to `url`, without the library's own in its chain.

    `timeout` is the library's, from which the text says how long the limit was.
    """
    causes = list(_causes(error))
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    if names & _NOT_SENDABLE:
        what = _said(causes[-1])
        return ConfigurationError(f"No request can be sent to {_origin(url)}: {what}. Look at the client.")
    for name, limit in _LIMITS.items():
        if name in names:
            return too_late(limit, _seconds(timeout, limit), url)
    if names & _NOT_SENT:
        return no_connection(error, url)
    if names & _OF_THE_WAY or isinstance(error, (OSError, RuntimeError)):
        return broken_connection(error, url)
    return AuthFailed(
        f"The client could not prepare the request to {_origin(url)}: {type(causes[-1]).__name__}. Look at where it "
        "takes its credentials from.",
        accepted=False,
    )


def too_late(limit: str, seconds: float | None, url: str = "") -> StreamBroken:
    """Return the error for a limit that was reached."""
    within = f"within the {limit} limit" + ("" if seconds is None else f" of {seconds:g} s")
    if limit == "connect":
        return StreamBroken(f"No connection to {_origin(url)} {within}.", accepted=False)
    if limit == "pool":
        return StreamBroken(f"The client had no free connection {within}.", accepted=False)
    if limit == "write":
        return StreamBroken(f"The server did not take the whole request {within}.")
    return StreamBroken(f"The server went silent: not a byte {within}.")


def no_connection(error: BaseException, url: str) -> StreamBroken:
    """Return the error for a connection that did not come about; one that never will is not worth another try."""
    causes = list(_causes(error))
    hint = ""
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        hint = " Its certificate is not trusted: SSL_CERT_FILE names those of a private authority."
    what = _said(error).rstrip(". ")
    return StreamBroken(
        f"No connection to {_origin(url)}: {what}.{hint}", accepted=False, retryable=not _is_permanent(causes)
    )


def broken_connection(error: BaseException, url: str) -> StreamBroken:
    """Return the error for a connection that broke, or an answer that is no HTTP."""
    causes = list(_causes(error))
    if any(type(cause).__name__ == "ContentEncodingError" for cause in causes):
        return unreadable("something that cannot be unpacked here")
    return StreamBroken(f"The connection to {_origin(url)} broke: {_said(causes[-1])}")


def unread_encoding(headers: Mapping[str, str]) -> str:
    """Return the compression that not every library here undoes, which none is asked for; "" for those they do."""
    encoding = headers.get("content-encoding", "").strip().lower()
    return "" if encoding in _READABLE else encoding


def unreadable(encoding: str) -> StreamBroken:
    """Return the error for a body that the library does not decompress, and would hand on as it is."""
    said = f"The server compressed its answer with {encoding}, although it was asked not to."
    return StreamBroken(said, accepted=True, retryable=False)


def closed_under_way() -> StreamBroken:
    """Return the error for a call whose connections were closed, with its runtime say; repeating it is no use."""
    return StreamBroken("The connections were closed while the call was under way.", retryable=False)


class OneLoop:
    """Refuses a second event loop: the connections of a client belong to the first that used it."""

    __slots__ = ("_client", "_loop")

    _LOOPS: Final[weakref.WeakKeyDictionary[object, weakref.ref[asyncio.AbstractEventLoop]]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, client: object) -> None:
        self._client = client
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def check(self) -> None:
        """Raise ConfigurationError on any loop but the first."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = self._LOOPS.setdefault(self._client, weakref.ref(loop))
        if self._loop() is not loop:
            raise ConfigurationError(
                "client= was used on another event loop before, and its connections belong to that one. Make a client "
                "for each event loop, or leave client= out: the default transport keeps a pool for each."
            )


def _is_permanent(causes: list[BaseException]) -> bool:
    if any(isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) for cause in causes):
        return False
    return any(isinstance(cause, ssl.SSLError) or _proxy_status(cause) in _REFUSALS for cause in causes)


def _proxy_status(error: BaseException) -> int | None:
    """Return the status with which a proxy refused: httpx-like libraries start their text with it."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status
    first = str(error).partition(" ")[0]
    return int(first) if type(error).__name__ == "ProxyError" and first.isdecimal() else None


def _seconds(timeout: object, limit: str) -> float | None:
    value: object = getattr(timeout, "read" if limit == "idle" else limit, timeout)
    return value if isinstance(value, (int, float)) else None


def _said(error: BaseException) -> str:
    """Return type and text on one line, without the bytes of an answer that some texts quote."""
    text = " ".join(_QUOTED.split(str(error), maxsplit=1)[0].split())
    return f"{type(error).__name__}: {redact(text)[:_MOST_TEXT]}".removesuffix(": ").removesuffix(":")


def _origin(url: str) -> str:
    """Return the part of a URL that holds no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
