"""What a model needs of a network, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from agentkit.core.contracts import Timeouts, WireProtocol

__all__ = ["DEFAULT_TIMEOUTS", "Headers", "HttpResponse", "HttpTransport"]


class Headers(dict[str, str]):
    """Request headers whose values never show in a repr."""

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"


class HttpResponse(Protocol):
    """An answer whose body is still to be read; whoever got it closes it."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, looked up in lower case."""
        ...

    async def chunk(self) -> bytes:
        """Return the next bytes as they arrive, b"" at the end; raises StreamBroken when the connection fails."""
        ...

    async def read(self) -> bytes:
        """Return the rest of the body; raises StreamBroken when the connection fails."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """Return the credentials the client itself added to the request, which no error may show."""
        ...

    @property
    def at_end(self) -> bool:
        """Return whether it is known that nothing more will come."""
        ...

    async def aclose(self) -> None:
        """Give the connection back, or cut it when the body is not read to its end; twice does no harm."""
        ...


class HttpTransport(Protocol):
    """Sends POSTs for many tasks at once; an object with these members can be handed in as `client=`.

    It sends each request once, follows no redirect, keeps its own limits for connecting, writing and silence, and lets
    go of the connection when the task that waits is cancelled. `agentkit.testing.check_transport` checks all that.
    """

    @property
    def base_url(self) -> str:
        """Return the address that paths are added to, without a slash at its end."""
        ...

    @property
    def brings_auth(self) -> bool:
        """Return whether the client adds credentials of its own."""
        ...

    @property
    def protocols(self) -> tuple[WireProtocol, ...]:
        """Return the protocols this client speaks, nothing when it speaks any."""
        ...

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Send the body to base_url + path; raises StreamBroken, with accepted=False when nothing was sent."""
        ...

    async def aclose(self) -> None:
        """Close what this transport opened, and nothing that it was given."""
        ...


DEFAULT_TIMEOUTS: Final = Timeouts()
