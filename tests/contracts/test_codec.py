"""Everything that is stored comes back exactly, or is refused with its place."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import (
    AssistantMessage,
    CostRecord,
    OpaqueItem,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    decode_data,
    encode_data,
    register_migration,
)
from agentkit.errors import ConfigurationError, StoreError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    note: str = ""


class Deep(msgspec.Struct, rename="camel", omit_defaults=True):
    some_text: str
    amounts: dict[int, Decimal] = {}
    point: Point | None = None


class Everything(msgspec.Struct, frozen=True):
    money: Decimal
    moment: datetime
    day: date
    blob: bytes
    id: uuid.UUID
    colour: Colour
    number: float
    whole: int
    deep: Deep
    messages: tuple[AssistantMessage | ToolMessage | UserMessage, ...] = ()
    tags: frozenset[str] = frozenset()


TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=8)
MONEY = st.decimals(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.one_of(
        TEXT.map(UserMessage),
        st.builds(AssistantMessage, TEXT, st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=2).map(tuple), TEXT),
        st.builds(ToolMessage, TEXT, TEXT, TEXT, st.booleans()),
    ),
    max_size=3,
).map(tuple)
EVERYTHING = st.builds(
    Everything,
    money=MONEY,
    moment=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])),
    day=st.dates(),
    blob=st.binary(max_size=16),
    id=st.uuids(),
    colour=st.sampled_from(Colour),
    number=st.floats(allow_nan=False, allow_infinity=False),
    whole=st.integers(),
    deep=st.builds(Deep, TEXT, st.dictionaries(st.integers(-9, 9), MONEY, max_size=2), st.builds(Point, st.integers())),
    messages=MESSAGES,
    tags=st.frozensets(TEXT, max_size=3),
)


@given(EVERYTHING)
def test_what_is_stored_comes_back_exactly(value):
    """Decimal (with its zeros), datetime, date, bytes, UUID, enum, float, any int, struct and dataclass survive."""
    back = decode_data(encode_data("everything", value), "everything", Everything)
    assert back == value
    assert str(back.money) == str(value.money)
    assert [str(amount) for amount in back.deep.amounts.values()] == [str(a) for a in value.deep.amounts.values()]


@given(PLAIN)
def test_plain_data_comes_back_exactly(value):
    """Untyped data, as in opaque provider items, is the same after it was stored."""
    item = OpaqueItem(("api.example", "m"), "reasoning", value)
    assert decode_data(encode_data("item", item), "item", OpaqueItem) == item


@given(st.text(st.characters(codec=None), max_size=12), PLAIN)
def test_any_text_can_be_stored(text, plain):
    """No text at all makes a write fail, and what is stored is valid UTF-8 without NULs (B92)."""
    stored = encode_data("item", {"deep": [{"x": text}], "plain": plain, text: 1})
    decoded = json.loads(stored.decode("utf-8"))
    assert "\x00" not in decoded["data"]["deep"][0]["x"]
    assert decoded["data"]["plain"] == plain


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        ({"ok": 1, "deep": [{"x": object()}]}, "$.deep[0].x", "object"),
        ([1, {"f": float("nan")}], "$[1].f", "float"),
        ({"a": (float("inf"),)}, "$.a[0]", "float"),
        ({"a": {"b": Decimal("NaN")}}, "$.a.b", "Decimal"),
        ({"a": Decimal("-Infinity")}, "$.a", "Decimal"),
        ({float("nan"): 1}, "$, key nan,", "float"),
        ({"m": {(1, 2): 3}}, "$.m, key (1, 2),", "object"),
        (Deep("t", point=Point(1, lambda: 1)), "$.point.note", "function"),
        ([UserMessage("a"), {"t": test_any_text_can_be_stored}], "$[1].t", "function"),
        ({"bad": "\ud83d", "s": object()}, "$.s", "object"),
        ({"bad": "\x00", "s": float("nan")}, "$.s", "float"),
        ([10**5000], "$[0]", "int"),
    ],
    ids=range(12),  # a number of 5,000 digits has no text
)
def test_what_is_no_data_is_refused_with_its_place(value, place, kind):
    """The write fails with the path and the type, before anything is stored (B91)."""
    with pytest.raises(StoreError, match="A state cannot be stored") as caught:
        encode_data("state", value)
    assert f"{place} is " in caught.value.message
    assert f"of type {kind}" in caught.value.message


def test_a_value_that_contains_itself_is_refused():
    """A ring is an error of the store, not a crash."""
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(StoreError, match="contains itself"):
        encode_data("state", ring)


def test_words_that_look_like_no_number_stay():
    """The texts 'NaN', 'null' and 'Infinity' are texts."""
    value = ["NaN", "null", "-Infinity", None, "inf"]
    assert decode_data(encode_data("words", value), "words", list) == value


def test_a_renamed_and_tagged_struct_survives_cleaning():
    """Replacing a lone surrogate keeps names on the wire, tags, omitted defaults and exact types."""
    value = [Deep("half \ud83d", {1: Decimal("1.20")}), Deep("ok", point=Point(2, "\x00"))]
    back = decode_data(encode_data("deep", value), "deep", list[Deep])
    assert back == [Deep("half \ufffd", {1: Decimal("1.20")}), Deep("ok", point=Point(2, "\ufffd"))]
    said = AssistantMessage("\ud83d", (ToolCall("1", "t", "{}"),))
    assert decode_data(encode_data("m", said), "m", AssistantMessage | UserMessage).content == "\ufffd"


STORED = encode_data("record", {"a": [{"x": 1, "y": "t"}], "n": "1.5"})


class Inner(msgspec.Struct):
    x: int
    y: str = ""


class Outer(msgspec.Struct):
    a: list[Inner]
    n: Decimal = Decimal(0)


def stored(data, *, version=1, kind="record"):
    return json.dumps({"v": version, "kind": kind, "data": data}).encode()


@pytest.mark.parametrize("length", range(len(STORED)))
def test_truncated_bytes_are_refused(length):
    """Not one prefix of what was stored reads as something."""
    assert decode_data(STORED, "record", Outer) == Outer([Inner(1, "t")], Decimal("1.5"))
    with pytest.raises(StoreError, match="A stored record cannot be read"):
        decode_data(STORED[:length], "record", Outer)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (stored({"a": [{"y": "t"}]}), r"version 1 does not fit: .*`x` - at `\$\.a\[0\]`"),
        (stored({"a": [{"x": "1"}]}), r"version 1 does not fit: .*`\$\.a\[0\]\.x`"),
        (stored({"a": [{"x": 1, "z": 2}]}), r"version 1 has \$\.a\[0\]\.z, which this release does not know"),
        (stored({"a": [], "more": {"k": 1}}), r"version 1 has \$\.more, which"),
        (stored({"a": []}, version=2), "stored as version 2; this release reads 1 to 1. Upgrade"),
        (stored({"a": []}, version=0), "stored as version 0"),
        (stored({"a": []}, kind="other"), "Expected a stored record, found a 'other'"),
        (b'{"v":1,"kind":"record","data":{"a":[]},"extra":1}', "cannot be read"),
        (b'{"kind":"record","data":{"a":[]}}', "cannot be read"),
        (b'{"v":1,"kind":"record","data":{"a":[]}} x', "cannot be read"),
        (b'{"v":1,"kind":"rec\xff","data":1}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused(data, message):
    """Missing, mistyped and unknown keys, newer versions and other kinds fail with version and path (B94)."""
    with pytest.raises(StoreError, match=message):
        decode_data(data, "record", Outer)


def test_unknown_keys_are_found_under_unions_dataclasses_and_maps():
    """The check follows the value's own types, and lets defaults that were not written pass."""
    record = {"m": {"1": [{"type": "tool", "call_id": "c", "content": "t", "colour": 1}]}}
    with pytest.raises(StoreError, match=r"\$\.m\.1\[0\]\.colour"):
        decode_data(stored(record), "record", dict[str, dict[int, list[AssistantMessage | ToolMessage]]])
    with pytest.raises(StoreError, match=r"\$\.z"):
        decode_data(stored({"x": 1, "z": 1}), "record", Point)
    given_in_full = {"type": "assistant", "content": "hi", "tool_calls": [], "reasoning": ""}
    assert decode_data(stored(given_in_full), "record", AssistantMessage | UserMessage) == AssistantMessage("hi")
    assert decode_data(stored({"x": 1}), "record", Point) == Point(1)


