"""JSON Schema as data: walking it, checking it, closing it, and validating against it without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, cast

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.errors import ConfigurationError

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["check_schema", "schema_name", "strict_schema", "validator", "without_titles"]

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def check_schema(schema: object, name: str) -> JsonObject:
    """Return the schema when it is a valid JSON Schema 2020-12; raises ConfigurationError with what is wrong."""
    import jsonschema_rs

    if not isinstance(schema, dict):
        raise ConfigurationError(f"{name}: a JSON Schema is a dict, this is a {type(schema).__name__}.")
    try:
        jsonschema_rs.meta.validate(schema)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = getattr(error, "message", str(error))
        where = "/".join(str(part) for part in getattr(error, "instance_path", ())) or "the schema"
        raise ConfigurationError(f"{name}: not a JSON Schema: {where}: {reason}") from None
    return schema


def validator(schema: JsonObject, name: str) -> jsonschema_rs.Draft202012Validator:
    """Return a validator with formats; raises ConfigurationError for a reference that leads outside of the schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, retriever=_refuse)
    except (jsonschema_rs.ReferencingError, jsonschema_rs.ValidationError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"{name}: {reason}") from None


def _refuse(uri: str) -> JsonObject:
    raise ValueError(f"the reference {uri!r} leads outside of the schema; put what it means under $defs")


def children(node: JsonObject) -> Iterator[JsonObject]:
    """Yield the schemas directly inside a schema."""
    for key in _MAPS:
        inner = node.get(key)
        if isinstance(inner, dict):
            yield from (child for child in inner.values() if isinstance(child, dict))
    for key in _LISTS:
        listed = node.get(key)
        if isinstance(listed, list):
            yield from (child for child in listed if isinstance(child, dict))
    for key in _SINGLES:
        single = node.get(key)
        if isinstance(single, dict):
            yield single


def walk(node: JsonObject, visit: Callable[[JsonObject], None]) -> None:
    """Call `visit` with the schema and every schema inside it; references are not followed, so it ends."""
    visit(node)
    for child in children(node):
        walk(child, visit)


def without_titles(schema: JsonObject) -> JsonObject:
    """Return a copy without the titles that only repeat names; a property called title stays."""
    copy = deepcopy(schema)

    def drop(node: JsonObject) -> None:
        if isinstance(node.get("title"), str):
            del node["title"]

    walk(copy, drop)
    return copy


def strict_schema(schema: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return a copy with every object closed and every property required, and why it cannot be strict (empty: it is).

    When it cannot, the schema is returned as it was.
    """
    copy = deepcopy(schema)
    problems: list[str] = []

    def close(node: JsonObject) -> None:
        if node.get("type") != "object" and "properties" not in node:
            return
        extra = node.get("additionalProperties")
        if extra not in (None, False):
            problems.append(f"an object allows further properties ({extra!r})")
            return
        properties = cast("dict[str, JsonValue]", node.setdefault("properties", {}))
        node["additionalProperties"] = False
        node["required"] = list(properties)
        for child in properties.values():
            if isinstance(child, dict):
                child.pop("default", None)

    walk(copy, close)
    return (schema, problems) if problems else (copy, [])


def schema_name(text: str) -> str:
    """Return the text as a name that every provider takes: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64] or "answer"
