"""Failures as each server writes them, with status 200 or not, and the one tree they become."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import Call, ChatRequest, Route, UserMessage, WireProtocol
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile
from agentkit.providers.wire.failure import error_of_body, error_of_status
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import sse


def google(code: int, status: str, *details: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"error": {"code": code, "message": "m", "status": status, "details": list(details)}}]


def routed(code: int, raw: Any, **metadata: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "Provider returned error", "metadata": {"raw": raw, **metadata}}}


def anthropic(kind: str, **details: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "m", "details": details or None}, "request_id": "r9"}


CASES: list[tuple[str, int, Any, type[ProviderError], bool]] = [
    ("openai quota", 429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, RateLimited, False),
    ("openai region", 403, {"error": {"code": "unsupported_country_region_territory"}}, AuthFailed, False),
    ("openai slow down", 503, {"error": {"type": "server_error", "code": "slow_down"}}, Overloaded, True),
    (
        "azure filter",
        400,
        {
            "error": {
                "message": "m",
                "param": "prompt",
                "code": "content_filter",
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
        Refused,
        False,
    ),
    (
        "azure filter, inner code alone",
        400,
        {"error": {"code": "400", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        Refused,
        False,
    ),
    ("azure deployment", 404, {"error": {"code": "DeploymentNotFound", "message": "m"}}, BadRequest, False),
    (
        "anthropic spend",
        429,
        anthropic("rate_limit_error", error_code="contract_spend_limit_reached"),
        RateLimited,
        False,
    ),
    ("anthropic ramp", 429, anthropic("rate_limit_error", error_code="ramp_limit_exceeded"), RateLimited, True),
    (
        "anthropic hold",
        400,
        anthropic("invalid_request_error", error_code="organization_on_hold"),
        AuthFailed,
        False,
    ),
    (
        "anthropic billed profile",
        403,
        anthropic("permission_error", error_code="user_profile_not_billable"),
        RateLimited,
        False,
    ),
    ("anthropic overloaded", 529, anthropic("overloaded_error"), Overloaded, True),
    (
        "groq turn",
        400,
        {"error": {"code": "tool_use_failed", "failed_generation": "<function=f>"}},
        ProviderError,
        True,
    ),
    ("groq json", 400, {"error": {"code": "json_validate_failed", "failed_generation": "{"}}, ProviderError, True),
    ("groq tier", 498, {"error": {"message": "m", "type": "capacity_exceeded"}}, Overloaded, True),
    ("groq too large", 413, {"error": {"type": "tokens", "code": "rate_limit_exceeded"}}, RateLimited, False),
    (
        "mistral order",
        400,
        {"object": "error", "message": "m", "type": "invalid_request_message_order", "param": None, "code": "3230"},
        BadRequest,
        False,
    ),
    (
        "mistral capacity",
        429,
        {"object": "error", "message": "m", "type": "service_tier_capacity_exceeded", "code": "3505"},
        RateLimited,
        True,
    ),
    (
        "mistral model",
        400,
        {"object": "error", "message": "m", "type": "invalid_model", "code": "1500"},
        BadRequest,
        False,
    ),
    (
        "openrouter behind",
        400,
        routed(400, json.dumps({"error": {"code": "context_length_exceeded", "message": "m"}}), provider_name="Acme"),
        ContextOverflow,
        False,
    ),
    ("openrouter credits", 402, {"error": {"code": 402, "message": "m"}}, RateLimited, False),
    ("openrouter in flight", 402, routed(402, "", limit_source="openrouter_in_flight_budget"), RateLimited, True),
    ("openrouter moderated", 403, routed(403, "", reasons=["x"], flagged_input="bad"), Refused, False),
    ("openrouter down", 502, {"error": {"code": 502, "message": "m"}}, Overloaded, True),
    ("openrouter slow", 408, {"error": {"code": 408, "message": "m"}}, Overloaded, True),
    ("gemini quota", 429, google(429, "RESOURCE_EXHAUSTED"), RateLimited, True),
    (
        "gemini key",
        400,
        google(400, "INVALID_ARGUMENT", {"@type": "ErrorInfo", "reason": "API_KEY_INVALID"}),
        AuthFailed,
        False,
    ),
    ("gemini place", 400, google(400, "FAILED_PRECONDITION"), BadRequest, False),
    ("gemini down", 503, google(503, "UNAVAILABLE"), Overloaded, True),
    ("deepseek money", 402, {"error": {"message": "m", "type": "unknown_error"}}, RateLimited, False),
    ("xai key", 400, {"code": "invalid-argument", "error": "Incorrect API key"}, BadRequest, False),
    (
        "vllm window",
        400,
        {"error": {"message": "m", "type": "BadRequestError", "param": "input_tokens", "code": 400}},
        ContextOverflow,
        False,
    ),
    ("vllm model", 404, {"error": {"message": "m", "type": "NotFoundError", "code": 404}}, BadRequest, False),
    ("sglang", 400, {"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, BadRequest, False),
    ("ollama model", 404, {"error": {"message": "m", "type": "not_found_error"}}, BadRequest, False),
    ("lmstudio text", 400, {"error": "Invalid tool_choice"}, BadRequest, False),
    (
        "llamacpp window",
        400,
        {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}},
        ContextOverflow,
        False,
    ),
    ("llamacpp loading", 503, {"error": {"code": 503, "type": "unavailable_error"}}, Overloaded, True),
    ("moonshot money", 429, {"error": {"type": "exceeded_current_quota_error"}}, RateLimited, False),
    ("fastapi", 422, {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "m"}]}, BadRequest, False),
    ("bedrock", 429, {"message": "m", "type": "throttlingException"}, RateLimited, True),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), [pytest.param(*row[1:], id=row[0]) for row in CASES])
def test_every_servers_failures(status: int, body: Any, kind: type[ProviderError], retryable: bool) -> None:
    """Class and retryable follow from type, code and status, as an answer of its own and (B27) inside a stream."""
    found = error_of_status(status, {}, body)
    assert (type(found), found.retryable, found.status) == (kind, retryable, status)
    inside = error_of_body(body)
    if inside.status == status:
        assert (type(inside), inside.retryable) == (kind, retryable)
        assert inside.accepted is not False


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "queue full", "code": 429}}, RateLimited),
        ({"id": None, "choices": None, "error": {"code": 500}}, Overloaded),
        ({"error": {"message": "m", "code": "context_length_exceeded"}, "choices": []}, ContextOverflow),
        ({"error": {"message": "m", "code": "something_new"}}, Overloaded),
        ({"error": "text alone"}, Overloaded),
        ({"error": {"message": "m", "code": "insufficient_quota"}}, RateLimited),
        ({"error": {"message": "m", "type": "BadRequestError", "param": "input_tokens", "code": 400}}, ContextOverflow),
    ],
)
async def test_b27_failures_inside_a_stream(body: Any, kind: type[ProviderError]) -> None:
    """B27: an error event after status 200 is the error it names, never an empty answer; unknown ones are the server's."""
    pieces = (sse(body), sse("[DONE]"))
    async with LoopbackServer([HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces)]) as server:
        model = build_model(find_profile("openai"), base_url=server.url)
        error = await failed(model)
        await model.aclose()
    assert type(error) is kind
    assert error.accepted is True


