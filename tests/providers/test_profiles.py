"""Profiles and what is built from them: whose key goes where, which dialect, what is left out or refused."""

from __future__ import annotations

import logging
import traceback
from contextlib import aclosing

import httpx
import pytest
from msgspec.structs import replace

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    ModelSettings,
    Route,
    ToolSpec,
    UserMessage,
)
from agentkit.errors import AuthFailed, ConfigurationError, StreamBroken
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import PROFILES, find_profile
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import Turn, write_turn

KEY = "sk-loopback-0123456789"


def call_of(model: HttpModel, *, name: str = "m1", **request: object) -> Call[ChatRequest]:
    """Return a call of one question."""
    return Call(None, ChatRequest((UserMessage("hi"),), **request), "c1", Route(model, name, "openai"))  # type: ignore[arg-type]


async def answer_of(model: HttpModel, **request: object) -> ChatResponse:
    """Return the whole answer of one question."""
    async with aclosing(model.stream(call_of(model, **request))) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, ChatEnd)
    return last.response


def over(server: LoopbackServer, **more: object) -> HttpModel:
    """Return a model at the server."""
    return build_model(find_profile("openai"), base_url=server.url, api_key=KEY, **more)  # type: ignore[arg-type]


async def test_a_vendors_key_stays_with_the_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's key goes to the provider's own address only; another server gets a key that is given."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with LoopbackServer([Turn(text="hi")]) as server:
        for key, expected in ((None, None), ("own-key-1", "Bearer own-key-1")):
            model = build_model(find_profile("openai"), base_url=server.url, api_key=key)
            await answer_of(model)
            await model.aclose()
            assert server.requests[-1].headers.get("authorization") == expected


def test_unknown_names_get_the_nearest() -> None:
    """An unknown profile names its neighbours; a compatible server needs an address."""
    with pytest.raises(ConfigurationError, match="did you mean mistral"):
        find_profile("mistrall")
    with pytest.raises(ConfigurationError, match="base_url"):
        build_model(find_profile("openai-compatible"))


def test_profiles_are_whole() -> None:
    """Every profile names an address or needs one, its elsewhere exists, and remote ones name a key."""
    for name, profile in PROFILES.items():
        assert profile.name == name
        assert not profile.elsewhere or profile.elsewhere in PROFILES
        local = profile.base_url.startswith("http://127.0.0.1") or not (profile.base_url or profile.hosts)
        assert local == (not profile.key_variables)
        assert profile.base_url or profile.example_url


async def test_another_address_gets_the_compatible_dialect() -> None:
    """The provider's own spelling is not sent to a server that is not the provider's."""
    async with LoopbackServer([Turn(text="hi")]) as server:
        model = over(server)
        await answer_of(model, settings=ModelSettings(max_tokens=7))
        await model.aclose()
    assert server.requests[0].body["max_tokens"] == 7


async def test_settings_a_server_rejects_are_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """A setting that the profile rejects is not sent, and that is logged once."""
    caplog.set_level(logging.INFO, "agentkit")
    async with LoopbackServer([Turn(text="hi")]) as server:
        model = build_model(find_profile("deepseek"), base_url=server.url, api_key=KEY)
        for _ in range(2):
            answer = await answer_of(model, settings=ModelSettings(seed=1, temperature=0))
            assert [(change.kind, change.what) for change in answer.adjustments] == [("setting", "seed")]
        await model.aclose()
    assert "seed" not in server.requests[0].body
    assert server.requests[0].body["temperature"] == 0
    assert [record.getMessage() for record in caplog.records] == [
        "deepseek:m1: seed: deepseek does not take it; left out"
    ]


async def test_unwritable_settings_are_refused_here() -> None:
    """What cannot be JSON is a configuration error, never a fault of the connection."""
    async with LoopbackServer([Turn(text="hi")]) as server:
        model = over(server)
        with pytest.raises(ConfigurationError, match=r"settings\.extra"):
            await answer_of(model, settings=ModelSettings(extra={"x": object()}))  # type: ignore[dict-item]
        await model.aclose()
    assert not server.requests


