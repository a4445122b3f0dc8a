"""The limit on a whole attempt, around any transport: one loop timer, nothing per chunk where there is no limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentkit.core.contracts import WireProtocol
from agentkit.core.runtime.abort import Abort
from agentkit.errors import StreamBroken
from agentkit.providers.transports.port import HttpResponse, HttpTransport

__all__ = ["TotalLimit"]


class TotalLimit:
    """A transport whose attempts end with StreamBroken once they have lasted `seconds`, reading included."""

    def __init__(self, transport: HttpTransport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self.base_url = transport.base_url
        self.brings_auth = transport.brings_auth
        self.protocols: tuple[WireProtocol, ...] = transport.protocols

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> _Limited:
        """Send the body; the clock starts here."""
        attempt = _Attempt(self._seconds)
        try:
            with attempt:
                return _Limited(await self._transport.post(path, headers, body), attempt)
        except BaseException:
            attempt.end()
            raise

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()


class _Attempt:
    """Interrupts the task that waits inside `with` when the time is over, and refuses to wait after that."""

    __slots__ = ("_abort", "_timer")

    def __init__(self, seconds: float) -> None:
        self._abort = Abort(None, None)
        over = StreamBroken(f"The attempt was not over within its total limit of {seconds:g} s.")
        self._timer = asyncio.get_running_loop().call_later(seconds, self._abort.interrupt, over)

    def __enter__(self) -> None:
        if self._abort.fired is not None:
            raise self._abort.fired
        self._abort.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._abort.__exit__(kind, error, trace)

    def end(self) -> None:
        self._timer.cancel()


class _Limited:
    """An answer that has to be read within its attempt's time."""

    def __init__(self, response: HttpResponse, attempt: _Attempt) -> None:
        self._response = response
        self._attempt = attempt
        self.status = response.status
        self.headers = response.headers
        self.secrets = response.secrets

    async def chunk(self) -> bytes:
        with self._attempt:
            return await self._response.chunk()

    async def read(self) -> bytes:
        with self._attempt:
            return await self._response.read()

    @property
    def at_end(self) -> bool:
        return self._response.at_end

    async def aclose(self) -> None:
        self._attempt.end()
        await self._response.aclose()
