"""Nulls that stand for what was left out, as servers write them that demand every property."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.schema.json_schema import target

__all__ = ["without_absent"]

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def without_absent(schema: JsonObject, data: JsonValue) -> JsonValue:
    """Return a copy of the data without each null whose property may be missing and may not be null.

    Where the data could be of several types, a null goes only when none of those that fit so far allows it. Data that
    is nested too deeply is returned as it is.
    """
    try:
        return _Pruner(schema).pruned([schema], data)
    except RecursionError:
        return data


class _Pruner:
    def __init__(self, root: JsonObject) -> None:
        self.root = root

    def pruned(self, schemas: Sequence[JsonValue], data: JsonValue) -> JsonValue:
        if not isinstance(data, (dict, list)):
            return data
        types = [found for schema in schemas for found in self._types(schema, set())]
        if isinstance(data, list):
            return [self.pruned(_items(types, index), item) for index, item in enumerate(data)]
        types = [found for found in types if self._fits(found, data)]
        kept: JsonObject = {}
        for key, value in data.items():
            if value is None and self._is_absent(types, key):
                continue
            kept[key] = self.pruned([inner for found in types if (inner := _property(found, key)) is not None], value)
        return kept

    def _types(self, schema: JsonValue, seen: set[str]) -> Iterator[JsonObject]:
        """Yield the schema without alternatives, or those inside it; references are followed once."""
        if not isinstance(schema, dict):
            return
        yield schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            yield from self._types(target(self.root, reference), {*seen, reference})
        for key in _ALTERNATIVES:
            branches = schema.get(key)
            for branch in branches if isinstance(branches, list) else ():
                yield from self._types(branch, seen)

    def _fits(self, schema: JsonObject, data: JsonObject) -> bool:
        """Return whether an object may be of this type, by its tags and the properties it has to have."""
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return True
        required = schema.get("required")
        if isinstance(required, list) and not data.keys() >= set(map(str, required)):
            return False
        return all(_tag_fits(properties[name], value) for name, value in data.items() if name in properties)

    def _is_absent(self, types: Sequence[JsonObject], key: str) -> bool:
        known = [found for found in types if _is_declared(found, key)]
        return bool(known) and not any(
            _is_required(found, key) or self._takes_null(_property(found, key)) for found in known
        )

    def _takes_null(self, schema: JsonValue) -> bool:
        if schema is True:
            return True
        return any(_takes_null_itself(found) for found in self._types(schema, set()))


def _items(types: Sequence[JsonObject], index: int) -> list[JsonValue]:
    found: list[JsonValue] = []
    for schema in types:
        places = schema.get("prefixItems")
        if isinstance(places, list) and index < len(places):
            found.append(places[index])
        elif "items" in schema:
            found.append(schema["items"])
    return found


def _is_declared(schema: JsonObject, key: str) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, dict) and key in properties


def _is_required(schema: JsonObject, key: str) -> bool:
    required = schema.get("required")
    return isinstance(required, list) and key in required


def _property(schema: JsonObject, key: str) -> JsonValue:
    properties = schema.get("properties")
    if isinstance(properties, dict) and key in properties:
        return properties[key]
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else None


def _tag_fits(schema: JsonValue, value: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return True
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return value is None or not isinstance(values, list) or value in values


def _takes_null_itself(schema: JsonObject) -> bool:
    kind = schema.get("type")
    if "const" in schema:
        return schema["const"] is None
    values = schema.get("enum")
    if isinstance(values, list) and None not in values:
        return False
    if kind is None:
        return not {"$ref", "anyOf", "oneOf", "allOf", "properties"} & schema.keys()
    return kind == "null" or (isinstance(kind, list) and "null" in kind)
