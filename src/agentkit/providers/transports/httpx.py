"""A transport over an httpx or httpx2 AsyncClient that was handed in, and the answer it shares with the SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, cast

from agentkit.errors import AgentkitError, ConfigurationError
from agentkit.providers.transports.fault import OneLoop, broken
from agentkit.providers.transports.port import DEFAULT_TIMEOUTS, Timeouts

__all__ = ["HttpxClient", "HttpxResponse", "HttpxTransport", "RawResponse"]

_LIBRARY_SECONDS = 5.0
_AUTH = ("authorization", "x-api-key", "api-key")


class RawResponse(Protocol):
    """A response of httpx or httpx2 whose body has not been read."""

    status_code: int
    headers: Mapping[str, str]

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body's bytes as they come."""
        ...

    async def aclose(self) -> None:
        """Give the connection back or cut it."""
        ...


class HttpxClient(Protocol):
    """What is used of an AsyncClient."""

    base_url: object
    headers: Mapping[str, str]
    timeout: object
    is_closed: bool

    def build_request(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str], **more: object
    ) -> object:
        """Return a request with the client's own headers and parameters merged in."""
        ...

    async def send(self, request: object, *, stream: bool, follow_redirects: bool) -> RawResponse:
        """Return the response once its headers have come."""
        ...


class HttpxTransport:
    """Sends over a client that stays its giver's: its limits, proxies, headers, auth and timeouts apply.

    `base_url` is where to send; the client's own is only used by whoever chooses it. A client that still has the
    library's default timeout of 5 seconds, too short for a model that thinks, gets `timeouts` for each request.
    """

    protocols = ()

    def __init__(self, client: HttpxClient, base_url: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.base_url = base_url.rstrip("/")
        self.brings_auth = getattr(client, "auth", None) is not None or any(name in client.headers for name in _AUTH)
        self._client = client
        self._loop = OneLoop()
        timeout = cast("Callable[..., object]", type(client.timeout))
        self._more: dict[str, object] = {}
        if client.timeout == timeout(_LIBRARY_SECONDS):
            self._more["timeout"] = timeout(timeouts.idle, connect=timeouts.connect)

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpxResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        self._loop.check()
        if self._client.is_closed:
            raise ConfigurationError("The client given as client= is closed; keep it open while its binding is in use.")
        failure: AgentkitError
        try:
            request = self._client.build_request(
                "POST", self.base_url + path, content=body, headers=headers, **self._more
            )
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            failure = broken(error, self.base_url)
        else:
            return HttpxResponse(response, self.base_url)
        raise failure

    async def aclose(self) -> None:
        """Leave the client open."""


class HttpxResponse:
    """An answer of httpx, httpx2 or an SDK; `body` replaces the response's own bytes when they come in frames."""

    __slots__ = ("_base", "_body", "_response", "at_end", "headers", "status")

    def __init__(self, response: RawResponse, base_url: str, body: AsyncIterator[bytes] | None = None) -> None:
        self._response = response
        self._body = response.aiter_bytes() if body is None else body
        self._base = base_url
        self.at_end = False
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

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
            failure = broken(error, self._base)
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
