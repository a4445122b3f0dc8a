"""Adapting schemas, tried with models that nobody wrote by hand, and with the SDKs' own transforms as referees."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import anthropic
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field, create_model

from agentkit.schema import DIALECTS, adapt_schema, output_type

OPENAI, ANTHROPIC = DIALECTS["openai"], DIALECTS["anthropic"]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    other: Cat | None = Field(None, description="a second one")


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Limited(BaseModel):
    code: Annotated[str, Field(pattern="^[a-z]+$", max_length=8)]
    at: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    where: Annotated[str, Field(json_schema_extra={"format": "color"})] = "here"


class Empty(BaseModel):
    pass


class Mapped(BaseModel):
    meta: dict[str, str]


def parts(node):
    """Yield every object inside a schema, whatever it means."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from parts(child)
    elif isinstance(node, list):
        for child in node:
            yield from parts(child)


NAMES = st.sampled_from(["a", "b", "type", "properties", "required", "default", "items", "null", "enum"])
LEAVES = st.sampled_from(
    [
        (int, st.integers(-9, 9)),
        (str, st.sampled_from(["", "x", "null"])),
        (bool, st.booleans()),
        (float, st.sampled_from([0.5, -2.0])),
        (Literal["x", "y"], st.sampled_from(["x", "y"])),
        (Literal[1, "one"], st.sampled_from([1, "one"])),
        (int | None, st.none() | st.integers(0, 3)),
        (Annotated[str, Field(max_length=3)], st.sampled_from(["ab", ""])),
        (tuple[int, str], st.just((1, "b"))),
        (Cat | Dog, st.sampled_from([Cat(kind="cat"), Dog(kind="dog"), Cat(kind="cat", lives=2)])),
        (Node, st.sampled_from([Node(name="n"), Node(name="n", children=[Node(name="m")])])),
    ]
)


@st.composite
def models(draw, depth=2):
    """Draw a model class with a strategy for its instances."""
    fields, values = {}, {}
    for index, name in enumerate(draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))):
        kind, strategy = draw(LEAVES) if depth == 0 or draw(st.booleans()) else draw(models(depth - 1))
        if draw(st.booleans()):
            kind, strategy = list[kind], st.lists(strategy, max_size=2)
        options = {"alias": name}
        if draw(st.booleans()):
            options["default"] = None if kind == int | None else draw(strategy)
            strategy = st.just(...) | strategy
        fields[f"f{index}"] = (kind, Field(**options))
        values[name] = strategy
    model = create_model(f"M{depth}", **fields)
    given_values = st.fixed_dictionaries(values).map(
        lambda found: model(**{name: value for name, value in found.items() if value is not ...})
    )
    return model, given_values


def filled(schema, node, data):
    """Return the data as a server writes it that demands every property: null for each that is left out."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if isinstance(data, list) and "items" in node:
        return [filled(schema, node["items"], item) for item in data]
    if isinstance(data, dict) and "properties" in node:
        return {name: filled(schema, child, data.get(name)) for name, child in node["properties"].items()}
    for branch in node.get("anyOf", ()):
        try:
            written = filled(schema, branch, data)
        except AttributeError:
            continue
        whole = {**branch, "$defs": schema.get("$defs", {})}
        if jsonschema_rs.is_valid(whole, written):
            return written
    return data


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_instance_survives_the_strict_form(data):
    """What a strict server would write for an instance fits the strict schema and is read as that instance again.

    Where null is a value of the field, null is what is meant: such a field's default is None here.
    """
    model, values = data.draw(models())
    value, shape = data.draw(values), output_type(model)
    adapted = adapt_schema(shape.spec.schema, OPENAI)
    assert not adapted.obstacles
    plain = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    written = filled(adapted.schema, adapted.schema, plain)
    jsonschema_rs.Draft202012Validator(adapted.schema).validate(written)
    assert shape.parse(json.dumps(written)) == value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_fits_the_type_fits_every_adapted_schema(data):
    """No dialect narrows what a model may answer, but for keys that are left out."""
    model, values = data.draw(models())
    value, shape = data.draw(values), output_type(model)
    whole = value.model_dump(mode="json", by_alias=True)
    for dialect in DIALECTS.values():
        adapted = adapt_schema(shape.spec.schema, dialect)
        jsonschema_rs.Draft202012Validator(adapted.schema).validate(whole)


def shapes(schema):
    """Return the closed objects of a schema: their properties, which are required, and whether further keys fit."""
    return sorted(
        (sorted(node["properties"]), sorted(node.get("required", [])), node.get("additionalProperties"))
        for node in parts(schema)
        if isinstance(node.get("properties"), dict) and "type" in node
    )


@pytest.mark.parametrize("model", [Node, Owner, Limited, Empty])
def test_openais_transform_closes_and_requires_the_same(model):
    """The official transform agrees on objects and keys.

    On purpose ours differs in this: optional fields may be null, defaults go into words, a reference with words beside
    it becomes an alternative instead of a copy, `oneOf` becomes `anyOf`, and unknown constraints go into words.
    """
    ours = adapt_schema(output_type(model).spec.schema, OPENAI).schema
    theirs = to_strict_json_schema(model)
    assert {str(shape) for shape in shapes(ours)} == {str(shape) for shape in shapes(theirs)}


@pytest.mark.parametrize("model", [Owner, Limited, Empty])
def test_anthropics_transform_closes_and_requires_the_same(model):
    """The official transform agrees on objects and keys, and on which formats and constraints stay.

    On purpose ours differs in this: an open map is an obstacle, where theirs is an object without keys, and so is a
    schema that contains itself.
    """
    given = output_type(model).spec.schema
    ours, theirs = adapt_schema(given, ANTHROPIC).schema, anthropic.transform_schema(given)
    assert shapes(ours) == shapes(theirs)
    assert [node["format"] for node in parts(ours) if isinstance(node.get("format"), str)] == [
        node["format"] for node in parts(theirs) if isinstance(node.get("format"), str)
    ]
    assert anthropic.transform_schema(Mapped)["properties"]["meta"]["properties"] == {}
    assert adapt_schema(output_type(Mapped).spec.schema, ANTHROPIC).obstacles
