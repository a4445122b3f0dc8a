"""What each kind of server enforces of JSON Schema, as data, and how much of it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct

from agentkit.core.contracts import JsonObject
from agentkit.schema.json_schema import children, target

__all__ = ["DIALECTS", "Dialect", "SchemaDialect", "excess"]

SchemaDialect: TypeAlias = Literal["", "openai", "anthropic", "gemini", "xai", "llamacpp"]

_NUMBERS = frozenset({"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_TEXTS = frozenset({"minLength", "maxLength"})
_ITEMS = frozenset({"minItems", "maxItems"})
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


class Dialect(Struct, frozen=True, kw_only=True):
    """One server's subset.

    `keywords` are the constraints it takes beside the types, objects, lists and alternatives that all take; `formats`
    those of strings, None for all. `closed`: every object has to forbid further keys, and every value to have a type;
    `every_key`: every property has to be required. `recursion` says whether a schema may contain itself; `most_items`
    is the largest minItems. `plain_patterns`: a pattern has to match whole texts and knows no shorthands;
    `plain_schemas`: a schema is an object, never true or false. The limits count what one schema holds, 0 is no limit.
    """

    keywords: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    closed: bool = False
    every_key: bool = False
    recursion: bool = True
    most_items: int = 0
    plain_patterns: bool = False
    plain_schemas: bool = False
    depth: int = 0
    properties: int = 0
    optional: int = 0
    unions: int = 0


DIALECTS: Final[dict[str, Dialect]] = {
    "openai": Dialect(
        keywords=_NUMBERS | _ITEMS | {"pattern", "format", "const", "title"},
        formats=_FORMATS,
        closed=True,
        every_key=True,
        depth=10,
        properties=5_000,
    ),
    "anthropic": Dialect(
        keywords=frozenset({"format", "const", "minItems", "title"}),
        formats=_FORMATS | {"uri"},
        closed=True,
        recursion=False,
        most_items=1,
        optional=24,
        unions=16,
    ),
    "gemini": Dialect(
        keywords=_ITEMS | {"minimum", "maximum", "format", "prefixItems", "title"},
        formats=frozenset({"date-time", "date", "time"}),
    ),
    "xai": Dialect(keywords=_NUMBERS | {"pattern", "format", "const", "prefixItems", "oneOf", "title", "default"}),
    "llamacpp": Dialect(
        keywords=_NUMBERS
        | _TEXTS
        | _ITEMS
        | {"pattern", "format", "const", "prefixItems", "oneOf", "allOf", "title", "default"},
        plain_patterns=True,
        plain_schemas=True,
    ),
}


def excess(schema: JsonObject, dialect: Dialect) -> list[str]:
    """Return what is too much for the server in a schema that is closed already, nothing when all is well."""
    count = _Count(schema)
    count.visit(schema, 0, ())
    for child in cast("dict[str, JsonObject]", schema.get("$defs", {})).values():
        count.add(child)
    count.add(schema)
    found = []
    if count.recursive and not dialect.recursion:
        found.append("$: it contains itself")
    for what, number, most in (
        ("levels of objects", count.depth, dialect.depth),
        ("properties", count.properties, dialect.properties),
        ("optional properties", count.optional, dialect.optional),
        ("alternatives of type", count.unions, dialect.unions),
    ):
        if most and number > most:
            found.append(f"$: {number} {what}, and the server takes {most}")
    return found


class _Count:
    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.depth = self.properties = self.optional = self.unions = 0
        self.recursive = False
        self._deepest: dict[str, int] = {}

    def visit(self, node: JsonObject, level: int, inside: tuple[str, ...]) -> None:
        """Follow references as far as they do not lead back, to find the depth and whether any does."""
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in inside:
                self.recursive = True
            elif self._deepest.get(reference, -1) < level:
                self._deepest[reference] = level
                found = target(self.root, reference)
                if isinstance(found, dict):
                    self.visit(found, level, (*inside, reference))
            return
        level += "properties" in node
        self.depth = max(self.depth, level)
        for step, child in children(node):
            if isinstance(child, dict) and not step.startswith(".$defs"):
                self.visit(child, level, inside)

    def add(self, node: JsonObject) -> None:
        """Count what stands in a schema itself, its definitions left out."""
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            self.properties += len(properties)
            self.optional += len(properties) - (len(required) if isinstance(required, list) else 0)
        self.unions += "anyOf" in node or isinstance(node.get("type"), list)
        for step, child in children(node):
            if isinstance(child, dict) and not step.startswith(".$defs"):
                self.add(child)
