"""A transport over an official async openai or anthropic client, or a cloud variant, which sign and address."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

import msgspec

from agentkit.core.contracts import Timeouts, WireProtocol
from agentkit.errors import AgentkitError, ConfigurationError
from agentkit.providers.transports.fault import OneLoop, broken
from agentkit.providers.transports.framing import EVENT_STREAM, unframed
from agentkit.providers.transports.httpx import Handshake, HttpxRequest, HttpxResponse, RawResponse, httpx_limits

__all__ = ["SdkClient", "SdkTransport"]

_RAW = ("X-Stainless-Raw-Response", "stream")
_PASSED_ON = ("accept", "accept-encoding")
_PLAIN = ("AsyncOpenAI", "AsyncAnthropic")


class _RawAnswer(Protocol):
    http_response: RawResponse


class SdkClient(Protocol):
    """What is used of an SDK's client."""

    base_url: object
    timeout: object
    _prepare_request: Callable[[HttpxRequest], Awaitable[None]]

    def is_closed(self) -> bool:
        """Return whether the client was closed."""
        ...

    def with_options(self, **options: object) -> SdkClient:
        """Return a copy that shares the connections."""
        ...

    def post(self, path: str, **arguments: object) -> Awaitable[_RawAnswer]:
        """Send one request."""
        ...


class SdkTransport:
    """Sends through the client's generic `post`: raw bytes in, the raw stream out.

    Its retries are off, its typed events are never built, its own spans are off. The client stays its giver's;
    `base_url`, `api_key` and `timeouts` apply to a copy that shares its connections.
    """

    brings_auth = True

    def __init__(
        self,
        client: SdkClient,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        options: dict[str, object] = {"max_retries": 0}
        options.update({name: value for name, value in (("base_url", base_url), ("api_key", api_key)) if value})
        vendor = _vendor(client)
        if timeouts is not None:
            made: Callable[..., object] = sys.modules[vendor].Timeout
            options["timeout"] = made(**httpx_limits(timeouts))
        if "open_telemetry" in inspect.signature(client.with_options).parameters:
            options["open_telemetry"] = False
        self._client = client.with_options(**options)
        self._client._prepare_request = partial(_prepared, self._client._prepare_request)  # the SDK's place for this
        self._plain = type(client).__name__ in _PLAIN  # variants read the body's model and stream, so they get a dict
        self._loop = OneLoop(client)
        self.protocols: tuple[WireProtocol, ...] = ("messages",) if vendor == "anthropic" else ("chat", "responses")
        self.base_url = str(self._client.base_url).rstrip("/")

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpxResponse:
        """Send the body; raises StreamBroken, with accepted=False when no connection came about."""
        self._loop.check()
        if self._client.is_closed():
            raise ConfigurationError("The client given as client= is closed; keep it open while its binding is in use.")
        kept = {name: headers[name] for name in _PASSED_ON if name in headers}
        options = {"headers": {**kept, _RAW[0]: _RAW[1]}, "follow_redirects": False}
        sent: dict[str, object] = {"content": body} if self._plain else {"body": msgspec.json.decode(body)}
        failure: AgentkitError
        try:
            answer = await self._client.post(path, cast_to=object, options=options, **sent)
        except Exception as error:
            refused: RawResponse | None = getattr(error, "response", None)
            if refused is not None and isinstance(getattr(error, "status_code", None), int):
                return HttpxResponse(refused, self.base_url, self._client.timeout)
            failure = broken(error, self.base_url, self._client.timeout)
        else:
            response = answer.http_response
            framed = response.headers.get("content-type", "").startswith(EVENT_STREAM)
            events = unframed(response.aiter_bytes()) if framed else None
            return HttpxResponse(response, self.base_url, self._client.timeout, events)
        raise failure

    async def aclose(self) -> None:
        """Leave the client open."""


async def _prepared(before: Callable[[HttpxRequest], Awaitable[None]], request: HttpxRequest) -> None:
    await before(request)
    request.extensions["trace"] = Handshake()


def _vendor(client: SdkClient) -> str:
    """Return the SDK's package, also for a subclass of the user's."""
    packages = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    return "anthropic" if "anthropic" in packages else "openai"
