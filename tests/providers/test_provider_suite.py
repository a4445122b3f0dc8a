"""The public conformance suite over every protocol and transport, against the scripted server on loopback."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from agentkit.core.contracts import Call, ChatEvent, ChatRequest, LLMPort, Route, UserMessage, WireProtocol
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile, speaking
from agentkit.testing import MemoryServer, MemoryTransport, Turn, make_context
from agentkit.testing.provider_suite import PROVIDER_CHECKS, Check

KEY = "secret-of-loopback"


class Owned:
    """A model over a client of the test's, which closes both: the client is never the model's to close."""

    def __init__(self, model: HttpModel, close: Callable[[], object]) -> None:
        self.model = model
        self.close = close

    async def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        async with aclosing(self.model.stream(call)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await self.model.aclose()
        await self.close()  # type: ignore[misc]


def built(protocol: WireProtocol, **where: Any) -> HttpModel:
    profile = find_profile("anthropic" if protocol == "messages" else "openai")
    return build_model(profile, protocol=protocol, **where)


def over_default(protocol: WireProtocol, url: str) -> LLMPort:
    return built(protocol, base_url=url, api_key=KEY)


def over_httpx(protocol: WireProtocol, url: str) -> LLMPort:
    client = httpx.AsyncClient()
    return Owned(built(protocol, base_url=url, api_key=KEY, client=client), client.aclose)


def over_httpx2(protocol: WireProtocol, url: str) -> LLMPort:
    client = httpx2.AsyncClient()
    return Owned(built(protocol, base_url=url, api_key=KEY, client=client), client.aclose)


def over_sdk(protocol: WireProtocol, url: str) -> LLMPort:
    if protocol == "messages":
        claude = anthropic.AsyncAnthropic(api_key=KEY, base_url=url.removesuffix("/v1"))
        return Owned(built(protocol, client=claude), claude.close)
    client = openai.AsyncOpenAI(api_key=KEY, base_url=url)
    return Owned(built(protocol, client=client), client.close)


def in_process(protocol: WireProtocol, url: str) -> LLMPort:
    profile = speaking(find_profile("anthropic" if protocol == "messages" else "openai"), protocol)
    return HttpModel(profile, MemoryTransport(url), key=KEY)


@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
async def test_conforms_in_process(protocol: WireProtocol, check: Check) -> None:
    """Every protocol passes every check without a network, at every byte and every event boundary."""
    await check(lambda url: in_process(protocol, url), MemoryServer)


@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
@pytest.mark.parametrize("make", [over_default, over_httpx, over_httpx2, over_sdk], ids=lambda make: make.__name__)
async def test_conforms(make: Callable[[WireProtocol, str], LLMPort], protocol: WireProtocol, check: Check) -> None:
    """Every protocol over every transport passes every check."""
    await check(lambda url: make(protocol, url))


async def test_the_transport_in_process_is_a_transport() -> None:
    """The double keeps the port it stands for, so that it can be handed in as a client."""
    async with MemoryServer([Turn(text="ok")]) as server:
        model = build_model(find_profile("openai"), client=MemoryTransport(server.url), api_key=KEY)
        call = Call(make_context(model), ChatRequest((UserMessage("hi"),)), "c", Route(model, "m", "openai"))
        assert [event async for event in model.stream(call)]
