"""From status, type, code and headers to the error tree, and what never stays in a text."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)
from agentkit.providers.wire.failure import error_of_status, redact, retry_after_of

NOW = datetime(2026, 10, 21, 7, 27, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_every_form_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """B74: milliseconds, seconds and dates are read, nonsense is no hint."""
    assert retry_after_of(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable", "accepted"),
    [
        (400, {"code": "context_length_exceeded"}, ContextOverflow, False, False),
        (413, {"type": "request_too_large"}, ContextOverflow, False, False),
        (400, {"type": "invalid_request_error", "message": "maximum context length is 5"}, BadRequest, False, False),
        (400, {"code": "content_filter"}, Refused, False, True),
        (400, {"code": "tool_use_failed", "failed_generation": "<function=f>"}, ProviderError, True, True),
        (401, {"code": "invalid_api_key"}, AuthFailed, False, False),
        (402, {"type": "billing_error"}, RateLimited, False, False),
        (403, {"type": "permission_error"}, AuthFailed, False, False),
        (404, {"code": "model_not_found"}, BadRequest, False, False),
        (408, {}, Overloaded, True, None),
        (409, {}, Overloaded, True, None),
        (422, {}, BadRequest, False, False),
        (429, {"type": "tokens", "code": "rate_limit_exceeded"}, RateLimited, True, False),
        (429, {"type": "insufficient_quota", "code": "insufficient_quota"}, RateLimited, False, False),
        (
            429,
            {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}},
            RateLimited,
            False,
            False,
        ),
        (500, {"type": "api_error"}, Overloaded, True, None),
        (503, {}, Overloaded, True, None),
        (529, {"type": "overloaded_error"}, Overloaded, True, False),
    ],
)
def test_status_type_and_code_decide(
    status: int, error: dict[str, Any], kind: type[ProviderError], retryable: bool, accepted: bool | None
) -> None:
    """The class, whether to try again and whether work was done follow from status, type and code, never from the text."""
    found = error_of_status(status, {"x-request-id": "r1"}, {"error": {"message": "x", **error}})
    assert type(found) is kind
    assert (found.status, found.retryable, found.accepted, found.request_id) == (status, retryable, accepted, "r1")


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        [{"error": {"message": "m"}}],
        "plain",
        {"error": "text"},
        {"detail": [{"msg": "m"}]},
        {"error": {"code": 5}},
        7,
    ],
)
def test_any_shape_of_body_is_an_error(body: Any) -> None:
    """Servers that answer with text, lists or numbers get the class of their status all the same."""
    assert isinstance(error_of_status(503, {}, body, text="<html>"), Overloaded)


def test_rate_limit_headers_are_kept_and_others_are_not() -> None:
    """The error carries what a scheduler needs, and no cookie."""
    headers = {
        "X-RateLimit-Remaining-Tokens": "5",
        "anthropic-ratelimit-requests-reset": "soon",
        "Set-Cookie": "secret",
    }
    assert error_of_status(429, headers, None).headers == {
        "x-ratelimit-remaining-tokens": "5",
        "anthropic-ratelimit-requests-reset": "soon",
    }


@pytest.mark.parametrize(
    "text",
    [
        "https://host/v1?key=AIzaFAKE0123456789&x=1",
        "Authorization: Bearer abc.DEF-123",
        "Incorrect API key provided: sk-proj-abcdefghijkl.",
        "api_key=mine-0123456789",
    ],
)
def test_credentials_do_not_stay_in_texts(text: str) -> None:
    """B118: keys in URLs, headers and server messages are masked, the rest of the text stays."""
    shown = redact(f"before {text} after", "mine-0123456789")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "****" in shown
    for secret in ("AIzaFAKE", "abc.DEF", "sk-proj-abc", "mine-012"):
        assert secret not in shown