BARE = [
    b'{"error": {"message": "slow down", "code": 429}}',
    b'{\n  "error": {"code": 429}\n}\n',
    b'{"error": {"code": 429}}\n\n',
]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
@pytest.mark.parametrize("body", BARE, ids=["one line", "several lines", "as a frame"])
async def test_b27_an_error_that_is_no_event_in_an_event_stream(protocol: WireProtocol, body: bytes) -> None:
    """B27: JSON in a stream's place is the error it names in every protocol, however it is cut."""
    cut = tuple(body[at : at + 1] for at in range(len(body)))
    answers = [HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces) for pieces in ((body,), cut)]
    async with LoopbackServer(answers) as server:
        model = build_model(find_profile("vllm"), base_url=server.url, protocol=protocol)
        errors = [await failed(model) for _ in answers]
        await model.aclose()
    assert [type(error) for error in errors] == [RateLimited] * 2


async def failed(model: HttpModel) -> ProviderError:
    """Return the error of one question."""
    call = Call(None, ChatRequest((UserMessage("hi"),)), "c1", Route(model, "m", "openai"))
    with pytest.raises(ProviderError) as caught:
        async with aclosing(model.stream(call)) as events:
            async for _ in events:
                pass
    return caught.value


async def test_b30_a_bad_turn_of_the_model_may_be_tried_again() -> None:
    """B30: the refusal of a malformed call is the model's fault: retryable, as an attempt that was worked on and billed."""
    body = {"error": {"code": "tool_use_failed", "failed_generation": "<function=read={"}}
    async with LoopbackServer([HttpAnswer(status=400, pieces=(json.dumps(body).encode(),))]) as server:
        model = build_model(find_profile("groq"), base_url=server.url, api_key="gsk_0123456789")
        error = await failed(model)
        await model.aclose()
    assert (type(error), error.retryable, error.accepted, error.code) == (ProviderError, True, True, "tool_use_failed")


