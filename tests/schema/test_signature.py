"""Function parameters as schemas, and arguments of models as values."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import time
import typing
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentkit.core.contracts import Ctx
from agentkit.core.runtime import RunContext
from agentkit.errors import ConfigurationError, ToolError
from agentkit.schema import ToolSignature

if TYPE_CHECKING:
    from somewhere import Unknown


class Unit(enum.Enum):
    C = "c"
    F = "f"


class Place(BaseModel):
    name: str
    near: list[Place] = []


@dataclasses.dataclass
class Span:
    first: date
    days: int = 1


class Options(typing.TypedDict, total=False):
    lang: typing.Required[str]
    page: int


def schema_of(annotation, default=...):
    """Return the schema of one parameter annotated so, after resolving its references."""

    def call(x) -> None: ...

    call.__annotations__["x"] = annotation
    if default is not ...:
        call.__defaults__ = (default,)
    schema = ToolSignature(call).schema
    jsonschema_rs.meta.validate(schema)
    node = schema["properties"]["x"]
    assert ("x" in schema.get("required", [])) == (default is ...)
    reference = node.pop("$ref", "")
    return {**schema["$defs"][reference.rpartition("/")[2]], **node} if reference else node


SCHEMAS = [
    (str, {"type": "string"}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Unit, {"type": "string", "enum": ["c", "f"]}),
    (list[float], {"type": "array", "items": {"type": "number"}}),
    (Annotated[int, Field(description="how many", ge=1)], {"type": "integer", "description": "how many", "minimum": 1}),
    (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    (date, {"type": "string", "format": "date"}),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS, ids=lambda value: str(value).partition(" at 0x")[0])
def test_schema_of_an_annotation(annotation, schema):
    """Each kind of annotation becomes the schema that says it."""
    assert schema_of(annotation) == schema


def test_structured_parameters_are_objects():
    """Models, dataclasses and TypedDicts are told with their own fields, recursive ones with references that hold."""
    assert schema_of(Place)["properties"]["near"]["items"] == {"$ref": "#/$defs/Place"}
    assert schema_of(Span)["required"] == ["first"]
    assert schema_of(Options)["required"] == ["lang"]


@pytest.mark.parametrize(
    ("annotation", "default", "told"), [(int, 3, 3), (Unit, Unit.F, "f"), (Optional[str], None, None)]
)
def test_defaults_are_told_and_left_to_the_function(annotation, default, told):
    """The schema has the default in JSON; binding leaves the parameter out, so the function's own default holds."""
    assert schema_of(annotation, default)["default"] == told


def test_names_like_those_of_models_and_titles():
    """No parameter name collides with a library's own, and a parameter called title stays."""

    def search(model_config: str, schema: str, title: str, _hidden: int, json: int = 1) -> None: ...

    signature = ToolSignature(search)
    names = ["model_config", "schema", "title", "_hidden", "json"]
    assert list(signature.schema["properties"]) == names
    given = {"model_config": "a", "schema": "b", "title": "c", "_hidden": 1}
    assert signature.bind(json.dumps(given)) == given


def forecast(city: str, days: int = 3, unit: Unit = Unit.C, *, ctx: RunContext, note: str | None = None) -> str:
    """Forecast."""
    return f"{city} {days} {unit} {note}"


@pytest.mark.parametrize("text", ["", "  ", "\n", "null", " null ", "{}"])
def test_no_arguments_in_every_spelling(text):
    """Empty text, null and {} are no arguments: enough for one function, what is missing for another."""

    def ping(count: int = 1) -> None: ...

    assert ToolSignature(ping).bind(text) == {}
    with pytest.raises(ToolError, match="city: missing"):
        ToolSignature(forecast).bind(text)


@pytest.mark.parametrize(
    "text", ['{"city": "Par', '{"city"', "{", "{}{}", '{"city": "a"}{"days": 1}', "nul", '{"days": NaN']
)
def test_broken_arguments_are_never_empty_ones(text):
    """Arguments that are cut or no JSON are told as such."""

    def ping(count: int = 1) -> None: ...

    with pytest.raises(ToolError, match="cut or broken") as raised:
        ToolSignature(ping).bind(text)
    assert raised.value.hint == "Call it again with complete arguments."


def test_every_problem_at_once():
    """Unknown, missing and wrong arguments come in one error, with what is accepted; the context is not among it."""
    with pytest.raises(ToolError) as raised:
        ToolSignature(forecast).bind('{"town": "Paris", "days": "many", "unit": "k", "ctx": {}}')
    message = raised.value.message
    for part in ("city: missing", "days: ", "unit: ", "town: unexpected", "ctx: unexpected"):
        assert part in message
    assert raised.value.hint == "It accepts: city, days (optional), unit (optional), note (optional)."
    assert raised.value.tool == "forecast"


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "true"])
def test_arguments_that_are_no_object(text):
    """JSON that is no object does not fit, and is not called broken."""
    with pytest.raises(ToolError, match="do not fit: arguments: Input should be an object"):
        ToolSignature(forecast).bind(text)


