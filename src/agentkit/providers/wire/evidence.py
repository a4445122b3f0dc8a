"""What a usage object says beside the tokens: units that are billed, how they are billed, and itself as evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from agentkit.core.contracts import JsonObject, JsonValue, Units
from agentkit.providers.wire.clean import count_of, told_json
from agentkit.providers.wire.failure import redact

__all__ = ["Words", "billing_of", "item_units", "kept_usage", "sorted_units", "units_of"]

_MOST_BYTES: Final = 4_096
_MOST_VALUES: Final = 256
_HUGE: Final = 2**63
_MOST_DEPTH: Final = 5
_MOST_LETTERS: Final = 64
_MOST_KNOWN: Final = 512
_WORD: Final = re.compile(r"[\w.:/@+-]{1,64}", re.ASCII)
_MODALITIES: Final = ("audio_tokens", "image_tokens", "video_tokens")
_SIDES: Final = (
    ("prompt_tokens_details", "input"),
    ("input_tokens_details", "input"),
    ("completion_tokens_details", "output"),
    ("output_tokens_details", "output"),
)
_SERVER_TOOLS: Final = {
    "web_search_requests": "web_searches",
    "code_execution_requests": "code_executions",
    "web_fetch_requests": "",  # fetches and searches among tools cost nothing beside their tokens
    "tool_search_requests": "",
}
_ITEMS: Final = {
    "web_search_call": "web_searches",
    "file_search_call": "storage_searches",
    "x_search_call": "social_searches",
    "image_generation_call": "generated_images",
}
_BILLING: Final = ("inference_geo", "speed")
_UNSAID: Final = "not_available"


class Words:
    """Says which words may be kept as evidence: short ones without spaces, with secrets taken out; None for others."""

    __slots__ = ("_known", "_secrets", "plain")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._known: dict[str, str | None] = {}
        self.plain: set[str] = set()  # words that were seen before and are kept as they are

    def __call__(self, text: str) -> str | None:
        """Return the word, None for a text."""
        known = self._known
        if text in known:
            return known[text]
        word = redact(text, *self._secrets) if _WORD.fullmatch(text) else None
        if len(text) <= _MOST_LETTERS and len(known) < _MOST_KNOWN:
            known[text] = word
            if word == text:
                self.plain.add(text)
        return word


def kept_usage(usage: JsonObject | None, words: Words) -> JsonObject | None:
    """Return the usage object as evidence: numbers, names and words, at most 4 KB of it; None for an empty one.

    Texts are left out: they are none of a bill's business.
    """
    if not usage:
        return None
    kept = _object(usage, words, _MOST_DEPTH, [_MOST_VALUES])
    size = _size(kept)
    while size > _MOST_BYTES:
        name, value = kept.popitem()
        size -= _size({name: value}) - 1
    return kept or None


def units_of(usage: JsonObject) -> dict[str, int]:
    """Return what is billed beside or inside the tokens, under the catalogue's names."""
    units: dict[str, int] = {}
    for name, side in _SIDES:
        details = usage.get(name)
        if isinstance(details, dict):
            _add_modalities(units, details, side)
    tools = usage.get("server_tool_use")
    if isinstance(tools, dict):
        for name, value in tools.items():
            unit = _SERVER_TOOLS.get(name, name)
            if unit and (number := count_of(value)):
                units[unit] = number
    if sources := count_of(usage.get("num_sources_used")):
        units["searched_sources"] = sources
    return units


def item_units(items: Iterable[JsonObject]) -> dict[str, int]:
    """Return the calls of the server's own tools that are billed a piece, by the output items of a response.

    Looking at a page that a search found is no search. A container is billed once, however often code runs in it.
    """
    units: dict[str, int] = {}
    containers: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind == "code_interpreter_call":
            containers.add(str(item.get("container_id") or item.get("id")))
        unit = _ITEMS.get(kind) if isinstance(kind, str) else None
        action = item.get("action")
        if unit is None or (
            isinstance(action, dict) and action.get("type") not in ("search", None, "generate", "edit")
        ):
            continue
        units[unit] = units.get(unit, 0) + 1
    if containers:
        units["code_containers"] = len(containers)
    return units


def billing_of(usage: JsonObject) -> dict[str, str]:
    """Return the facts a price may depend on, such as where the model ran and how fast."""
    return {
        name: value for name in _BILLING if isinstance(value := usage.get(name), str) and value and value != _UNSAID
    }


def sorted_units(units: dict[str, int]) -> Units:
    """Return the units each once and in order."""
    return tuple(sorted(units.items()))


def _add_modalities(units: dict[str, int], details: JsonObject, side: str) -> None:
    cached = details.get("cached_tokens_details")
    for modality in _MODALITIES:
        if (told := details.get(modality)) and (tokens := count_of(told)):
            units[f"{side}_{modality}"] = tokens
            if side == "input" and isinstance(cached, dict):
                units[f"cache_{modality.removesuffix('_tokens')}_read_tokens"] = count_of(cached.get(modality)) or 0


def _size(value: JsonObject) -> int:
    try:
        return len(msgspec.json.encode(value))
    except (OverflowError, UnicodeEncodeError):
        return len(told_json(value))


def _object(given: JsonObject, words: Words, depth: int, room: list[int]) -> JsonObject:
    room[0] -= len(given)
    if room[0] < 0 or not words.plain.issuperset(given):
        given = _named(given, words, len(given) + min(room[0], 0))
    kept = given.copy()
    for name, value in given.items():
        if value is None or (isinstance(value, (int, float)) and -_HUGE < value < _HUGE):
            continue
        found = _value(value, words, depth, room)
        if found is msgspec.UNSET:
            del kept[name]
        else:
            kept[name] = found
    return kept


def _named(given: JsonObject, words: Words, most: int) -> JsonObject:
    """Return the first so many values whose names are words."""
    firsts = islice(given.items(), max(0, most))
    return {word: value for name, value in firsts if (word := words(name)) is not None}


def _value(value: JsonValue, words: Words, depth: int, room: list[int]) -> JsonValue | msgspec.UnsetType:
    if value is None:
        return value
    if isinstance(value, (int, float)):  # a number that no store takes is none of a bill's either
        return value if -_HUGE < value < _HUGE else msgspec.UNSET
    if isinstance(value, str):
        word = words(value)
        return msgspec.UNSET if word is None else word
    if depth <= 1:
        return msgspec.UNSET
    if isinstance(value, dict):
        return _object(value, words, depth - 1, room)
    kept: list[JsonValue] = []
    for item in value[: max(room[0], 0)]:
        room[0] -= 1
        if (found := _value(item, words, depth - 1, room)) is not msgspec.UNSET:
            kept.append(found)
    return kept
