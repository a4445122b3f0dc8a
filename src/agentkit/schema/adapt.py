"""Schemas rewritten into what a server enforces, with a report of what was changed and of what stands in the way."""

from __future__ import annotations

import json
import re
from typing import cast

from msgspec import Struct

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.errors import ConfigurationError
from agentkit.schema.dialect import Dialect, excess
from agentkit.schema.envelope import is_object
from agentkit.schema.json_schema import children, with_root
from agentkit.schema.references import self_contained

__all__ = ["Adapted", "adapt_schema"]

_STRUCTURE = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "$ref", "$defs"}
    | {"enum", "description"}
)
_SILENT = frozenset({"title", "$schema", "$comment", "$id", "discriminator", "examples", "readOnly", "writeOnly"})
_NARROWED_BY_CLOSING = frozenset(
    {"patternProperties", "dependentSchemas", "if", "allOf", "$dynamicRef", "$recursiveRef"}
)
_SAYS_WHAT = frozenset({"type", "enum", "const", "$ref", "anyOf", "properties"})
_LOOKING_OR_BACK = re.compile(r"\(\?(?!:)|\\[1-9bBkpPAzZ]")
_PATTERN_PARTS = re.compile(r"\\.|.", re.DOTALL)
_SHORTHANDS = {r"\d": "0-9", r"\w": "A-Za-z0-9_", r"\s": r" \t\r\n"}
_NULL: JsonObject = {"type": "null"}


class Adapted(Struct, frozen=True):
    """A schema as a server takes it: `changes` say what is other than given, `obstacles` why it cannot be enforced.

    With obstacles the schema is the one given, unchanged.
    """

    schema: JsonObject
    changes: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()


def adapt_schema(schema: JsonObject, dialect: Dialect) -> Adapted:
    """Return the schema within this dialect; the argument is never changed.

    What the dialect does not know is told to the model in descriptions, since answers are validated against the schema
    as it was given. Each change and obstacle begins with its place, such as `$.items[].name`.
    """
    rewrite = _Rewrite(dialect)
    try:
        copy = self_contained(with_root(schema), "the answer or tool")
    except ConfigurationError as error:
        return Adapted(schema, (), (f"$: {error.message}",))
    if dialect.closed and not is_object(copy):
        rewrite.obstacles.append("$: the whole is no object")
    if dialect.plain_schemas:
        _write_out(copy)
    rewrite.fit(copy, "$")
    if not rewrite.obstacles and dialect.closed:
        rewrite.obstacles += excess(copy, dialect)
    if rewrite.obstacles:
        return Adapted(schema, (), tuple(rewrite.obstacles))
    closed = [f"{rewrite.closed} objects take no further keys"] if rewrite.closed else []
    return Adapted(copy, (*closed, *rewrite.changes))


