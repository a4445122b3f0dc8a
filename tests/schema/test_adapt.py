"""Schemas as servers take them: what is changed, what cannot be, and that answers come back as they were meant."""

from __future__ import annotations

import copy
import enum
import json
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, ConfigDict, Field

from agentkit.errors import OutputInvalid
from agentkit.schema import DIALECTS, adapt_schema, output_type

OPENAI, ANTHROPIC = DIALECTS["openai"], DIALECTS["anthropic"]
REWRITING = list(DIALECTS)


class Kind(enum.Enum):
    A = "a"
    B = "b"


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


class Limited(BaseModel):
    code: Annotated[str, Field(pattern="^[a-z]+$", max_length=8)]
    count: Annotated[int, Field(ge=1, le=9)] = 3
    tags: Annotated[list[str], Field(min_length=2)]
    at: Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Mapped(BaseModel):
    meta: dict[str, str]


class Anything(BaseModel):
    what: Any


CLOSABLE = [Item, Plan, Node, Owner, Empty, Limited, list[Plan], Plan | Node]


def parts(node):
    """Yield every object inside a schema, whatever it means."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from parts(child)
    elif isinstance(node, list):
        for child in node:
            yield from parts(child)


def references_hold(schema):
    """Compile the schema with references that may lead nowhere else."""
    jsonschema_rs.meta.validate(schema)
    jsonschema_rs.Draft202012Validator(schema, retriever=lambda uri: 1 / 0)
    used = {node["$ref"].rpartition("/")[2] for node in parts(schema) if isinstance(node.get("$ref"), str)}
    assert used == set(schema.get("$defs", {}))


@pytest.mark.parametrize("model", CLOSABLE)
def test_b39_every_object_is_closed_and_all_keys_required(model):
    """Objects in definitions, items, alternatives and tuples too; the schema given stays as it was."""
    given = output_type(model).spec.schema
    before = copy.deepcopy(given)
    adapted = adapt_schema(given, OPENAI)
    assert not adapted.obstacles and given == before and "$ref" not in adapted.schema
    objects = [node for node in parts(adapted.schema) if node.get("type") == "object"]
    assert objects
    for node in objects:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    for node in parts(adapted.schema):
        assert not {"default", "prefixItems", "oneOf", "allOf", "maxLength"} & (node.keys() - {"properties"})
        assert "$ref" not in node or len(node) == 1 or "$defs" in node
    references_hold(adapted.schema)


@pytest.mark.parametrize("name", REWRITING)
@pytest.mark.parametrize("model", CLOSABLE)
def test_b41_no_reference_dangles_and_recursion_ends(model, name):
    """Whatever the dialect, the schema is whole in itself or given back as it was."""
    given = output_type(model).spec.schema
    adapted = adapt_schema(given, DIALECTS[name])
    if adapted.obstacles:
        assert adapted.schema is given and name == "anthropic" and model in (Node, Plan | Node)
        assert adapted.obstacles == ("$: it contains itself",)
    else:
        references_hold(adapted.schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (output_type(Open).spec.schema, "$: an open map"),
        (output_type(Mapped).spec.schema, "$.meta: an open map"),
        (output_type(dict[str, int]).spec.schema, "$: an open map"),
        (output_type(Anything).spec.schema, "$.what: any value"),
        ({"type": "object"}, "$: an open map"),
        ({"type": ["object", "null"], "properties": {}, "additionalProperties": True}, "$: an open map"),
        ({"type": "object", "properties": {"a": True}}, "$.a: any value"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "$.a: items of any kind"),
        ({"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}}, "$: patternProperties"),
        ({"type": "object", "properties": {}, "unevaluatedProperties": True}, "$: unevaluatedProperties"),
        ({"type": "array", "items": {"type": "string"}}, "$: the whole is no object"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
            "$.anyOf[0]: any value",
        ),
        (
            {"$defs": {"M": {"type": "object"}}, "type": "object", "properties": {"m": {"$ref": "#/$defs/M"}}},
            "$.$defs.M",
        ),
        ({"type": "object", "properties": {"m": {"$ref": "#/$defs/Gone"}}}, "$: the schema of"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_b40_what_cannot_be_closed_is_returned_as_it_was_with_the_place(schema, place, dialect):
    """Open maps and values of any kind are no objects without keys: nothing is lost in silence."""
    adapted = adapt_schema(schema, dialect)
    assert adapted.schema is schema and not adapted.changes
    assert any(obstacle.startswith(place) for obstacle in adapted.obstacles), adapted.obstacles


def test_limits_of_a_server_stand_in_the_way():
    """Too many levels, properties, optional properties or alternatives are seen before the server refuses them."""
    deep = {"type": "string"}
    for _ in range(11):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(25)}}
    unions = {"type": "object", "properties": {f"p{n}": {"type": ["string", "null"]} for n in range(17)}}
    unions["required"] = list(unions["properties"])
    assert adapt_schema(deep, OPENAI).obstacles == ("$: 11 levels of objects, and the server takes 10",)
    assert adapt_schema(wide, ANTHROPIC).obstacles == ("$: 25 optional properties, and the server takes 24",)
    assert adapt_schema(unions, ANTHROPIC).obstacles == ("$: 17 alternatives of type, and the server takes 16",)
    assert not adapt_schema(wide, OPENAI).obstacles


def test_what_is_not_enforced_is_told_in_words_and_reported():
    """Constraints a server does not know go into the description; those it knows stay; both with their places."""
    given = output_type(Limited).spec.schema
    ours = adapt_schema(given, OPENAI)
    code, count = ours.schema["properties"]["code"], ours.schema["properties"]["count"]
    assert code == {"type": "string", "pattern": "^[a-z]+$", "description": "maxLength: 8"}
    assert count == {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "description": "default: 3"}
    assert ours.schema["properties"]["tags"]["minItems"] == 2
    assert ours.changes == (
        "1 objects take no further keys",
        "$.code: only told in words: maxLength",
        "$.count: only told in words: default",
        "$.count: required, null stands for leaving it out",
    )
    theirs = adapt_schema(given, ANTHROPIC).schema
    assert theirs["required"] == ["code", "tags", "at"]
    assert theirs["properties"]["tags"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": "minItems: 2",
    }
    assert theirs["properties"]["at"]["format"] == "date-time"
    gemini = adapt_schema(given, DIALECTS["gemini"]).schema
    assert gemini["properties"]["count"]["maximum"] == 9 and "pattern" not in gemini["properties"]["code"]
    assert "additionalProperties" not in gemini


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^\d{3}-[\w.]+$", "^[0-9]{3}-[A-Za-z0-9_.]+$"),
        ("^(?:a|b)$", "^(?:a|b)$"),
        ("abc", None),
        (r"^\bword$", None),
        ("^(?=a)b$", None),
        (r"^(a)\1$", None),
        (r"^\.$", r"^\.$"),
    ],
)
def test_patterns_a_grammar_can_hold(pattern, written):
    """llama.cpp enforces whole-text patterns without shorthands; every other pattern is told in words."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    found = adapt_schema(schema, DIALECTS["llamacpp"]).schema["properties"]["a"]
    assert found.get("pattern") == written
    assert ("description" in found) is (written is None)


