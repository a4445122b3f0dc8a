"""JSON Schema as data: walking it, checking it, naming it, and validating against it without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.errors import ConfigurationError

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["check_schema", "children", "schema_name", "target", "validator", "walk", "with_root", "without_titles"]

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_BESIDE_ROOT = {"$ref", "$defs", "definitions", "$schema", "title", "description"}
_DRAFTS = re.compile(r"https?://json-schema\.org/(draft/20(19-09|20-12)|draft-0[467])/schema#?")


def check_schema(schema: object, name: str) -> JsonObject:
    """Return the schema when it is a valid JSON Schema; raises ConfigurationError with what is wrong and where."""
    import jsonschema_rs

    if not isinstance(schema, dict):
        raise ConfigurationError(f"{name}: a JSON Schema is a dict, this is a {type(schema).__name__}.")
    draft = schema.get("$schema")
    if draft is not None and not (isinstance(draft, str) and _DRAFTS.fullmatch(draft)):
        raise ConfigurationError(f"{name}: not a JSON Schema: $schema: {draft!r} is no known draft; leave it out.")
    try:
        jsonschema_rs.meta.validate(schema)
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        reason = getattr(error, "message", str(error))
        where = "/".join(str(part) for part in getattr(error, "instance_path", ())) or "the schema"
        raise ConfigurationError(f"{name}: not a JSON Schema: {where}: {reason}") from None
    return schema


def validator(schema: JsonObject, name: str) -> jsonschema_rs.Draft202012Validator:
    """Return a validator with formats; raises ConfigurationError for a reference that leads outside of the schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, retriever=_refuse)
    except (jsonschema_rs.ReferencingError, jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        reason = getattr(error, "message", None) or str(error).partition("\n")[0]
        raise ConfigurationError(f"{name}: not a JSON Schema: {reason}") from None


def _refuse(uri: str) -> JsonObject:
    raise ValueError(f"the reference {uri!r} leads outside of the schema; put what it means under $defs")


def children(node: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """Yield the schemas directly inside a schema, objects and booleans, each with the step that leads to it."""
    for key in _MAPS:
        inner = node.get(key)
        if isinstance(inner, dict):
            prefix = "" if key == "properties" else f".{key}"
            yield from ((f"{prefix}.{name}", child) for name, child in inner.items())
    for key in _LISTS:
        listed = node.get(key)
        if isinstance(listed, list):
            yield from ((f".{key}[{index}]", child) for index, child in enumerate(listed))
    for key in _SINGLES:
        if key in node:
            yield ("[]" if key == "items" else f".{key}"), node[key]


def walk(node: JsonObject, visit: Callable[[JsonObject], None]) -> None:
    """Call `visit` with the schema and every schema inside it; references are not followed, so it ends."""
    visit(node)
    for _, child in children(node):
        if isinstance(child, dict):
            walk(child, visit)


def target(schema: JsonObject, reference: str) -> JsonValue:
    """Return what a reference like `#/$defs/Name` points at, None when it leads nowhere."""
    node: JsonValue = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def with_root(schema: JsonObject) -> JsonObject:
    """Return the schema with what its root refers to at the root, where providers want to see an object.

    Definitions stay as long as anything refers to them.
    """
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/") or set(schema) - _BESIDE_ROOT:
        return schema
    found = target(schema, reference)
    if not isinstance(found, dict) or "$ref" in found:
        return schema
    root = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    used: list[JsonValue] = []
    walk(root, lambda node: used.append(node["$ref"]) if "$ref" in node else None)
    if not used:
        root = {key: value for key, value in root.items() if key not in ("$defs", "definitions")}
    return root


def without_titles(schema: JsonObject) -> JsonObject:
    """Return a copy without the titles that only repeat names; a property called title stays."""
    copy = deepcopy(schema)

    def drop(node: JsonObject) -> None:
        if isinstance(node.get("title"), str):
            del node["title"]

    walk(copy, drop)
    return copy


def schema_name(text: str) -> str:
    """Return the text as a name that every provider takes: 1 to 64 of A-Z, a-z, 0-9, '_' and '-'."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64] or "answer"
