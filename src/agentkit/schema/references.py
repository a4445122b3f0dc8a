"""References inside schemas: brought together under one `$defs`, so that none dangles when a schema moves."""

from __future__ import annotations

from agentkit.core.contracts import JsonObject, JsonValue
from agentkit.errors import ConfigurationError

__all__ = ["Definitions", "self_contained"]

_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "enum", "default", "examples"})
_HOISTED = frozenset({"$defs", "definitions"})


class Definitions:
    """Moves what schemas refer to inside themselves under `defs`, each once and under a plain name of its own."""

    def __init__(self) -> None:
        self.defs: JsonObject = {}
        self._names: dict[tuple[str, str], str] = {}

    def move(self, root: JsonObject, owner: str) -> JsonObject:
        """Return a copy of the schema without its definitions, its references pointing at the common ones.

        Raises ConfigurationError naming the owner for a reference that leads nowhere.
        """
        moved = self._schema(root, root, owner)
        assert isinstance(moved, dict)
        return moved

    def _schema(self, node: JsonValue, root: JsonObject, owner: str) -> JsonValue:
        if isinstance(node, list):
            return [self._schema(item, root, owner) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: self._keyword(key, value, root, owner) for key, value in node.items() if key not in _HOISTED}

    def _keyword(self, key: str, value: JsonValue, root: JsonObject, owner: str) -> JsonValue:
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            return f"#/$defs/{self._name(value, root, owner)}"
        if key in _DATA:
            return value
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            return {name: self._schema(schema, root, owner) for name, schema in value.items()}
        return self._schema(value, root, owner)

    def _name(self, ref: str, root: JsonObject, owner: str) -> str:
        known = self._names.get((owner, ref))
        if known is not None:
            return known
        target = _resolve(ref, root, owner)
        stem = "".join(c if (c.isascii() and c.isalnum()) or c in "_-" else "_" for c in ref.rpartition("/")[2])
        stem = "root" if ref == "#" else stem or "part"
        name, number = stem, 2
        while name in self.defs:
            name, number = f"{stem}_{number}", number + 1
        self._names[owner, ref] = name
        self.defs[name] = True
        self.defs[name] = self._schema(target, root, owner)
        return name


def self_contained(schema: JsonObject, owner: str) -> JsonObject:
    """Return a copy whose references all lead to its own `$defs`, which holds what is referred to and nothing else."""
    definitions = Definitions()
    moved = definitions.move(schema, owner)
    return {**moved, "$defs": definitions.defs} if definitions.defs else moved


def _resolve(ref: str, root: JsonObject, owner: str) -> JsonObject:
    node: JsonValue = root if ref == "#" or ref.startswith("#/") else None
    for token in ref[1:].split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            node = None
            break
    if node is None:
        raise ConfigurationError(f"the schema of {owner} refers to {ref!r}, which it does not define")
    if not isinstance(node, dict):
        raise ConfigurationError(f"the schema of {owner} refers to {ref!r}, which is not a schema")
    return node
