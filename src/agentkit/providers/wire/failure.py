"""From what a server said to the error tree: by status, type and code, never by searching text."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Final, TypedDict
from urllib.parse import quote

import msgspec

from agentkit.core.contracts import JsonValue, clean_text
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)
from agentkit.providers.wire.error_body import Said, read_error

__all__ = [
    "error_of_body",
    "error_of_status",
    "malformed_turn",
    "redact",
    "request_id_of",
    "retry_after_of",
    "shorten",
]

_FILE: Final = Path(__file__).parents[1] / "data" / "error_codes.json"
_STATUS_OF: Final = {
    "auth": 401,
    "no_credit": 402,
    "no_model": 404,
    "too_large": 413,
    "rate": 429,
    "overloaded": 529,
    "server": 500,
    "bad_request": 400,
}
_KEPT_HEADERS = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit-", "retry-after", "x-should-retry")
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray")
_MOST_TEXT = 500
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s\"',;]+")
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_PARAMETER = re.compile(r"(?i)([?&](?:api[-_]?key|key|token|access_token|sig|signature)=)[^&\s\"']+")
_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_\-]{8,}|\bAIza[A-Za-z0-9_\-]{8,}")


_LEAST_SECRET = 6


def redact(text: str, *secrets: str) -> str:
    """Return the text without these secrets, bearer tokens, what is secret in URLs, and what looks like a key.

    A secret is also found in base64 and as it stands in a URL. One of a few letters protects nothing, and taking it out
    would only garble the text.
    """
    for secret in secrets:
        if len(secret) >= _LEAST_SECRET:
            for form in _forms(secret):
                text = text.replace(form, "****")
    text = _USERINFO.sub("****@", text)
    text = _PARAMETER.sub(r"\1****", _BEARER.sub(r"\1****", text))
    return _SECRET.sub("****", text)


def shorten(text: str) -> str:
    """Return the head of a long text, cut where a word ends, so that no part of a secret is left at the cut."""
    if len(text) <= _MOST_TEXT:
        return text
    head = text[: _MOST_TEXT + 1]
    return f"{head[: max(head.rfind(' '), head.rfind(chr(10)), 0)]} ...".lstrip()


def _forms(secret: str) -> list[str]:
    """Return the secret and its codings, the longest first."""
    raw = secret.encode("utf-8", "replace")
    coded = {form.decode().rstrip("=") for form in (base64.b64encode(raw), base64.urlsafe_b64encode(raw))}
    quoted = {quote(secret), quote(secret, safe="")}
    return sorted({secret, *coded, *quoted}, key=len, reverse=True)


def error_of_status(status: int, headers: Mapping[str, str], body: JsonValue, *, text: str = "") -> ProviderError:
    """Return the error of an answer that is not 200; `body` is its JSON, None when it has none."""
    said = read_error(body)
    error = _build(status, said, text.strip() or "the server gave no reason")
    hint = retry_after_of(headers)
    error.retry_after = said.retry_after if hint is None else hint
    error.request_id = request_id_of(headers) or said.request_id or None
    error.headers = {name.lower(): value for name, value in headers.items() if name.lower().startswith(_KEPT_HEADERS)}
    if error.headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def error_of_body(body: JsonValue) -> ProviderError:
    """Return the error that came inside a stream or an answer with status 200; unknown ones are the server's fault."""
    said = read_error(body)
    status = said.status or next((_STATUS_OF[kind] for kind in _kinds(said) if kind in _STATUS_OF), 500)
    error = _build(status, said, "the server reported an error without a reason")
    error.status = status if error.status is None else error.status
    error.retry_after = said.retry_after
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


def _build(status: int, said: Said, otherwise: str) -> ProviderError:
    text = f"HTTP {status}: {shorten(clean_text(redact(said.message or otherwise)))}"
    known: _Known = {"status": status, "code": said.code or None}
    kinds = _kinds(said)
    if "overflow" in kinds or (said.param == "input_tokens" and status in (400, 422)):
        return ContextOverflow(text, **known, accepted=False)
    if "filtered" in kinds or said.moderated:
        refused = Refused(text)
        refused.status, refused.code = known["status"], known["code"]
        return refused
    if "bad_turn" in kinds:
        return ProviderError(text, **known, accepted=True)
    if status == 402 and said.limit_source == "openrouter_in_flight_budget":
        return RateLimited(text, **known, accepted=False)
    if "no_credit" in kinds or status == 402:
        return RateLimited(f"{text} (the account's credit is used up)", **known, retryable=False, accepted=False)
    if ("rate" in kinds and status < 500) or status == 429:
        return RateLimited(text, **known, retryable=status != 413, accepted=False)
    return _by_status(401 if "auth" in kinds and status < 500 else status, text, known, no_model="no_model" in kinds)


def _by_status(status: int, text: str, known: _Known, *, no_model: bool) -> ProviderError:
    if status in (401, 403):
        hint = "Check the key (api_key=, or the provider's variable) and its rights."
        return AuthFailed(_with(text, hint), **known, accepted=False)
    if status == 413:
        return ContextOverflow(text, **known, accepted=False)
    if 300 <= status < 400:
        hint = "The server redirects; give its final address as base_url."
        return BadRequest(_with(text, hint), **known, accepted=False)
    if status in (408, 409, 425, 499):
        return Overloaded(text, **known)
    if no_model and status < 500:
        hint = "Check the model's name; GET /v1/models lists what a server has."
        return BadRequest(_with(text, hint), **known, accepted=False)
    if status == 404:
        hint = "Check base_url, which often has to end in /v1, and the model's name."
        return BadRequest(_with(text, hint), **known, accepted=False)
    if (400 <= status < 500 and status != 498) or status == 501:  # 498 is Groq's for a full service tier
        return BadRequest(text, **known, accepted=False)
    return Overloaded(text, **known, accepted=False if status in (498, 529) else None)


def _with(text: str, hint: str) -> str:
    return f"{text.rstrip('. ')}. {hint}"


def _kinds(said: Said) -> list[str]:
    """Return what kind of failure each name stands for, the most exact first."""
    known = _known()
    return [known[name] for name in said.names if name in known]


@cache
def _known() -> dict[str, str]:
    listed = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, list[str]])
    return {name: kind for kind, names in listed.items() for name in names}
