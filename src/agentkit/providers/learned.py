"""What a server refuses although it is optional: read from its error, and done otherwise from then on."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import Adjustment, ChatRequest
from agentkit.providers.profiles import Profile
from agentkit.providers.wire.error_body import Said

__all__ = ["MOST_REFUSALS", "Lesson", "learn"]

MOST_REFUSALS: Final = 4  # fields that one request may lose before its error is raised
_UNKNOWN: Final = frozenset({"unsupported_parameter", "unknown_parameter"})
_ONLY_DEFAULT: Final = frozenset({"temperature", "top_p"})
_OPTIONAL: Final = _ONLY_DEFAULT | {
    "metadata",
    "parallel_tool_calls",
    "reasoning",
    "reasoning_effort",
    "random_seed",
    "seed",
    "service_tier",
    "stop",
    "stop_sequences",
}
_UNASKED: Final = "include"  # what a writer adds of itself, and nobody misses: the param alone says that it is refused
_CAPS: Final = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_FALLS_BACK_TO: Final[dict[str, Literal["prompt", "text"]]] = {
    "strict": "prompt",
    "enforced": "prompt",
    "prompt": "text",
}
_FORMATS: Final = ("response_format.type", "text.format.type")
_ROOT: Final = re.compile(r"[A-Za-z_]+")


class Lesson(Struct, frozen=True):
    """The refused `field`, the profile that does without it, and a note for what a writer cannot tell of itself."""

    field: str
    profile: Profile
    note: Adjustment | None = None


def learn(
    profile: Profile, request: ChatRequest, sent: Container[str], said: Said, before: Container[str]
) -> Lesson | None:
    """Return how to do without the field that the server refuses; None when the error has to stand.

    The field is read from the error's code and param, or from a validation's location, never from its text. It stands
    for what is no option (messages, tools, the model, a limit under both its names), for values with a meaning of
    their own, for what `settings.extra` holds, and for a field that was not sent. `sent` are the body's fields,
    `before` those that this request lost already.
    """
    field = _refused(said)
    if field not in sent or field in (request.settings.extra or ()):
        return None
    if field in ("response_format", "text") and profile.schemas in _FALLS_BACK_TO:
        return Lesson(field, replace(profile, schemas=_FALLS_BACK_TO[profile.schemas]))
    if field in before:
        return None
    if field in _OPTIONAL or field == _UNASKED:
        return Lesson(field, replace(profile, rejects=profile.rejects | {field}))
    if field == "store":
        note = Adjustment("setting", field, f"{profile.name} refused store=false; it may keep the conversation")
        return Lesson(field, replace(profile, rejects=profile.rejects | {field}), note)
    if field == "stream_options":
        note = Adjustment("setting", field, f"{profile.name} refused it; the usage of a stream may be unknown")
        return Lesson(field, replace(profile, stream_usage=False), note)
    other = _CAPS.get(field)
    if other is None or field != profile.max_tokens_field or other in before:
        return None
    note = Adjustment("setting", "max_tokens", f"{profile.name} refused {field}; sent as {other}")
    return Lesson(field, replace(profile, max_tokens_field=other), note)


def _refused(said: Said) -> str:
    if said.forbidden:
        return said.forbidden[0]
    root = _ROOT.match(said.param)
    field = root.group() if root else ""
    if field == _UNASKED:
        return field
    if not _UNKNOWN.isdisjoint(said.names):
        return field
    if "unsupported_value" in said.names and (field in _ONLY_DEFAULT or said.param in _FORMATS):
        return field
    return ""
