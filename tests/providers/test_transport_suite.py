"""The public conformance suite over every transport of ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anthropic
import httpx
import httpx2
import openai
import pytest

from agentkit.core.contracts import Timeouts, WireProtocol
from agentkit.providers.transports.port import HttpResponse, HttpTransport
from agentkit.providers.transports.select import transport_for
from agentkit.testing.transport_suite import TRANSPORT_CHECKS, MakeTransport, TransportCheck

KEY = "secret-of-loopback"


class Owned:
    """A transport over a client of the test's, which closes both: the client is never the transport's to close."""

    def __init__(self, transport: HttpTransport, close: Callable[[], Awaitable[None]]) -> None:
        self.transport = transport
        self.close = close
        self.base_url = transport.base_url
        self.brings_auth = transport.brings_auth
        self.protocols: tuple[WireProtocol, ...] = transport.protocols

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        return await self.transport.post(path, headers, body)

    async def aclose(self) -> None:
        await self.transport.aclose()
        await self.close()


def over_default(url: str, timeouts: Timeouts | None) -> HttpTransport:
    return transport_for(None, url, url, timeouts=timeouts)


def over_httpx(url: str, timeouts: Timeouts | None) -> HttpTransport:
    client = httpx.AsyncClient()
    return Owned(transport_for(client, url, url, timeouts=timeouts), client.aclose)


def over_httpx2(url: str, timeouts: Timeouts | None) -> HttpTransport:
    client = httpx2.AsyncClient()
    return Owned(transport_for(client, url, url, timeouts=timeouts), client.aclose)


def over_openai(url: str, timeouts: Timeouts | None) -> HttpTransport:
    client = openai.AsyncOpenAI(api_key=KEY, base_url=url)
    return Owned(transport_for(client, None, url, timeouts=timeouts), client.close)


def over_anthropic(url: str, timeouts: Timeouts | None) -> HttpTransport:
    client = anthropic.AsyncAnthropic(api_key=KEY, base_url=url)
    return Owned(transport_for(client, None, url, timeouts=timeouts), client.close)


def with_a_total(url: str, timeouts: Timeouts | None) -> HttpTransport:
    given = (
        Timeouts(total=900)
        if timeouts is None
        else Timeouts(connect=timeouts.connect, write=timeouts.write, idle=timeouts.idle, total=900)
    )
    return over_default(url, given)


def handed_in(url: str, timeouts: Timeouts | None) -> HttpTransport:
    own = over_default(url, timeouts)
    return Owned(transport_for(own, None, "http://other"), own.aclose)


MAKERS = [over_default, over_httpx, over_httpx2, over_openai, over_anthropic, with_a_total, handed_in]


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
async def test_conforms(make: MakeTransport, check: TransportCheck) -> None:
    """Every transport passes every check."""
    await check(make)