def test_what_else_an_error_carries() -> None:
    """The delay inside a body, the id, what is behind a router, the numbers of a full window, a server's own no."""
    delayed = google(429, "RESOURCE_EXHAUSTED", {"@type": "RetryInfo", "retryDelay": "34.5s"})
    assert error_of_status(429, {}, delayed).retry_after == 34.5
    assert error_of_status(429, {"retry-after": "2"}, delayed).retry_after == 2
    assert error_of_body(delayed).retry_after == 34.5
    assert error_of_status(529, {}, anthropic("overloaded_error")).request_id == "r9"
    behind = error_of_status(502, {}, routed(502, "connection reset", provider_name="Acme"))
    assert "Acme: connection reset" in behind.message
    window = {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}}
    assert "900 tokens, the window is 512" in error_of_status(400, {}, window).message
    assert error_of_status(500, {"x-should-retry": "false"}, None).retryable is False
    kept = error_of_status(429, {"Retry-After": "7", "X-RateLimit-Reset-Tokens": "1s", "Cookie": "c"}, None).headers
    assert kept == {"retry-after": "7", "x-ratelimit-reset-tokens": "1s"}


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (404, {"error": {"code": "model_not_found"}}, "model's name"),
        (404, "Not Found", "base_url"),
        (401, None, "api_key="),
        (307, None, "base_url"),
    ],
)
def test_errors_tell_the_next_step(status: int, body: Any, hint: str) -> None:
    """A wrong name, address or key says what to look at."""
    assert hint in error_of_status(status, {}, body).message


async def test_errors_name_the_server() -> None:
    """The message starts with the host that failed, without its path; also when nothing answered."""
    async with LoopbackServer([HttpAnswer(status=404, pieces=(b"{}",))]) as server:
        model = build_model(find_profile("openai"), base_url=f"{server.origin}/some/path/v1?token=topsecret")
        error = await failed(model)
        await model.aclose()
    host = server.origin.removeprefix("http://")
    assert error.message.startswith(f"{host}: HTTP 404")
    assert "path" not in error.message.partition("base_url")[0]
    assert server.requests[0].path == "/some/path/v1/chat/completions?token=topsecret"
    gone = build_model(find_profile("openai"), base_url=server.url)
    assert host in (await failed(gone)).message
    await gone.aclose()


@pytest.mark.parametrize("before", [480, 490, 497, 501])
async def test_b118_no_part_of_a_secret_at_a_cut(before: int) -> None:
    """B118: a long text is cut between words, so a key at the cut is not shown by half."""
    text = f"{'x ' * (before // 2)}0123456789-abcdefghijklmnop tail"
    model = HttpModel(
        find_profile("openai-compatible"), OneRefusal(text.encode(), {}), key="0123456789-abcdefghijklmnop"
    )
    assert "0123" not in (await failed(model)).message


class OneRefusal:
    """A transport and its one answer in this process: status 400 with a body that is given."""

    base_url, brings_auth, protocols = "http://server.test/v1", False, ()
    status, at_end, secrets = 400, True, ()

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        self._body, self.headers = body, headers

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> OneRefusal:
        return self

    async def chunk(self) -> bytes:
        given, self._body = self._body, b""
        return given

    async def read(self) -> bytes:
        return await self.chunk()

    async def aclose(self) -> None:
        return None


# A key has a digit here and there; without one, it could be a piece of our own words.
SECRET = st.text(st.characters(codec="ascii", categories=("L", "Nd"), include_characters="-_./+="), min_size=8).filter(
    lambda text: sum(sign.isdigit() for sign in text) >= 3
)


@given(
    secret=SECRET,
    before=st.text(max_size=600),
    place=st.sampled_from(("message", "code", "type", "raw", "detail", "text", "param", "request_id")),
    form=st.sampled_from(("plain", "base64", "url", "bearer")),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_b118_no_secret_in_any_error(
    caplog: pytest.LogCaptureFixture, secret: str, before: str, place: str, form: str
) -> None:
    """B118: whatever part of an answer quotes the key, in whatever coding and at any length, no error shows it."""
    coded = {
        "plain": secret,
        "base64": base64.b64encode(secret.encode()).decode().rstrip("="),
        "url": quote(secret, safe=""),
        "bearer": f"Bearer {secret}",
    }[form]
    told = f"{before} {coded} after"
    bodies: dict[str, Any] = {
        "raw": routed(400, json.dumps({"error": {"message": told}})),
        "detail": {"detail": [{"type": "missing", "loc": ["body", told], "msg": told}]},
        "text": told,
        "request_id": {"request_id": told, "error": {"message": "m"}},
    }
    body = bodies.get(place, {"error": {place: told, "message": told if place == "param" else "m"}})
    caplog.set_level(logging.DEBUG)
    transport = OneRefusal(json.dumps(body).encode(), {"x-request-id": coded} if place == "message" else {})
    model = HttpModel(find_profile("openai-compatible"), transport, key=secret)
    error = await failed(model)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)) + repr(model) + caplog.text
    assert secret not in shown
    assert coded not in shown
