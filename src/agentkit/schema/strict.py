"""Schemas that leave a model no choice of keys, as strict modes of providers demand."""

from __future__ import annotations

from copy import deepcopy
from typing import cast

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.schema.json_schema import children, with_root

__all__ = ["strict_schema"]

_UNSUPPORTED = ("patternProperties", "dependentSchemas", "propertyNames", "not", "if", "then", "else", "contains")
_SAYS_WHAT = ("type", "enum", "const", "$ref", "anyOf", "properties")


def strict_schema(schema: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return a copy with every object closed and every property required, and why it cannot be strict (empty: it is).

    Definitions, alternatives and items are visited; `oneOf` becomes `anyOf`. When it cannot be strict (an open map,
    a value of any kind), the schema is returned as it was. The argument is never changed.
    """
    copy = with_root(deepcopy(schema))
    problems: list[str] = []
    _close(copy, "$", problems)
    return (schema, problems) if problems else (copy, [])


def _close(node: JsonObject, path: str, problems: list[str]) -> None:
    _plain_combination(node, path, problems)
    problems += [f"{path}: {key} has no strict form" for key in _UNSUPPORTED if key in node]
    if not any(key in node for key in _SAYS_WHAT):
        problems.append(f"{path}: any value fits")
    kind = node.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "object" in kinds or "properties" in node:
        _close_object(node, path, problems)
    if "array" in kinds and "items" not in node and "prefixItems" not in node:
        problems.append(f"{path}: items of any kind fit")
    for step, child in children(node):
        if isinstance(child, dict):
            _close(child, path + step, problems)
        elif child is True and step != ".additionalProperties":
            problems.append(f"{path}{step}: any value fits")


def _close_object(node: JsonObject, path: str, problems: list[str]) -> None:
    extra = node.get("additionalProperties", node.get("unevaluatedProperties"))
    if extra not in (None, False) or (extra is None and "properties" not in node):
        problems.append(f"{path}: an open map, further keys are allowed")
        return
    properties = cast("dict[str, JsonValue]", node.setdefault("properties", {}))
    node["additionalProperties"] = False
    node["required"] = list(properties)
    for child in properties.values():
        if isinstance(child, dict):
            child.pop("default", None)


def _plain_combination(node: JsonObject, path: str, problems: list[str]) -> None:
    """Write the ways to combine schemas as the one that strict modes know, `anyOf`."""
    if "oneOf" in node and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
        node.pop("discriminator", None)
    whole = node.get("allOf")
    if isinstance(whole, list) and len(whole) == 1 and isinstance(whole[0], dict) and not set(whole[0]) & set(node):
        del node["allOf"]
        node.update(whole[0])
    if "allOf" in node or "oneOf" in node:
        problems.append(f"{path}: allOf has no strict form")
    if "$ref" in node and len(node) > 1 and not {"$defs", "definitions"} & set(node):
        node["anyOf"] = [{"$ref": node.pop("$ref")}]