async def test_b118_the_key_shows_nowhere() -> None:
    """B118: not in the error, its traceback with all chained errors, its attributes, or any repr."""
    body = f'{{"error": {{"message": "bad key {KEY} in https://h/v1?key={KEY}"}}}}'.encode()
    async with LoopbackServer([HttpAnswer(status=401, pieces=(body,))]) as server:
        model = over(server)
        with pytest.raises(AuthFailed) as caught:
            await answer_of(model)
        await model.aclose()
    refused = build_model(find_profile("openai"), base_url="http://127.0.0.1:1/v1", api_key=KEY)
    with pytest.raises(StreamBroken) as unreached:
        await answer_of(refused)
    await refused.aclose()
    for error in (caught.value, unreached.value):
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        own = [frame for frame in told.stack if "agentkit" in frame.filename and "tests" not in frame.filename]
        assert own
        assert KEY not in repr([frame.locals for frame in own])
        assert KEY not in "".join(told.format_exception_only())
        assert error.__cause__ is error.__context__ is None
        assert KEY not in repr(vars(error)) + repr(model)
    assert unreached.value.accepted is False


@pytest.mark.parametrize(
    ("url", "key", "path"),
    [
        ("https://mine.openai.azure.com/openai/v1", "azure-key-1", "/openai/v1/chat/completions"),
        (
            "https://mine.openai.azure.com/openai/deployments/d?api-version=2026-01-01",
            "azure-key-1",
            "/openai/deployments/d/chat/completions?api-version=2026-01-01",
        ),
        ("https://azure.example.test/openai/v1", None, "/openai/v1/chat/completions"),
        ("http://mine.openai.azure.com/openai/v1", None, "/openai/v1/chat/completions"),
        ("https://evil-openai.azure.com.example.test/v1", None, "/v1/chat/completions"),
    ],
)
async def test_azure_by_address(monkeypatch: pytest.MonkeyPatch, url: str, key: str | None, path: str) -> None:
    """Azure's key goes in its own header and to Azure's own hosts over TLS only; a version stays in the address."""
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key-1")
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, content=write_turn(Turn(text="hi"), "chat", stream=False)[0])

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await answer_of(build_model(find_profile("azure"), base_url=url, client=client))
    (request,) = sent
    assert request.headers.get("api-key") == key
    assert "authorization" not in request.headers
    assert request.url.raw_path.decode() == path


async def test_azure_needs_an_address() -> None:
    """Without one, the error shows what it looks like."""
    with pytest.raises(ConfigurationError, match=r"RESOURCE\.openai\.azure\.com/openai/v1"):
        build_model(find_profile("azure"), api_key=KEY)


async def test_b118_headers_of_ones_own_show_nowhere() -> None:
    """B118: what a given client or profile authenticates with is masked like a key."""
    told = b'{"error": {"message": "no: topsecret-one, topsecret-two"}}'
    async with LoopbackServer([HttpAnswer(status=401, pieces=(told,))]) as server:
        profile = replace(find_profile("vllm"), headers=(("x-team-token", "topsecret-one"),))
        headers = {"authorization": "Bearer topsecret-two"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            with pytest.raises(AuthFailed) as caught:
                await answer_of(build_model(profile, client=client, base_url=server.url))
    assert "topsecret" not in repr(vars(caught.value))
    assert server.requests[0].headers["authorization"] == "Bearer topsecret-two"


async def test_tools_through_a_schema_by_profile() -> None:
    """A profile with +schema makes calls through an enforced schema, on the wire as a response format."""
    reply = '{"tool": "add", "arguments": {"a": 1}}'
    async with LoopbackServer([Turn(text=reply)]) as server:
        model = build_model(find_profile("openai-compatible+schema"), base_url=server.url)
        tool = ToolSpec("add", "adds", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
        answer = await answer_of(model, tools=(tool,))
        await model.aclose()
    (made,) = answer.message.tool_calls
    assert made.name == "add"
    assert "tools" not in server.requests[0].body
    assert "response_format" in server.requests[0].body
