"""Reads the error out of a body: every shape that servers use, brought into one."""

from __future__ import annotations

import math
import re

import msgspec
from msgspec import Struct

from agentkit.core.contracts import JsonObject, JsonValue

__all__ = ["Said", "read_error"]

_DELAY = re.compile(r"([0-9]+(?:\.[0-9]+)?)s")
_LISTED = 3  # problems of a validation that are worth telling


class Said(Struct, frozen=True, kw_only=True):
    """What a server said of a failure.

    `names` are all its types, codes and reasons in lower case, the most exact first; `code` is the one worth showing;
    `param` is the field it is about; `forbidden` are the body fields a validation calls unknown; `status` is the HTTP
    status inside the body, None without one; `retry_after` is seconds.
    """

    names: tuple[str, ...] = ()
    code: str = ""
    message: str = ""
    param: str = ""
    forbidden: tuple[str, ...] = ()
    status: int | None = None
    retry_after: float | None = None
    request_id: str = ""
    limit_source: str = ""
    moderated: bool = False


def read_error(body: JsonValue) -> Said:
    """Return what the body says; a body that says nothing gives an empty one."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return Said(message=_text(body))
    inner = body.get("error")
    if isinstance(inner, dict):
        return _read(inner, body)
    if isinstance(inner, str):
        return _read({**body, "message": inner}, body)
    return _read(body, body)


def _read(error: JsonObject, body: JsonObject) -> Said:
    message, problems = _message(error)
    metadata = _object(error.get("metadata"))
    upstream = _upstream(metadata)
    details = error.get("details")
    listed = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    exact = (
        _text(_object(details).get("error_code")),
        *(_text(item.get("reason")) for item in listed),
        _text(_object(error.get("innererror")).get("code")),
        _text(metadata.get("error_type")),
    )
    code, kind, status = _text(error.get("code")), _text(error.get("type")), error.get("status")
    grpc = status if isinstance(status, str) else ""
    names = [name for name in (*exact, code, kind, grpc) if name and not name.isdigit()]
    names += [name for name in upstream.names if name not in names]
    if told := upstream.message or _text(metadata.get("raw")):
        source = _text(metadata.get("provider_name")) or "its provider"
        message = f"{message} ({source}: {told})" if message else told
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(error.get("n_ctx"), int):
        message = f"{message} ({error['n_prompt_tokens']} tokens, the window is {error['n_ctx']})"
    return Said(
        names=tuple(name.lower() for name in names),
        code=next((name for name in names if name.lower() != "error"), code),
        message=message,
        param=_text(error.get("param")) or upstream.param,
        forbidden=tuple(filter(None, map(_forbidden, problems))),
        status=_status(code) or _status(status) or upstream.status,
        retry_after=_delay(listed),
        request_id=_text(body.get("request_id")),
        limit_source=_text(metadata.get("limit_source")),
        moderated="flagged_input" in metadata,
    )


def _message(error: JsonObject) -> tuple[str, list[JsonObject]]:
    """Return the text, and the problems where a validation lists them: in `detail`, or in it below `message`."""
    message = error.get("message")
    given = error.get("detail")
    if isinstance(message, dict):
        given = message.get("detail", given)
    elif isinstance(message, list):
        given = message
    if isinstance(given, dict):
        return _text(given.get("message")) or _text(given.get("msg")), []
    if not isinstance(given, list):
        return _text(message) or _text(given) or _text(error.get("msg")), []
    problems = [item for item in given if isinstance(item, dict)]
    told = [f"{_path(item)}: {_text(item.get('msg'))}" for item in problems[:_LISTED]]
    return _text(message) or "; ".join(told), problems


def _path(problem: JsonObject) -> str:
    place = problem.get("loc")
    return ".".join(map(_text, place)) if isinstance(place, list) else ""


def _forbidden(problem: JsonObject) -> str:
    place = problem.get("loc")
    if problem.get("type") not in ("extra_forbidden", "value_error.extra") or not isinstance(place, list):
        return ""
    return _text(place[1]) if len(place) == 2 and place[0] == "body" else ""


def _upstream(metadata: JsonObject) -> Said:
    """Return what the server behind a router said, which the router hands on as JSON text."""
    raw = metadata.get("raw")
    if isinstance(raw, str):
        try:
            raw = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return Said()
    return read_error(raw) if isinstance(raw, dict) else Said()


def _delay(details: list[JsonObject]) -> float | None:
    for item in details:
        if found := _DELAY.fullmatch(_text(item.get("retryDelay"))):
            seconds = float(found.group(1))
            return seconds if math.isfinite(seconds) else None
    return None


def _status(value: JsonValue) -> int | None:
    text = _text(value)
    return int(text) if len(text) == 3 and text.isascii() and text.isdigit() and text[0] in "345" else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str:
    return "" if value is None or isinstance(value, (dict, list, bool)) else str(value)
