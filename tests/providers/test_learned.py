"""Optional fields a server refuses: left out, remembered, reported; and what is never changed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    JsonObject,
    JsonValue,
    ModelSettings,
    OutputSpec,
    Route,
    ToolSpec,
    UserMessage,
)
from agentkit.errors import BadRequest
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer, Received
from agentkit.testing.turns import Turn

KEY = "sk-loopback-0123456789"
OUTPUT = OutputSpec("answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


def openai_style(field: str, code: str = "unsupported_parameter") -> JsonObject:
    """Return a refusal as OpenAI and Azure word it."""
    return {"error": {"message": "no", "type": "invalid_request_error", "param": field, "code": code}}


def pydantic_style(field: str) -> JsonObject:
    """Return a refusal as servers with a validated body word it."""
    return {"detail": [{"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted"}]}


def mistral_style(field: str) -> JsonObject:
    """Return the same below `message`."""
    return {"object": "error", "message": pydantic_style(field), "type": "invalid_request_error", "code": None}


def routed_style(field: str) -> JsonObject:
    """Return a refusal that a router hands on as text inside its own."""
    return {
        "error": {
            "code": 400,
            "message": "Provider returned error",
            "metadata": {"provider_name": "Acme", "raw": json.dumps(openai_style(field))},
        }
    }


def refusing(*fields: str, style: Callable[[str], JsonObject] = openai_style) -> Callable[[Received], Given]:
    """Return a server that refuses the first of these fields it finds, and answers without them."""

    def answer(received: Received) -> Given:
        for field in fields:
            if field in received.body:
                return HttpAnswer(status=400, pieces=(json.dumps(style(field)).encode(),))
        return Turn(text='{"n": 1}')

    return answer


def over(server: LoopbackServer, profile: str = "openai-compatible") -> HttpModel:
    return build_model(find_profile(profile), base_url=server.url, api_key=KEY)


async def asked(model: HttpModel, name: str = "m1", **request: object) -> ChatResponse:
    """Return the whole answer of one question."""
    call = Call(None, ChatRequest((UserMessage("hi"),), **request), "c1", Route(model, name, "openai"))  # type: ignore[arg-type]
    async with aclosing(model.stream(call)) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, ChatEnd)
    return last.response


def told(response: ChatResponse) -> list[tuple[str, str]]:
    return [(change.kind, change.what) for change in response.adjustments]


@pytest.mark.parametrize("style", [openai_style, pydantic_style, mistral_style, routed_style])
async def test_a_refused_setting_goes_once(
    style: Callable[[str], JsonObject], caplog: pytest.LogCaptureFixture
) -> None:
    """One more request the first time, none after; each answer tells it, the log once, and other models are asked."""
    caplog.set_level(logging.INFO, "agentkit")
    settings = ModelSettings(temperature=0.5, top_p=0.9)
    async with LoopbackServer(refusing("temperature", style=style)) as server:
        model = over(server)
        for _ in range(2):
            assert told(await asked(model, settings=settings)) == [("setting", "temperature")]
        assert ["temperature" in request.body for request in server.requests] == [True, False, False]
        assert all(request.body["top_p"] == 0.9 for request in server.requests)
        assert told(await asked(model)) == []
        await asked(model, "m2", settings=settings)
        assert ["temperature" in request.body for request in server.requests[4:]] == [True, False]
        await model.aclose()
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2
    assert logged[0].startswith("openai-compatible:m1: temperature")


async def test_the_limit_goes_by_its_other_name() -> None:
    """A server that knows only max_completion_tokens gets it under that name, and the cap still holds."""
    async with LoopbackServer(refusing("max_tokens")) as server:
        model = over(server)
        for _ in range(2):
            assert told(await asked(model, settings=ModelSettings(max_tokens=9))) == [("setting", "max_tokens")]
        assert [request.body.get("max_completion_tokens") for request in server.requests] == [None, 9, 9]
        assert told(await asked(model)) == []
        await model.aclose()


async def test_a_limit_is_never_dropped() -> None:
    """Where both names of the limit are refused, the error stands: an answer without its cap may cost anything."""
    async with LoopbackServer(refusing("max_tokens", "max_completion_tokens")) as server:
        model = over(server)
        with pytest.raises(BadRequest):
            await asked(model, settings=ModelSettings(max_tokens=9))
        await model.aclose()
    assert len(server.requests) == 2


async def test_stream_options_and_a_schema() -> None:
    """Without stream_options usage is unknown and said to be; a schema falls back to JSON mode, then to the prompt."""
    async with LoopbackServer(refusing("stream_options", "response_format")) as server:
        model = over(server)
        answer = await asked(model, output=OUTPUT)
        assert told(answer) == [("schema", "output 'answer'"), ("setting", "stream_options")]
        await model.aclose()
    kinds = [_type(request.body.get("response_format")) for request in server.requests]
    assert kinds == ["json_schema", "json_schema", "json_object", None]
    assert "integer" in json.dumps(server.requests[-1].body["messages"])


def _type(value: JsonValue) -> JsonValue:
    return value["type"] if isinstance(value, dict) else None


async def test_only_the_default_value() -> None:
    """A temperature that may only be the default goes like a refused one; an effort that is none of a model's is wrong."""

    def answer(received: Received) -> Given:
        for field in ("temperature", "reasoning_effort"):
            if field in received.body:
                return HttpAnswer(status=400, pieces=(json.dumps(openai_style(field, "unsupported_value")).encode(),))
        return Turn(text="hi")

    async with LoopbackServer(answer) as server:
        model = over(server)
        assert told(await asked(model, settings=ModelSettings(temperature=0))) == [("setting", "temperature")]
        with pytest.raises(BadRequest, match="HTTP 400"):
            await asked(model, settings=ModelSettings(reasoning_effort="minimal"))
        await model.aclose()


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (openai_style("messages"), {}),
        (openai_style("tools[0].function.strict"), {"tools": (ToolSpec("f", "does", {"type": "object"}),)}),
        (openai_style("model", "unknown_parameter"), {}),
        (openai_style("seed", "invalid_value"), {"settings": ModelSettings(seed=1)}),
        (openai_style("seed"), {}),
        (openai_style("top_k"), {"settings": ModelSettings(extra={"top_k": 5})}),
        (openai_style("temperature"), {"settings": ModelSettings(temperature=1, extra={"temperature": 0})}),
        ({"error": {"message": "Unsupported parameter: 'temperature'", "type": "invalid_request_error"}}, {}),
        ({"detail": [{"type": "missing", "loc": ["body", "temperature"], "msg": "x"}]}, {}),
    ],
)
async def test_what_stays_an_error(body: JsonObject, request_: dict[str, object]) -> None:
    """Messages, tools, values, what was not sent, what the user put in `extra`, and what only a text says: one request."""
    request_ = {"settings": ModelSettings(temperature=1), **request_}
    async with LoopbackServer([HttpAnswer(status=400, pieces=(json.dumps(body).encode(),))]) as server:
        model = over(server)
        with pytest.raises(BadRequest):
            await asked(model, **request_)
        await model.aclose()
    assert len(server.requests) == 1


