"""What lies around an answer's value: a code fence, an object around what is none, and the list of its problems."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from agentkit.core.contracts import JsonObject
from agentkit.core.contracts.text import clean_text
from agentkit.errors import OutputInvalid
from agentkit.schema.json_schema import target, walk

__all__ = ["WRAPPED", "invalid", "is_object", "path_of", "unfenced", "wrap"]

WRAPPED = "value"
_FENCE = "```"
_HEAD = 500
_MOST_PROBLEMS = 20
_PROBLEM_CHARS = 300


def is_object(schema: JsonObject) -> bool:
    """Return whether only objects fit, so that the schema can be asked for as it is."""
    reference = schema.get("$ref")
    node = target(schema, reference) if isinstance(reference, str) and reference.startswith("#/") else schema
    return isinstance(node, dict) and (node.get("type") == "object" or "properties" in node)


def wrap(schema: JsonObject) -> JsonObject:
    """Return the schema of {"value": ...}; references to the old root and its parts lead to the new place."""
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "definitions", "$schema")}
    outer: JsonObject = {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
    }
    outer.update({key: schema[key] for key in ("$defs", "definitions") if key in schema})
    outer = deepcopy(outer)
    walk(outer, _lead)
    return outer


def _lead(node: JsonObject) -> None:
    reference = node.get("$ref")
    if not isinstance(reference, str) or reference.startswith(("#/$defs/", "#/definitions/")):
        return
    if reference == "#" or reference.startswith("#/"):
        node["$ref"] = f"#/properties/{WRAPPED}{reference[1:]}"


def unfenced(text: str) -> str:
    """Return the text without the one code fence that encloses all of it, and without the space around it."""
    text = text.strip()
    if len(text) < 2 * len(_FENCE) or not text.startswith(_FENCE) or not text.endswith(_FENCE):
        return text
    body = text[len(_FENCE) : -len(_FENCE)]
    language, _, rest = body.partition("\n") if "\n" in body else body.partition(" ")
    is_language = language.strip().replace("-", "").replace("_", "").isalnum() and not language.strip().isdigit()
    return (rest if not language.strip() or (is_language and rest.strip()) else body).strip()


def path_of(parts: Sequence[str | int]) -> str:
    """Return a place in a value, such as `$.items[2].name`."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def invalid(value: object, problems: Sequence[str]) -> OutputInvalid:
    """Return the error for an answer with these problems, at most 20 and 300 characters each."""
    shown = [_head(clean_text(problem), _PROBLEM_CHARS) for problem in problems[:_MOST_PROBLEMS]]
    text = clean_text(_head(value if isinstance(value, str) else repr(value), _HEAD))
    return OutputInvalid(f"The answer does not fit the declared output: {'; '.join(shown)}.", problems=shown, text=text)


def _head(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"