def test_migrations_run_in_order_and_new_values_are_written_at_the_top():
    """An old value passes every step to today's version; what a step breaks is refused with the step."""
    first = encode_data("moved", {"name": "Ada Lovelace", "sum": Decimal("1.10")})

    class Person(msgspec.Struct):
        first: str
        last: str
        sum: Decimal

    with pytest.raises(StoreError):
        decode_data(first, "moved", Person)
    register_migration("moved", 1, lambda old: {**old, "names": old["name"].split()})
    register_migration("moved", 2, lambda old: {"first": old["names"][0], "last": old["names"][1], "sum": old["sum"]})
    assert decode_data(first, "moved", Person) == Person("Ada", "Lovelace", Decimal("1.10"))
    new = encode_data("moved", Person("A", "B", Decimal(1)))
    assert json.loads(new)["v"] == 3
    assert decode_data(new, "moved", Person) == Person("A", "B", Decimal(1))
    with pytest.raises(StoreError, match="from version 1 to 2: KeyError"):
        decode_data(stored({}, kind="moved"), "moved", Person)
    with pytest.raises(ConfigurationError, match="starts at version 3, not 5"):
        register_migration("moved", 5, lambda old: old)


def test_a_migrated_value_is_held_to_the_same_strictness():
    """A migration that leaves an old key or type behind does not pass unseen."""
    register_migration("strict", 1, lambda old: {**old, "x": 1})
    with pytest.raises(StoreError, match=r"\$\.old, which"):
        decode_data(stored({"old": 1}, kind="strict"), "strict", Inner)
    register_migration("strict", 2, lambda old: {"x": "7"})
    with pytest.raises(StoreError, match="does not fit"):
        decode_data(stored({}, kind="strict"), "strict", Inner)


def test_a_cost_record_keeps_its_decimals():
    """The rows of the ledger come back to the last place."""
    row = CostRecord(
        run_id="r", path="", call_id="c", attempt=1, purpose="main", provider="p", model="m", outcome="ok",
        usage=Usage(3, None), cost=Decimal("0.054399000000"),
    )  # fmt: skip
    back = decode_data(encode_data("cost_record", row), "cost_record", CostRecord)
    assert back == row and str(back.cost) == "0.054399000000"
