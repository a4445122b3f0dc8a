"""Shapes of answers: what a model is told, what is read back, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
import json
import socket
import threading
import typing
from decimal import Decimal
from typing import Annotated, Literal, Optional, Union

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from agentkit.errors import ConfigurationError, OutputInvalid
from agentkit.schema import output_type


class Item(BaseModel):
    n: int
    label: str = ""


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Aliased(BaseModel):
    first: int = Field(alias="firstName")
    inner: list[Aliased] = Field(default=[], alias="innerOnes")


class TwoNames(BaseModel):
    second: int = Field(validation_alias="in", serialization_alias="out")
    pairs: tuple[Aliased, int] | None = None


class Choices(BaseModel):
    a: int = Field(validation_alias=pydantic.AliasChoices("x", "y"))


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field
    @property
    def double(self) -> int:
        return self.a * 2


@dataclasses.dataclass
class Point:
    x: int
    y: Decimal = Decimal("0.5")
    made: int = dataclasses.field(init=False, default=3)


@attrs.define
class Car:
    wheels: int
    names: list[str] = attrs.field(factory=list)


class Packed(msgspec.Struct):
    a: int
    b: str = msgspec.field(name="bee", default="q")


class Partial(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: str


class Tree(typing.TypedDict):
    name: str
    kids: typing.NotRequired[list[Tree]]


class Color(enum.Enum):
    RED = "red"
    TWO = 2


VALUES = [
    (Item, Item(n=1)),
    (Node, Node(name="a", children=[Node(name="b")])),
    (Aliased, Aliased(firstName=1, innerOnes=[Aliased(firstName=2)])),
    (TwoNames, TwoNames.model_validate({"in": 1, "pairs": [{"firstName": 3}, 4]})),
    (Choices, Choices(x=4)),
    (Computed, Computed(a=2)),
    (Point, Point(1, Decimal("2.25"))),
    (Car, Car(4, ["b"])),
    (Packed, Packed(1, "z")),
    (Partial, {"a": 1}),
    (Tree, {"name": "a", "kids": [{"name": "b"}]}),
    (Color, Color.TWO),
    (int, 7),
    (list[Item], [Item(n=1), Item(n=2)]),
    (Union[Item, Node], Node(name="x")),
    (Literal["a", 3], 3),
    (Optional[int], None),
    (dict[str, int], {"a": 1}),
    (dict[str, int], {"value": 1}),
    (tuple[int, str], (1, "a")),
    (Annotated[int, Field(gt=0)], 3),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
    ({}, {"value": 3}),
]


@pytest.mark.parametrize(("spec", "value"), VALUES, ids=lambda given: str(given).partition(" at 0x")[0][:40])
def test_what_was_dumped_is_read_back(spec, value):
    """The dump fits the advertised schema and parses to the same value, for every kind of type."""
    shape = output_type(spec)
    dumped = shape.dump(value)
    jsonschema_rs.Draft202012Validator(shape.spec.schema, retriever=lambda uri: 1 / 0).validate(dumped)
    assert shape.parse(json.dumps(dumped)) == value
    assert shape.validate(dumped) == value


@pytest.mark.parametrize("spec", [spec for spec, _ in VALUES], ids=lambda given: str(given).partition(" at 0x")[0][:40])
def test_a_model_is_asked_for_an_object(spec):
    """The root is an object without a reference, and no reference dangles, also when the type is recursive."""
    schema = output_type(spec).spec.schema
    assert schema["type"] == "object" and "$ref" not in schema
    assert ("$ref" in json.dumps(schema)) == ("$defs" in schema)


def test_names_that_differ_each_way():
    """One alias is advertised; two that differ, or a choice of them, give way to the name of the field."""
    assert set(output_type(Aliased).spec.schema["properties"]) == {"firstName", "innerOnes"}
    assert set(output_type(TwoNames).spec.schema["properties"]) == {"second", "pairs"}
    assert set(output_type(Choices).spec.schema["properties"]) == {"a"}
    assert output_type(Aliased).parse('{"first": 1}') == Aliased(firstName=1)


def test_required_keys_of_a_typed_dict():
    """`Required` counts although annotations are strings, on every Python."""
    assert output_type(Partial).spec.schema["required"] == ["a"]
    assert output_type(Tree).spec.schema["required"] == ["name"]


def test_the_root_of_a_wrapped_schema_moves():
    """`#` in a schema that is wrapped into {"value": ...} leads to the value, not to the wrapper."""
    shape = output_type({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}})
    told = jsonschema_rs.Draft202012Validator(shape.spec.schema)
    assert told.is_valid({"value": [1, [2]]}) and not told.is_valid({"value": [{"value": []}]})
    assert shape.parse('{"value": [1, [2]]}') == [1, [2]]


FENCED = [
    '```json\n{"n": 1}\n```',
    '```\n{"n": 1}```',
    '  ```JSON\r\n{"n": 1}\r\n```\n ',
    '```json {"n": 1}```',
    '```{"n": 1}```',
    '\n{"n": 1}\n',
]


@pytest.mark.parametrize("text", FENCED)
def test_one_fence_around_everything_is_taken_off(text):
    """A right answer inside one code fence is no reason for another call."""
    assert output_type(Item).parse(text) == Item(n=1)


def test_values_inside_a_fence_are_not_taken_for_its_language():
    """`true` and digits are values, with and without a line of their own."""
    assert output_type(bool).parse("```true```") is True
    assert output_type(int).parse("```5 ```") == 5
    assert output_type(bool).parse("```json\ntrue\n```") is True


@pytest.mark.parametrize(
    "text",
    [
        'Here: ```json\n{"n": 1}\n```',
        '```json\n{"n": 1}\n```\n```json\n{"n": 2}\n```',
        '{"n": 1} and more',
        '{"n": NaN}',
        '{"n": 1',
        "",
        "```",
        "``````",
        "[" * 100_000,
        "```" + " " * 200_000,
    ],
    ids=lambda text: text[:20],
)
def test_anything_else_is_told_with_a_bounded_head(text):
    """What is no JSON is OutputInvalid at once, however long, deep or oddly fenced it is."""
    with pytest.raises(OutputInvalid) as raised:
        output_type(Item).parse(text)
    assert raised.value.problems[0].startswith("$: not JSON: ")
    assert len(raised.value.text) <= 501 and raised.value.text[:500] == text[:500]


def test_problems_have_paths():
    """Each problem says where and why, for types and for raw schemas."""
    with pytest.raises(OutputInvalid) as raised:
        output_type(list[Item]).parse('{"value": [{"n": 1}, {"n": "x"}, {}]}')
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["$.value[1].n", "$.value[2].n"]
    raw = output_type({"type": "object", "properties": {"day": {"type": "string", "format": "date"}}})
    with pytest.raises(OutputInvalid) as raised:
        raw.parse('{"day": "soon"}')
    assert raised.value.problems == ('$.day: "soon" is not a "date"',)
    with pytest.raises(OutputInvalid, match=r'\$: expected \{"value"'):
        output_type(list[int]).parse('{"items": [1]}')


def test_problems_are_bounded():
    """A huge wrong answer makes neither a huge nor an endless error."""
    shape = output_type({"type": "array", "items": {"type": "integer"}})
    with pytest.raises(OutputInvalid) as raised:
        shape.parse(json.dumps({"value": ["x" * 10_000] * 1000}))
    assert len(raised.value.problems) == 20 and len(str(raised.value)) < 10_000


def test_a_bare_value_is_taken_without_its_wrapper():
    """A model that answers the list itself is understood."""
    assert output_type(list[int]).parse("[1, 2]") == [1, 2]


def test_halves_of_pairs_and_nuls_become_replacements():
    """Escaped or raw, neither reaches a value; pairs and written backslashes stay."""
    text = '{"n": 1, "label": "\\ud83c|\\u0000|\\ud83c\\udf1e|\\\\u0000|\udce9"}'
    assert output_type(Item).parse(text).label == "\ufffd|\ufffd|\U0001f31e|\\u0000|\ufffd"


def test_recursive_raw_schema():
    """Definitions that refer to themselves keep working, and deep wrong places are found."""
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        "required": ["name"],
    }
    shape = output_type({"$ref": "#/$defs/n", "$defs": {"n": node}})
    assert shape.parse('{"name": "a", "kids": [{"name": "b"}]}')["kids"] == [{"name": "b"}]
    with pytest.raises(OutputInvalid) as raised:
        shape.parse('{"name": "a", "kids": [{"name": "b", "kids": [{}]}]}')
    assert raised.value.problems[0].startswith("$.kids[0].kids[0]: ")


def test_a_schema_given_is_not_shared():
    """Changing the dict afterwards changes nothing."""
    given = {"type": "object", "properties": {"a": {"type": "integer"}}}
    shape = output_type(given)
    given["properties"]["a"]["type"] = "string"
    assert shape.spec.schema["properties"]["a"] == {"type": "integer"} and shape.parse('{"a": 1}') == {"a": 1}


class Opaque:
    pass


NO_SHAPES = [
    ({"type": "objekt"}, "type: .objekt. is not valid"),
    ({"type": "object", "properties": {"a": 3}}, "properties/a: 3 is not"),
    ({"$ref": "#/$defs/nope"}, "nope"),
    ({"pattern": "("}, "regex"),
    ({"enum": [object()]}, "not a JSON Schema"),
    ("City", "pass a type"),
    (3, "pass a type"),
    ([int], "pass a type"),
    (Point(1), "pass a type"),
    (Item(n=1), "pass a type"),
    (Car(1), "pass a type"),
    (print, "pass a type"),
    (lambda x: x, "pass a type"),
    (Opaque, "has no JSON Schema"),
    (typing.Callable[[int], int], "has no JSON Schema"),
]


@pytest.mark.parametrize(("spec", "reason"), NO_SHAPES, ids=lambda given: str(given).partition(" at 0x")[0][:40])
def test_what_is_no_shape_is_refused_with_the_reason(spec, reason):
    """ConfigurationError names what is wrong before anything is sent."""
    with pytest.raises(ConfigurationError, match=reason):
        output_type(spec)


@pytest.mark.parametrize("place", ["$ref", "$schema"])
def test_nothing_is_fetched(place):
    """A schema that refers to a server is refused, and the server is not asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        asked = []

        def listen() -> None:
            try:
                asked.append(server.accept())
            except TimeoutError:
                return

        thread = threading.Thread(target=listen)
        thread.start()
        with pytest.raises(ConfigurationError, match="http://127"):
            output_type({place: f"http://127.0.0.1:{server.getsockname()[1]}/schema"})
        thread.join()
        for connection, _ in asked:
            connection.close()
        assert not asked


def test_shapes_are_kept_per_type():
    """A type's shape is built once, also for what is equal and not the same; what cannot be hashed still works."""
    assert output_type(Item) is output_type(Item)
    assert output_type(list[Item]) is output_type(list[Item])
    assert output_type(Annotated[int, Field(json_schema_extra={"x": [1]})]).parse('{"value": 1}') == 1


def test_validate_takes_values_of_the_type():
    """A value that is already one passes; plain nonsense is OutputInvalid, not a crash."""
    assert output_type(Point).validate(Point(1)) == Point(1)
    assert output_type(Item).validate(Item(n=1)) == Item(n=1)
    with pytest.raises(OutputInvalid):
        output_type(Item).validate({"n": object()})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_any_plain_data_survives_an_open_schema(value):
    """An open schema wraps and unwraps every JSON value without loss, but for NULs."""
    text = json.dumps(output_type({}).dump(value))
    assert output_type({}).parse(text) == json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))