def test_rich_values_are_made_and_plain_ones_taken_as_they_are():
    """Dates, enums, decimals and models come from their JSON forms; a text is no number and 1 is no truth."""

    def book(day: date, unit: Unit, price: Decimal, where: Place, span: Span, tags: set[str], sure: bool) -> None: ...

    given = {
        "day": "2026-12-01", "unit": "f", "price": "1.10", "where": {"name": "x", "near": [{"name": "y"}]},
        "span": {"first": "2026-12-02"}, "tags": ["a"], "sure": True,
    }  # fmt: skip
    bound = ToolSignature(book).bind(json.dumps(given))
    assert bound == {
        "day": date(2026, 12, 1), "unit": Unit.F, "price": Decimal("1.10"),
        "where": Place(name="x", near=[Place(name="y")]), "span": Span(date(2026, 12, 2)), "tags": {"a"}, "sure": True,
    }  # fmt: skip

    def pay(amount: float, sure: bool, name: str) -> None: ...

    with pytest.raises(ToolError) as raised:
        ToolSignature(pay).bind('{"amount": "5", "sure": 1, "name": 3}')
    assert all(f"{name}: Input should be" in raised.value.message for name in ("amount", "sure", "name"))
    assert ToolSignature(pay).bind('{"amount": 5, "sure": true, "name": "n"}')["amount"] == 5.0
    with pytest.raises(ToolError, match="amount: Input should be a finite number"):
        ToolSignature(pay).bind('{"amount": NaN, "sure": true, "name": "n"}')


def test_further_names():
    """`**options: int` takes names of any kind, checked against the annotation; the schema says so."""

    def tune(level: int, **options: int) -> None: ...

    signature = ToolSignature(tune)
    assert signature.schema["additionalProperties"] == {"type": "integer"}
    assert signature.bind('{"level": 1, "gain": 2}') == {"level": 1, "gain": 2}
    with pytest.raises(ToolError, match="level: missing; gain: Input should be a valid integer") as raised:
        signature.bind('{"gain": "x"}')
    assert "further names" in raised.value.hint

    def free(**options: object) -> None: ...

    assert ToolSignature(free).bind('{"a": [1]}') == {"a": [1]}


def test_surrogates_and_nuls_are_replaced_in_arguments():
    """Escaped or raw, in values and in keys; pairs and written backslashes stay."""

    def say(text: str, more: dict[str, str] | None = None) -> None: ...

    bind = ToolSignature(say).bind
    assert bind('{"text": "\\ud83c"}') == {"text": "\ufffd"}
    assert bind('{"text": "caf\udce9 é"}') == {"text": "caf\ufffd é"}
    assert bind('{"text": "a\\u0000b \\\\u0000 \\ud83c\\udf1e \\u00e9"}') == {"text": "a\ufffdb \\u0000 \U0001f31e é"}
    assert bind('{"text": "", "more": {"\\udc00": "x"}}')["more"] == {"\ufffd": "x"}
    with pytest.raises(ToolError, match="cut or broken"):
        bind('{"text": "\\ud83c')


