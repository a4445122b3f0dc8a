"""Whether a JSON Schema can be enforced strictly: closed objects with every property required, all the way down."""

from __future__ import annotations

from agentkit.core.contracts import JsonValue

__all__ = ["is_strict"]

_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")
_SINGLE = ("items", "not", "additionalProperties")


def is_strict(schema: JsonValue) -> bool:
    """Return whether every object in the schema forbids further properties and requires all it has."""
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
    if is_object:
        properties = schema.get("properties")
        names = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required")
        if (
            schema.get("additionalProperties") is not False
            or not isinstance(required, list)
            or names - set(map(str, required))
        ):
            return False
    children: list[JsonValue] = [schema.get(name) for name in _SINGLE]
    for name in _LISTS:
        found = schema.get(name)
        children += found if isinstance(found, list) else []
    for name in _MAPS:
        found = schema.get(name)
        children += found.values() if isinstance(found, dict) else ()
    return all(is_strict(child) for child in children)