def test_schemas_that_are_true_become_objects_for_llama_cpp():
    """References to the root, odd names of definitions, and true for a schema are what its grammars do not read."""
    schema = {
        "type": "object",
        "properties": {"a": True, "again": {"$ref": "#"}, "b": {"$ref": "#/$defs/A~1B c"}, "l": {"items": True}},
        "$defs": {"A/B c": {"type": "string"}},
    }
    found = adapt_schema(schema, DIALECTS["llamacpp"]).schema
    assert found["properties"]["a"] == {} and found["properties"]["l"] == {"items": {}}
    assert found["properties"]["again"] == {"$ref": "#/$defs/root"}
    assert set(found["$defs"]) == {"root", "A_1B_c"}
    references_hold(found)


def test_a_described_reference_keeps_its_description():
    """A reference with words beside it, which strict modes refuse, becomes an alternative with the same words."""
    closed = adapt_schema(output_type(Item).spec.schema, ANTHROPIC).schema
    assert closed["properties"]["kind"] == {
        "anyOf": [{"$ref": "#/$defs/Kind"}],
        "description": 'which (default: "a")',
    }


def test_combinations_are_merged_where_they_do_not_collide():
    """Combined plain objects are one object; where two say something about one thing, it has no strict form."""
    one = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    two = {"type": "object", "properties": {"b": {"type": "integer"}}}
    merged = adapt_schema({"allOf": [one, two], "type": "object"}, ANTHROPIC).schema
    assert merged["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert merged["required"] == ["a"] and "allOf" not in merged
    other = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert adapt_schema({"type": "object", "allOf": [one, other]}, OPENAI).obstacles


@pytest.mark.parametrize(
    ("model", "answer", "value"),
    [
        (Item, {"n": 1, "kind": None, "note": None}, Item(n=1)),
        (Plan, {"items": None, "best": None, "pair": [{"n": 1, "kind": None, "note": None}] * 2}, None),
        (Owner, {"pet": {"kind": "cat", "lives": None}}, Owner(pet=Cat(kind="cat"))),
        (Node, {"name": "a", "children": [{"name": "b", "children": None}]}, Node(name="a", children=[Node(name="b")])),
        (list[Item], {"value": [{"n": 1, "kind": None, "note": None}]}, [Item(n=1)]),
    ],
)
def test_null_for_what_was_left_out_is_the_default(model, answer, value):
    """A strict server writes null where a field with a default is left out; the type then has its default."""
    jsonschema_rs.Draft202012Validator(adapt_schema(output_type(model).spec.schema, OPENAI).schema).validate(answer)
    parsed = output_type(model).parse(json.dumps(answer))
    assert parsed == (value or Plan(pair=(Item(n=1), Item(n=1))))


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        (Item, {"n": None, "kind": "a"}),
        (Owner, {"pet": {"kind": None}}),
        (Mapped, {"meta": {"a": None}}),
        (list[Item], [None]),
    ],
)
def test_null_for_what_has_to_be_there_is_a_problem(spec, answer):
    """Nulls of required properties, of maps and of lists are never dropped."""
    with pytest.raises(OutputInvalid, match=r"\$"):
        output_type(spec).parse(json.dumps(answer))


def test_null_goes_out_of_plain_data_only_where_the_schema_forbids_it():
    """A raw schema's answer keeps the nulls it allows and loses those that mean that nothing was said."""
    shape = output_type(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}, "c": {"enum": ["x", None]}},
        }
    )
    assert shape.parse('{"a": null, "b": null, "c": null, "d": null}') == {"b": None, "c": None, "d": None}