@pytest.mark.parametrize(
    "annotation",
    [RunContext, Ctx, RunContext | None, Annotated[RunContext, "injected"]],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_the_context_is_hidden(annotation):
    """A parameter for the run's context is found in every spelling, and is not in the schema."""

    def look(what: str, where) -> None: ...

    look.__annotations__["where"] = annotation
    signature = ToolSignature(look)
    assert signature.context_parameter == "where"
    assert set(signature.schema["properties"]) == {"what"}
    with pytest.raises(ToolError, match="where: unexpected"):
        signature.bind('{"what": "x", "where": {}}')


def test_annotations_written_as_strings_find_local_types():
    """A type of the enclosing function is found where the scope or the closure has it."""

    class Local(BaseModel):
        a: int

    def scoped(x: Local) -> None: ...

    def closed(x: Local) -> object:
        return Local

    assert ToolSignature(scoped, locals()).bind('{"x": {"a": 1}}') == {"x": Local(a=1)}
    assert ToolSignature(closed).bind('{"x": {"a": 1}}') == {"x": Local(a=1)}


def test_what_the_function_returns_need_not_resolve():
    """Only parameters are looked at."""

    def fetch(x: int) -> Unknown: ...

    assert ToolSignature(fetch).bind('{"x": 1}') == {"x": 1}


def bare(city): ...
def unknown(x: Unknown): ...
def stars(*items: str): ...
def by_place(x: int, /): ...
def options(**options): ...
def in_default(x: int = Field(3, description="d")): ...


class Thing:
    def method(self, x: int): ...

    def __call__(self, x: int) -> int:
        return x


MISTAKES = [
    (bare, "'bare': parameter 'city' has no annotation; write its type, such as `city: str`"),
    (unknown, "'unknown': the annotation of parameter 'x' cannot be resolved.*TYPE_CHECKING"),
    (stars, "'stars': parameter 'items' cannot be passed by name"),
    (by_place, "'by_place': parameter 'x' cannot be passed by name"),
    (options, "'options': parameter 'options' has no annotation"),
    (in_default, "'in_default': parameter 'x' has a Field as its default.*Annotated"),
    (Thing.method, "parameter 'self' has no annotation; make tools of methods from an object"),
    ("text", "'text' is no function"),
    (iter, "'iter': "),
]


@pytest.mark.parametrize(("function", "reason"), MISTAKES, ids=lambda value: str(value).partition(" at 0x")[0])
def test_mistakes_of_the_author_are_told_when_the_signature_is_made(function, reason):
    """ConfigurationError names function and parameter, and what to write."""
    with pytest.raises(ConfigurationError, match=reason):
        ToolSignature(function)


def test_a_type_without_schema_is_told_by_the_tool():
    """What pydantic cannot describe is a ConfigurationError with the tool's name, at the first look at the schema."""

    def run(code: typing.Callable[[int], int]) -> None: ...

    with pytest.raises(ConfigurationError, match="'run': a parameter has no JSON Schema"):
        _ = ToolSignature(run).schema


def test_methods_partials_objects_and_wrappers():
    """Whatever can be called with names has its signature found."""

    @functools.wraps(forecast)
    def wrapped(*args, **kwargs):
        return forecast(*args, **kwargs)

    assert ToolSignature(Thing().method).bind('{"x": 1}') == {"x": 1}
    assert (ToolSignature(Thing()).name, ToolSignature(Thing()).bind('{"x": 1}')) == ("Thing", {"x": 1})
    fixed = ToolSignature(functools.partial(forecast, "Paris"))
    assert fixed.name == "forecast" and set(fixed.schema["properties"]) == {"days", "unit", "note"}
    assert set(ToolSignature(wrapped).schema["properties"]) == {"city", "days", "unit", "note"}


def everything(
    a: int,
    b: str,
    c: list[float],
    d: bool | None = None,
    e: dict[str, int] | None = None,
    f: Literal["x", "y"] = "x",
) -> None: ...


TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
ARGUMENTS = st.fixed_dictionaries(
    {"a": st.integers(-(2**63), 2**63 - 1), "b": TEXT, "c": st.lists(st.floats(allow_nan=False, allow_infinity=False))},
    optional={
        "d": st.none() | st.booleans(),
        "e": st.none() | st.dictionaries(TEXT, st.integers(-(2**53), 2**53)),
        "f": st.sampled_from(["x", "y"]),
    },
)
EVERYTHING = ToolSignature(everything)
CHECK = jsonschema_rs.Draft202012Validator(EVERYTHING.schema)


@settings(deadline=None)
@given(ARGUMENTS, st.booleans())
def test_what_fits_the_schema_is_bound_unchanged(arguments, escaped):
    """Values of plain types come through JSON exactly, and nothing is added."""
    assert CHECK.is_valid(arguments)
    assert EVERYTHING.bind(json.dumps(arguments, ensure_ascii=escaped)) == arguments


@settings(deadline=None)
@given(
    ARGUMENTS, st.sampled_from("abcdefz"), st.none() | st.integers() | TEXT | st.booleans() | st.lists(st.integers())
)
def test_binding_and_the_schema_agree(arguments, name, value):
    """What the schema refuses is refused by binding, and the other way round; null for `f` means that it is left out."""
    arguments = {**arguments, name: value}
    fits = CHECK.is_valid({key: given for key, given in arguments.items() if (key, given) != ("f", None)})
    try:
        EVERYTHING.bind(json.dumps(arguments))
    except ToolError:
        assert not fits
    else:
        assert fits


@settings(deadline=None)
@given(st.text('{}[]":,\\u0dn1aul ') | st.text())
def test_any_text_is_bound_or_told(text):
    """Nothing but ToolError comes out of binding, whatever a model writes."""
    try:
        EVERYTHING.bind(text)
    except ToolError as error:
        assert error.hint


def test_binding_costs_little_more_than_validation():
    """Binding small arguments adds at most 3 microseconds of CPU to pydantic's own validation."""
    signature = ToolSignature(forecast)
    text = '{"city": "Paris", "days": 4, "unit": "f"}'
    signature.bind(text)
    plain, _ = signature._validation

    def best(function) -> float:
        times = []
        for _ in range(7):
            start = time.process_time()
            for _ in range(2000):
                function(text)
            times.append((time.process_time() - start) / 2000)
        return min(times)

    assert best(signature.bind) - best(plain) < 3e-6
