"""A transport over an httpx or httpx2 AsyncClient that was handed in, and the answer it shares with the SDKs."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Protocol, cast

from agentkit.core.contracts import Timeouts
from agentkit.errors import AgentkitError, ConfigurationError
from agentkit.providers.transports.fault import OneLoop, broken, unread_encoding, unreadable
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS

__all__ = ["Handshake", "HttpxClient", "HttpxRequest", "HttpxResponse", "HttpxTransport", "RawResponse", "httpx_limits"]

_LIBRARY_SECONDS = 5.0
_AUTH = ("authorization", "x-api-key", "api-key")


class _Stream(Protocol):
    async def aclose(self) -> None: ...


class _Sent(Protocol):
    headers: Mapping[str, str]


class RawResponse(Protocol):
    """A response of httpx or httpx2 whose body has not been read."""

    status_code: int
    headers: Mapping[str, str]

    @property
    def request(self) -> _Sent:
        """Return the request as it was sent."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body's bytes as they come."""
        ...

    async def aclose(self) -> None:
        """Give the connection back or cut it."""
        ...


class HttpxRequest(Protocol):
    """A request of httpx or httpx2 before it is sent."""

    extensions: MutableMapping[str, object]


class HttpxClient(Protocol):
    """What is used of an AsyncClient."""

    base_url: object
    headers: Mapping[str, str]
    timeout: object
    is_closed: bool

    def build_request(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], timeout: object, extensions: object
    ) -> object:
        """Return a request with the client's own headers and parameters merged in."""
        ...

    async def send(self, request: object, *, stream: bool, follow_redirects: bool) -> RawResponse:
        """Return the response once its headers have come."""
        ...


class Handshake:
    """Closes a connection whose TLS handshake was cut short, which httpx leaves open when its task is cancelled.

    It is httpx's "trace" extension for one request; the names of events are httpcore's.
    """

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream: _Stream | None = None

    async def __call__(self, event: str, info: Mapping[str, object]) -> None:
        """Note an opened connection, and close it when TLS fails on it."""
        if event.endswith("connect_tcp.complete"):
            self._stream = cast("_Stream", info["return_value"])
        elif event.endswith("start_tls.failed") and self._stream is not None:
            await self._stream.aclose()


class HttpxTransport:
    """Sends over a client that stays its giver's: its limits, proxies, headers, auth and timeouts apply.

    `base_url` is where to send; the client's own is only used by whoever chooses it. `timeouts` beat the client's. A
    client that still has the library's default timeout of 5 seconds, too short for a model that thinks, gets this
    package's defaults.
    """

    protocols = ()

    def __init__(self, client: HttpxClient, base_url: str, *, timeouts: Timeouts | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.brings_auth = getattr(client, "auth", None) is not None or any(name in client.headers for name in _AUTH)
        self._client = client
        self._loop = OneLoop(client)
        made = cast("Callable[..., object]", type(client.timeout))
        if timeouts is None and client.timeout == made(_LIBRARY_SECONDS):
            timeouts = DEFAULT_TIMEOUTS
        self._timeout = client.timeout if timeouts is None else made(**httpx_limits(timeouts))

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpxResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        self._loop.check()
        if self._client.is_closed:
            raise ConfigurationError("The client given as client= is closed; keep it open while its binding is in use.")
        failure: AgentkitError
        try:
            request = self._client.build_request(
                "POST",
                self.base_url + path,
                content=body,
                headers=headers,
                timeout=self._timeout,
                extensions={"trace": Handshake()},
            )
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            failure = broken(error, self.base_url, self._timeout)
        else:
            return HttpxResponse(response, self.base_url, self._timeout)
        raise failure

    async def aclose(self) -> None:
        """Leave the client open."""


def httpx_limits(timeouts: Timeouts) -> dict[str, float | None]:
    """Return the limits as httpx names them; it has none for a whole attempt."""
    return {"connect": timeouts.connect, "read": timeouts.idle, "write": timeouts.write, "pool": None}


class HttpxResponse:
    """An answer of httpx, httpx2 or an SDK; `body` replaces the response's own bytes when they come in frames.

    `timeout` is the library's, which holds for the answer.
    """

    __slots__ = ("_base", "_body", "_response", "_timeout", "at_end", "headers", "status")

    def __init__(
        self, response: RawResponse, base_url: str, timeout: object, body: AsyncIterator[bytes] | None = None
    ) -> None:
        self._response = response
        if encoding := unread_encoding(response.headers):
            body = _unreadable(encoding)
        self._body = response.aiter_bytes() if body is None else body
        self._base = base_url
        self._timeout = timeout
        self.at_end = False
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    @property
    def secrets(self) -> list[str]:
        """Return what the client or its auth put into the request's headers."""
        sent = self._response.request.headers
        return [secret for name in _AUTH if name in sent for secret in _secrets_in(sent[name])]

    async def chunk(self) -> bytes:
        """Return the next bytes, b"" at the end."""
        failure: AgentkitError | None = None
        try:
            while not self.at_end:
                if data := await anext(self._body):
                    return data
        except StopAsyncIteration:
            self.at_end = True
        except AgentkitError:
            raise
        except Exception as error:
            failure = broken(error, self._base, self._timeout)
        if failure is not None:
            raise failure
        return b""

    async def read(self) -> bytes:
        """Return the rest of the body."""
        pieces: list[bytes] = []
        while data := await self.chunk():
            pieces.append(data)
        return b"".join(pieces)

    async def aclose(self) -> None:
        """Close the response, which cuts the connection unless the body was read."""
        await self._response.aclose()


async def _unreadable(encoding: str) -> AsyncGenerator[bytes, None]:
    """Fail at the first byte: the libraries hand on what they cannot decompress as if it were the answer."""
    raise unreadable(encoding)
    yield b""


def _secrets_in(value: str) -> Iterator[str]:
    """Yield a header's value, its credentials and, of basic authentication, the password."""
    yield value
    scheme, _, given = value.rpartition(" ")
    yield given
    if scheme.lower() == "basic":
        with suppress(ValueError):
            yield base64.b64decode(given).decode().partition(":")[2]
