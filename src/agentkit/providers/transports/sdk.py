"""Over an official SDK client: its address, auth and cloud signing, with our bodies and the raw answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agentkit.errors import AuthFailed, ConfigurationError, ProviderError, StreamBroken
from agentkit.providers.profiles import WireProtocol
from agentkit.providers.transports.httpx import HttpxResponse, failure_of, library_of
from agentkit.providers.wire.failure import redact

__all__ = ["SdkTransport"]

_PLAIN: Final = ("AsyncOpenAI", "AsyncAnthropic")


class SdkTransport:
    """Sends through the client's generic `post`, without its retries and without its own spans.

    The plain clients take our bytes as they are. Cloud variants read and change the body, so they get it as a
    dictionary; Bedrock's binary stream is avoided by asking for whole answers. The client is never closed here.
    """

    brings_auth = True

    def __init__(self, client: Any, protocol: WireProtocol) -> None:
        self.protocol = protocol
        self._client = _without_spans(client)
        self._library = library_of(client._client)
        self.base_url = str(client.base_url).rstrip("/")
        self._raw = type(client).__name__ in _PLAIN
        self._whole = "Bedrock" in type(client).__name__ and "Mantle" not in type(client).__name__

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpxResponse:
        """Send the body; raises StreamBroken when no answer came, AuthFailed when the client has no credentials."""
        if self._client.is_closed():
            raise ConfigurationError("The client given as client= is closed; keep it open while its binding is in use.")
        options = {"max_retries": 0, "headers": {"Content-Type": "application/json", "Accept": headers["accept"]}}
        failure: ProviderError
        try:
            response = await self._client.post(
                path,
                cast_to=self._library.Response,
                options=options,
                stream=True,
                stream_cls=object,
                **self._body(body),
            )
        except Exception as error:  # the SDKs' own errors share no base class
            answer = getattr(error, "response", None)
            if answer is not None:
                return HttpxResponse(answer, self._library)
            failure = self._failure(error)
        else:
            return HttpxResponse(response, self._library)
        raise failure

    async def aclose(self) -> None:
        """Leave the client open: it is the application's."""

    def _body(self, body: bytes) -> dict[str, object]:
        if self._raw:
            return {"content": body}
        found = msgspec.json.decode(body)
        if self._whole:
            found.pop("stream", None)
        return {"body": found}

    def _failure(self, error: Exception) -> ProviderError:
        cause = error.__cause__
        if isinstance(cause, (self._library.TransportError, OSError)):
            return failure_of(cause, self._library)
        if isinstance(error, (self._library.TransportError, OSError)):
            return failure_of(error, self._library)
        kind = type(error)
        what = f"{kind.__name__}: {redact(str(error))[:300]}"
        if kind.__module__.partition(".")[0] not in ("openai", "anthropic"):
            raise error
        if "Connection" in kind.__name__ or "Timeout" in kind.__name__:
            return StreamBroken(f"No answer: {what}")
        return AuthFailed(f"The client could not prepare the request: {what}", accepted=False)


def _without_spans(client: Any) -> Any:
    """Return a copy of an anthropic client that makes no spans, which would double ours; others as they are."""
    if not any(kind.__module__.partition(".")[0] == "anthropic" for kind in type(client).__mro__):
        return client
    try:
        return client.with_options(open_telemetry=False)
    except TypeError:  # a version or a subclass without the option
        return client
