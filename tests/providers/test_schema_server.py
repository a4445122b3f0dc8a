"""Answers in a shape from a real llama.cpp server, over the protocols in which it takes a schema."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from agentkit import Binding, CallRuntime, ModelSettings
from agentkit.providers.local import LocalModel

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    size: Size


class Home(BaseModel):
    code: Annotated[str, Field(pattern=r"^\d{3}-[a-z]{2}$")]
    pet: Cat | Dog = Field(discriminator="kind")
    pair: tuple[int, Literal["x", "y"]]
    sizes: Annotated[list[Size], Field(min_length=1, max_length=3)]
    inner: Inner | None = None


class Inner(BaseModel):
    word: Annotated[str, Field(max_length=12, pattern="[aeiou]|.*")]


RAW = {
    "type": "object",
    "properties": {
        "unit": {"oneOf": [{"const": "km"}, {"const": "mile"}]},
        "far": {"$ref": "#/$defs/Far~1Number"},
        "same": {"$ref": "#/properties/unit"},
    },
    "required": ["unit", "far", "same"],
    "additionalProperties": False,
    "$defs": {"Far/Number": {"type": "integer", "minimum": 1, "maximum": 99}},
}
BRIEF = ModelSettings(temperature=0.0, max_tokens=200, seed=1)


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_shapes_are_held_by_the_grammar(protocol: str) -> None:
    """Nested types, tags, enums, tuples, patterns, ranges, definitions with odd names: the first answer fits."""
    model = LocalModel("smollm2", protocol=protocol)
    try:
        async with CallRuntime() as calls:
            home = await calls.ask(Binding(model), "Describe a home.", output=Home, settings=BRIEF)
            raw = await calls.ask(Binding(model), "How far is it?", output=RAW, settings=BRIEF)
    finally:
        await model.aclose()
    assert isinstance(home.value, Home) and home.calls == 1
    assert raw.value["unit"] in ("km", "mile") and raw.value["same"] in ("km", "mile") and raw.calls == 1
    assert 1 <= raw.value["far"] <= 99
