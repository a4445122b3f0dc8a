"""Schemas and answers that are made to hurt: costly patterns, depth, and size."""

from __future__ import annotations

import sys
import time
import typing

import pydantic
import pytest
import typing_extensions

from agentkit.errors import OutputInvalid, ToolError
from agentkit.schema import ToolSignature, output_type, partial_json

LETTERS = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


class Node(pydantic.BaseModel):
    """A list that is nested in itself."""

    inner: typing.Optional["Node"] = None


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|aa)+$", r"^(?=(a+)+$)a", r"^(a|a)*\1$", r"(x+x+)+y"])
def test_a_costly_pattern_answers_quickly(pattern: str) -> None:
    """A pattern with exponential backtracking takes under half a second of CPU and lets nothing through."""
    shape = output_type({**LETTERS, "properties": {"a": {"type": "string", "pattern": pattern}}})
    started = time.process_time()
    for letter in "ax":
        with pytest.raises(OutputInvalid, match=r"\$\.a"):
            shape.parse(f'{{"a": "{letter * 60}!"}}')
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("depth", [500, 5_000, 200_000])
@pytest.mark.parametrize("unit", ["[", '{"inner":', '{"a":['])
def test_depth_is_told_not_crashed(unit: str, depth: int) -> None:
    """An answer that is nested without end is invalid, for every kind of shape and for a tool's arguments."""

    def eat(a: list[object]) -> None:
        """Eat."""

    for text in (unit * depth, unit * depth + "1" + {"[": "]", "{": "}"}[unit[0]] * depth):
        for shape in (output_type(LETTERS), output_type(Node), output_type(list[int])):
            with pytest.raises(OutputInvalid) as caught:
                shape.parse(text)
            assert len(str(caught.value)) < 20_000
            assert len(caught.value.text) <= 501
        with pytest.raises(ToolError):
            ToolSignature(eat).bind(text)
        partial_json(text)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-12-01T10:00:00Z", "yesterday"),
        ("email", "ada@example.com", "ada@"),
        ("uuid", "00000000-0000-0000-0000-000000000001", "1"),
        ("ipv4", "127.0.0.1", "300.0.0.1"),
        ("uri", "https://example.com/a", "//"),
    ],
)
def test_formats_of_a_raw_schema_are_held(name: str, good: str, bad: str) -> None:
    """A format is checked, not only told to the model."""
    shape = output_type({**LETTERS, "properties": {"a": {"type": "string", "format": name}}})
    assert shape.parse(f'{{"a": "{good}"}}') == {"a": good}
    with pytest.raises(OutputInvalid, match=r"\$\.a.*" + name):
        shape.parse(f'{{"a": "{bad}"}}')


@pytest.mark.parametrize("module", [typing, typing_extensions])
def test_typed_dicts_of_both_modules_nest(module: object) -> None:
    """A TypedDict inside another, inside a list or a union, is told and read the same from either module."""
    inner = module.TypedDict("Inner", {"number": int})
    outer = module.TypedDict(
        "Outer", {"one": inner, "many": list[inner], "maybe": inner | None, "last": module.NotRequired[inner]}
    )
    shape = output_type(outer)
    value = {"one": {"number": 1}, "many": [{"number": 2}], "maybe": None}
    assert shape.parse('{"one":{"number":1},"many":[{"number":2}],"maybe":null}') == value
    assert shape.spec.schema["required"] == ["one", "many", "maybe"]
    with pytest.raises(OutputInvalid, match=r"\$\.many\[0\]\.number"):
        shape.parse('{"one":{"number":1},"many":[{"number":"x"}],"maybe":null}')


def test_a_long_answer_is_quoted_by_its_head() -> None:
    """The error of a megabyte holds a bounded head of it (B37)."""
    with pytest.raises(OutputInvalid) as caught:
        output_type(LETTERS).parse('{"a": ' + "x" * 1_000_000)
    assert sys.getsizeof(str(caught.value)) + sys.getsizeof(caught.value.text) < 10_000
