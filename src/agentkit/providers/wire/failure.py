"""From what a server said to the error tree: by status, type and code, never by searching text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypedDict

from agentkit.core.contracts import JsonValue
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)

__all__ = ["error_of_body", "error_of_status", "malformed_turn", "redact", "request_id_of", "retry_after_of"]

_OVERFLOW = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
_FILTERED = frozenset({"content_filter", "content_policy_violation", "responsible_ai_policy_violation"})
_NO_CREDIT = frozenset(
    {
        "insufficient_quota",
        "billing_error",
        "billing_not_active",
        "billing_hard_limit_reached",
        "enforced_spend_limit_reached",
        "insufficient_balance",
        "insufficient_credits",
        "credit_balance_too_low",
        "quota_exhausted",
    }
)
_BAD_TURN = frozenset({"tool_use_failed", "tool_call_parse_failed"})
_STATUS_OF = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "requests": 429,
    "tokens": 429,
    "overloaded_error": 529,
    "engine_overloaded": 503,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "badrequesterror": 400,
}
_KEPT_HEADERS = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit-")
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray")
_MOST_TEXT = 500
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s\"',;]+")
_PARAMETER = re.compile(r"(?i)([?&](?:api[-_]?key|key|token|access_token|sig|signature)=)[^&\s\"']+")
_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_\-]{8,}|\bAIza[A-Za-z0-9_\-]{8,}")


_LEAST_SECRET = 6


def redact(text: str, *secrets: str) -> str:
    """Return the text without these secrets, bearer tokens, keys in URLs, and what looks like a vendor's key.

    A secret of a few letters protects nothing, and taking it out would only garble the text.
    """
    for secret in secrets:
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, "****")
    text = _PARAMETER.sub(r"\1****", _BEARER.sub(r"\1****", text))
    return _SECRET.sub("****", text)


def error_of_status(status: int, headers: Mapping[str, str], body: JsonValue, *, text: str = "") -> ProviderError:
    """Return the error of an answer that is not 200; `body` is its JSON, None when it has none."""
    kind, code, message = _fields(body)
    error = _build(status, kind, code, message or text.strip()[:_MOST_TEXT] or "the server gave no reason")
    error.retry_after = retry_after_of(headers)
    error.request_id = request_id_of(headers) or (_text(body.get("request_id")) if isinstance(body, dict) else None)
    error.headers = {name.lower(): value for name, value in headers.items() if name.lower().startswith(_KEPT_HEADERS)}
    return error


def error_of_body(body: JsonValue) -> ProviderError:
    """Return the error that came inside a stream or an answer with status 200; unknown ones are the server's fault."""
    kind, code, message = _fields(body)
    status = _inner_status(body, kind, code)
    error = _build(status, kind, code, message or "the server reported an error without a reason")
    error.status = status if error.status is None else error.status
    if error.accepted is False:
        error.accepted = None  # the request itself was taken with 200
    return error


def malformed_turn(message: str) -> ProviderError:
    """Return the error for a turn the model, not the transport, got wrong; asking again may help."""
    return ProviderError(f"The model's turn is malformed: {message}.", code="malformed_turn", accepted=True)


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of the request, None when it gave none."""
    return next((found for name in _REQUEST_IDS if (found := headers.get(name))), None)


def retry_after_of(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait from retry-after-ms or Retry-After (seconds or a date); nonsense is None."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if given is None:
        return None
    if (seconds := _number(given)) is not None:
        return seconds
    try:
        at = parsedate_to_datetime(given)
    except (TypeError, ValueError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "nan")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


class _Known(TypedDict):
    status: int | None
    code: str | None


def _build(status: int, kind: str, code: str, message: str) -> ProviderError:
    message = redact(message)[:_MOST_TEXT]
    said = f"HTTP {status}: {message}" if status else message
    names = {kind.lower(), code.lower()}
    known: _Known = {"status": status or None, "code": (kind or code if code.isdigit() else code or kind) or None}
    if names & _OVERFLOW:
        return ContextOverflow(said, **known, accepted=False)
    if names & _FILTERED:
        refused = Refused(said)
        refused.status, refused.code = known["status"], known["code"]
        return refused
    if names & _BAD_TURN:
        return ProviderError(said, **known, accepted=True)
    if names & _NO_CREDIT or status == 402:
        return RateLimited(f"{said} (the account's credit is used up)", **known, retryable=False, accepted=False)
    if names & {"rate_limit_exceeded", "rate_limit_error"} or status == 429:
        return RateLimited(said, **known, accepted=False)
    return _by_status(status, said, known)


def _by_status(status: int, said: str, known: _Known) -> ProviderError:
    if status in (401, 403):
        hint = "Check the key (api_key=, or the provider's variable) and its rights."
        return AuthFailed(f"{said.rstrip('. ')}. {hint}", **known, accepted=False)
    if status == 413:
        return ContextOverflow(said, **known, accepted=False)
    if 300 <= status < 400:
        return BadRequest(
            f"{said.rstrip('. ')}. The server redirects; give its final address as base_url.", **known, accepted=False
        )
    if status in (408, 409, 425, 499):
        return Overloaded(said, **known)
    if 400 <= status < 500 or status == 501:
        return BadRequest(said, **known, accepted=False)
    return Overloaded(said, **known, accepted=False if status == 529 else None)


def _fields(body: JsonValue) -> tuple[str, str, str]:
    """Return type, code and message of any of the shapes servers use for an error."""
    found: JsonValue = body
    if isinstance(body, dict):
        found = body.get("error") or body.get("detail") or body
    if isinstance(found, list):
        found = found[0] if found else None
    if not isinstance(found, dict):
        return "", "", _text(found)
    details = found.get("details")
    inner = found.get("innererror")
    code = _text(found.get("code"))
    if isinstance(details, dict) and not code:
        code = _text(details.get("error_code"))
    if isinstance(inner, dict) and _text(inner.get("code")):
        code = code or _text(inner.get("code"))
    return _text(found.get("type")), code, _text(found.get("message")) or _text(found.get("msg"))


def _inner_status(body: JsonValue, kind: str, code: str) -> int:
    if code.isdigit() and 300 <= int(code) < 600:
        return int(code)
    for name in (code.lower(), kind.lower()):
        if name in _STATUS_OF:
            return _STATUS_OF[name]
    found = body.get("error") if isinstance(body, dict) else None
    status = found.get("status") if isinstance(found, dict) else None
    return status if isinstance(status, int) and 300 <= status < 600 else 500


def _text(value: JsonValue) -> str:
    return "" if value is None or isinstance(value, (dict, list, bool)) else str(value)
