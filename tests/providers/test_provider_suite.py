"""The public conformance suite over every protocol and transport, against the scripted server on loopback."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anthropic
import httpx
import httpx2
import openai
import pytest

from agentkit.core.contracts import Call, ChatEvent, ChatRequest, LLMPort
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile
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


def over_default(protocol: str, url: str) -> LLMPort:
    return build_model(find_profile(protocol), base_url=url, api_key=KEY)


def over_httpx(protocol: str, url: str) -> LLMPort:
    client = httpx.AsyncClient()
    return Owned(build_model(find_profile(protocol), base_url=url, api_key=KEY, client=client), client.aclose)


def over_httpx2(protocol: str, url: str) -> LLMPort:
    client = httpx2.AsyncClient()
    return Owned(build_model(find_profile(protocol), base_url=url, api_key=KEY, client=client), client.aclose)


def over_sdk(protocol: str, url: str) -> LLMPort:
    if protocol == "openai":
        client = openai.AsyncOpenAI(api_key=KEY, base_url=url)
    else:
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=url.removesuffix("/v1"))
    return Owned(build_model(find_profile(protocol), client=client), client.close)


@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("make", [over_default, over_httpx, over_httpx2, over_sdk], ids=lambda make: make.__name__)
async def test_conforms(make: Callable[[str, str], LLMPort], protocol: str, check: Check) -> None:
    """Every protocol over every transport passes every check."""
    await check(lambda url: make(protocol, url))