class _Rewrite:
    """Changes a schema in place."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.changes: list[str] = []
        self.obstacles: list[str] = []
        self.closed = 0

    def fit(self, node: JsonObject, path: str) -> None:
        """Bring a schema and everything inside it into the dialect."""
        self._join(node, path)
        self._tell(node, path)
        if "$ref" in node and set(node) - {"$ref", "$defs"}:
            node["anyOf"] = [{"$ref": node.pop("$ref")}]
        if self.dialect.closed:
            self._check_kind(node, path)
        if "prefixItems" in node:
            self._places(node, path)
        for step, child in list(children(node)):
            if isinstance(child, dict):
                self.fit(child, path + step)
            elif self.dialect.closed and step != ".additionalProperties":
                self.obstacles.append(f"{path}{step}: {'any' if child else 'no'} value fits")
        if self.dialect.closed and ("properties" in node or "object" in _kinds(node)):
            self._close(node, path)

    def _join(self, node: JsonObject, path: str) -> None:
        """Write alternatives, combinations and single values the way that the dialect knows."""
        known = self.dialect.keywords
        if "oneOf" in node and "oneOf" not in known and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")
            self.changes.append(f"{path}: oneOf became anyOf")
        parts = node.get("allOf")
        if isinstance(parts, list) and "allOf" not in known:
            merged = _merged([{key: value for key, value in node.items() if key != "allOf"}, *parts])
            if merged is not None:
                node.clear()
                node.update(merged)
                self.changes.append(f"{path}: allOf was merged")
        if "const" in node and "const" not in known:
            node["enum"] = [node.pop("const")]
        if self.dialect.closed and "type" not in node and ("enum" in node or "const" in node):
            values = node["enum"] if "enum" in node else [node["const"]]
            kinds = list(dict.fromkeys(map(_kind, cast("list[JsonValue]", values))))
            node["type"] = kinds[0] if len(kinds) == 1 else cast("JsonValue", kinds)

    def _tell(self, node: JsonObject, path: str) -> None:
        """Move what the dialect does not know into the description."""
        told: list[str] = []
        for key in [key for key in node if key not in _STRUCTURE]:
            value = node[key]
            if self._takes(node, key, value):
                continue
            del node[key]
            if key in _SILENT or (key == "default" and value is None):
                continue
            opens = key in _NARROWED_BY_CLOSING or (key == "unevaluatedProperties" and value is not False)
            if self.dialect.closed and opens:
                self.obstacles.append(f"{path}: {key} has no strict form")
            told.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
        if told:
            words, said = "; ".join(told), node.get("description")
            node["description"] = f"{said} ({words})" if said else words
            self.changes.append(f"{path}: only told in words: {', '.join(text.partition(':')[0] for text in told)}")

    def _takes(self, node: JsonObject, key: str, value: JsonValue) -> bool:
        dialect = self.dialect
        if key == "format":
            return key in dialect.keywords and (dialect.formats is None or value in dialect.formats)
        if key == "pattern" and key in dialect.keywords and isinstance(value, str):
            simple = _simple_pattern(value) if dialect.plain_patterns else value
            if simple is None or _LOOKING_OR_BACK.search(simple):
                return False
            node[key] = simple
        if key == "minItems" and dialect.most_items and isinstance(value, int) and value > dialect.most_items:
            return False
        return key in dialect.keywords

    def _check_kind(self, node: JsonObject, path: str) -> None:
        if not _SAYS_WHAT & node.keys():
            self.obstacles.append(f"{path}: any value fits")
        if "array" in _kinds(node) and "items" not in node and "prefixItems" not in node:
            self.obstacles.append(f"{path}: items of any kind fit")
        if "anyOf" in node and {"properties", "items"} & node.keys():
            self.obstacles.append(f"{path}: an object or list with alternatives beside it")

    def _places(self, node: JsonObject, path: str) -> None:
        """Bring a list with a type for each place into the dialect: a list of any of its types, where it knows none."""
        kinds = cast("list[JsonValue]", node["prefixItems"])
        rest = node.get("items")
        if isinstance(rest, bool):
            del node["items"]
        if not isinstance(rest, dict) and "maxItems" in self.dialect.keywords:
            node.setdefault("maxItems", len(kinds))
        if "prefixItems" in self.dialect.keywords:
            return
        del node["prefixItems"]
        every = [*kinds, *([rest] if isinstance(rest, dict) else [])]
        distinct = [kind for index, kind in enumerate(every) if kind not in every[:index]]
        node["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        self.changes.append(f"{path}: the places of the list share one type")

    def _close(self, node: JsonObject, path: str) -> None:
        extra = node.get("additionalProperties")
        if extra not in (None, False) or (extra is None and "properties" not in node):
            self.obstacles.append(f"{path}: an open map, further keys are allowed")
            return
        properties = cast("dict[str, JsonValue]", node.setdefault("properties", {}))
        self.closed += "additionalProperties" not in node
        node["additionalProperties"] = False
        if not self.dialect.every_key:
            return
        required = cast("list[JsonValue]", node.get("required", []))
        for name, child in properties.items():
            if name not in required and isinstance(child, dict):
                properties[name] = _nullable(child)
                self.changes.append(f"{path}.{name}: required, null stands for leaving it out")
        node["required"] = list(properties)


def _kinds(node: JsonObject) -> list[JsonValue]:
    kind = node.get("type")
    return kind if isinstance(kind, list) else [kind]


def _kind(value: JsonValue) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _nullable(node: JsonObject) -> JsonObject:
    """Return the schema with null beside what it allows."""
    if "null" in _kinds(node) and None in cast("list[JsonValue]", node.get("enum", [None])):
        return node
    branches = node.get("anyOf")
    if isinstance(branches, list) and "type" not in node:
        return node if _NULL in branches else {**node, "anyOf": [*branches, _NULL]}
    if isinstance(node.get("type"), str) and not {"enum", "const", "properties", "items"} & node.keys():
        return {**node, "type": [node["type"], "null"]}
    said = {key: node[key] for key in ("description",) if key in node}
    return {"anyOf": [{key: value for key, value in node.items() if key not in said}, _NULL], **said}


def _simple_pattern(pattern: str) -> str | None:
    """Return a pattern of whole texts with its shorthands written out, None where that cannot be done."""
    if pattern[:1] != "^" or pattern[-1:] != "$":
        return None
    inside, written = False, []
    for part in _PATTERN_PARTS.findall(pattern):
        inside = part == "[" or (inside and part != "]")
        plain = _SHORTHANDS.get(part, part)
        if plain == part and part[:1] == "\\" and part[1:].isalnum():
            return None
        written.append(plain if inside or plain == part else f"[{plain}]")
    return "".join(written)


def _merged(parts: list[JsonValue]) -> JsonObject | None:
    """Return one schema for all of them, None where two say something about the same thing."""
    merged: JsonObject = {}
    for part in parts:
        if not isinstance(part, dict) or "$ref" in part:
            return None
        for key, value in part.items():
            mine = merged.get(key)
            if key not in merged or mine == value:
                merged[key] = value
            elif (
                key == "properties"
                and isinstance(mine, dict)
                and isinstance(value, dict)
                and not mine.keys() & value.keys()
            ):
                merged[key] = {**mine, **value}
            elif key == "required" and isinstance(mine, list) and isinstance(value, list):
                merged[key] = [*mine, *(name for name in value if name not in mine)]
            elif key not in ("description", "title"):
                return None
    return merged


def _write_out(node: JsonObject) -> None:
    """Write schemas that are true or false as objects, everywhere inside this one."""
    for key in ("properties", "$defs", "items", "anyOf", "oneOf", "allOf", "prefixItems"):
        inner = node.get(key)
        if isinstance(inner, bool) and "prefixItems" not in node:
            node[key] = _written_out(inner)
        elif isinstance(inner, dict) and key == "items":
            _write_out(inner)
        elif isinstance(inner, dict):
            node[key] = {name: _written_out(child) for name, child in inner.items()}
        elif isinstance(inner, list):
            node[key] = [_written_out(child) for child in inner]


def _written_out(schema: JsonValue) -> JsonValue:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if isinstance(schema, dict):
        _write_out(schema)
    return schema
