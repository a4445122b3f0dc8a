"""Closing schemas for strict modes, and knowing when they cannot be closed."""

from __future__ import annotations

import copy
import enum
from typing import Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, Field

from agentkit.schema import output_type, strict_schema


class Kind(enum.Enum):
    A = "a"


class Item(BaseModel):
    n: int
    kind: Kind = Field(default=Kind.A, description="which")
    note: str | None = None


class Plan(BaseModel):
    items: list[Item] = []
    best: Item | None = None
    pair: tuple[Item, Item]


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Empty(BaseModel):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Mapped(BaseModel):
    meta: dict[str, str]


class Anything(BaseModel):
    what: Any


def objects(node, found):
    """Collect every object schema, wherever it lies."""
    if isinstance(node, dict):
        if node.get("type") == "object" or isinstance(node.get("properties"), dict):
            found.append(node)
        for child in node.values():
            objects(child, found)
    elif isinstance(node, list):
        for child in node:
            objects(child, found)
    return found


@pytest.mark.parametrize("model", [Item, Plan, Node, Owner, Empty, list[Plan], Plan | Node])
def test_every_object_is_closed_and_all_keys_required(model):
    """Objects in $defs, items, alternatives and tuples too; the schema given stays as it was."""
    given = output_type(model).spec.schema
    before = copy.deepcopy(given)
    closed, problems = strict_schema(given)
    assert not problems and given == before and "$ref" not in closed
    found = objects(closed, [])
    assert found
    for node in found:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node.get("properties", {}))
        assert all("default" not in child for child in node.get("properties", {}).values())
    jsonschema_rs.meta.validate(closed)
    jsonschema_rs.Draft202012Validator(closed, retriever=lambda uri: 1 / 0)


def test_what_fits_the_closed_schema_is_read():
    """A model held to the closed schema answers what the type takes."""
    closed, _ = strict_schema(output_type(Owner).spec.schema)
    answer = {"pet": {"kind": "cat", "lives": 3}}
    jsonschema_rs.Draft202012Validator(closed).validate(answer)
    assert output_type(Owner).validate(answer) == Owner(pet=Cat(kind="cat", lives=3))
    assert not jsonschema_rs.is_valid(closed, {"pet": {"kind": "cat"}})


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (output_type(Open).spec.schema, "$: an open map"),
        (output_type(Mapped).spec.schema, "$.meta: an open map"),
        (output_type(dict[str, int]).spec.schema, "$: an open map"),
        (output_type(Anything).spec.schema, "$.what: any value"),
        ({"type": "object"}, "$: an open map"),
        ({"type": ["object", "null"]}, "$: an open map"),
        ({"type": "object", "properties": {"a": True}}, "$.a: any value"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "$.a: items of any kind"),
        ({"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}}, "$: patternProperties"),
        ({"type": "object", "properties": {}, "not": {"required": ["a"]}}, "$: not"),
        (
            {"$defs": {"M": {"type": "object"}}, "type": "object", "properties": {"m": {"$ref": "#/$defs/M"}}},
            "$.$defs.M",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_closed_is_returned_as_it_was_with_the_place(schema, place):
    """Open maps and values of any kind are no objects without keys: nothing is lost in silence."""
    returned, problems = strict_schema(schema)
    assert returned is schema
    assert any(problem.startswith(place) for problem in problems), problems


def test_a_described_reference_keeps_its_description():
    """A reference with words beside it, which strict modes refuse, becomes an alternative with the same words."""
    closed, _ = strict_schema(output_type(Item).spec.schema)
    assert closed["properties"]["kind"] == {"anyOf": [{"$ref": "#/$defs/Kind"}], "description": "which"}