async def test_a_server_that_refuses_everything() -> None:
    """At most four fields are given up for one request, then its error is raised."""
    fields = ("temperature", "top_p", "seed", "stop", "service_tier", "metadata")
    settings = ModelSettings(temperature=1, top_p=1, seed=1, stop=("x",), service_tier="auto", metadata={"a": "b"})
    async with LoopbackServer(refusing(*fields)) as server:
        model = over(server)
        with pytest.raises(BadRequest):
            await asked(model, settings=settings)
        assert len(server.requests) == 5
        assert len(told(await asked(model, settings=settings))) == len(fields)
        await model.aclose()


async def test_requests_at_once_learn_together() -> None:
    """Requests that were under way when one of them was refused all find their way, and lose nothing more."""
    settings = ModelSettings(max_tokens=9, temperature=1)
    async with LoopbackServer(refusing("max_tokens", "temperature", "response_format")) as server:
        model = over(server)
        answers = await asyncio.gather(*(asked(model, settings=settings, output=OUTPUT) for _ in range(5)))
        await model.aclose()
    assert {tuple(sorted(told(answer))) for answer in answers} == {
        (("schema", "output 'answer'"), ("setting", "max_tokens"), ("setting", "temperature"))
    }
    assert server.requests[-1].body["max_completion_tokens"] == 9


async def test_what_was_learned_at_once_is_all_kept() -> None:
    """Two requests that learn different things at the same time do not make each other's forgotten."""
    async with LoopbackServer(refusing("seed", "temperature")) as server:
        model = over(server)
        await asyncio.gather(
            asked(model, settings=ModelSettings(seed=1)), asked(model, settings=ModelSettings(temperature=1))
        )
        before = len(server.requests)
        await asked(model, settings=ModelSettings(seed=1, temperature=1))
        await model.aclose()
    assert len(server.requests) == before + 1


async def test_a_profile_of_ones_own_is_learned_from_too() -> None:
    """What is learned is kept beside the profile that was given, which stays as it is."""
    profile = replace(find_profile("vllm"), rejects=frozenset({"seed"}))
    async with LoopbackServer(refusing("temperature")) as server:
        model = build_model(profile, base_url=server.url)
        answer = await asked(model, settings=ModelSettings(temperature=1, seed=2))
        await model.aclose()
    assert sorted(told(answer)) == [("setting", "seed"), ("setting", "temperature")]
    assert model.profile.rejects == {"seed"}
