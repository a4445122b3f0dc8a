"""What tools return, as a model reads it."""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import date
from decimal import Decimal

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentkit.core.contracts import FilePart, ImagePart, TextPart, ToolResult
from agentkit.tools import MAX_RESULT_CHARS, render_result


class Row(BaseModel):
    a: int
    day: date


@dataclasses.dataclass
class Point:
    x: int
    inner: Row | None = None


@attrs.define
class Car:
    wheels: int


class Packed(msgspec.Struct):
    a: int


class Color(enum.Enum):
    RED = "red"


ROW = Row(a=1, day=date(2026, 12, 1))
RENDERED = [
    ("text", "text"),
    ("", ""),
    (None, ""),
    (True, "true"),
    (3, "3"),
    (Decimal("1.10"), '"1.10"'),
    ([1, "a", None], '[1,"a",null]'),
    ([], "[]"),
    ({"a": {1: [2]}}, '{"a":{"1":[2]}}'),
    (ROW, '{"a":1,"day":"2026-12-01"}'),
    ([ROW], '[{"a":1,"day":"2026-12-01"}]'),
    (Point(1, ROW), '{"x":1,"inner":{"a":1,"day":"2026-12-01"}}'),
    (Car(4), '{"wheels":4}'),
    (Packed(1), '{"a":1}'),
    (Color.RED, '"red"'),
    ({"a", "a"}, '["a"]'),
    ({(1, 2): 3}, '{"(1, 2)":3}'),
    ({"t": "a\x00\ud83c"}, '{"t":"a\\u0000\ufffd"}'),
    ("W\x00s caf\udce9 \\u0000 \U0001f31e", "W\ufffds caf\ufffd \\u0000 \U0001f31e"),
    (b"plain \xc3\xa9", "plain é"),
    (b"\x00\x01\x02" * 1000, "[3000 bytes of binary data, not shown]"),
    (bytearray(b"\xff\xfe"), "[2 bytes of binary data, not shown]"),
]


@pytest.mark.parametrize(("value", "text"), RENDERED, ids=lambda given: repr(given)[:30])
def test_values_as_text(value, text):
    """Text stays, data is JSON, binary is a note; nothing unwritable is left."""
    assert render_result(value) == ToolResult(text)


def test_parts_stay_parts():
    """Images and files are handed on; bytes that are an image or a PDF become one."""
    image = ImagePart(url="https://example.org/a.png")
    assert render_result(image).content == (image,)
    assert render_result([TextPart("a\x00"), image]).content == (TextPart("a\ufffd"), image)
    assert render_result(b"\xff\xd8\xff123").content == (ImagePart(data=b"\xff\xd8\xff123", media_type="image/jpeg"),)
    assert render_result(b"%PDF-1.7").content == (FilePart(data=b"%PDF-1.7", media_type="application/pdf"),)


def test_texts_of_several_parts_share_the_cap():
    """Many parts are no way around it."""
    content = render_result([TextPart("a" * 60)] * 3, 100).content
    assert content[0].text == "a" * 60 and "[... 20 characters left out ...]" in content[1].text
    assert content[2].text == "\n[... 60 characters left out ...]\n"


def test_a_tool_result_passes_and_is_bounded():
    """A result made by the tool is itself, unless its text is too long or cannot be written."""
    result = ToolResult("fine", "error", {"a": 1})
    assert render_result(result) is result
    assert render_result(ToolResult("x\x00" + "y" * 20, "error", {"a": 1}), 12) == ToolResult(
        "x\ufffdyyyyyy\n[... 10 characters left out ...]\nyyyy", "error", {"a": 1}
    )


def test_a_huge_line_is_cut_in_the_middle():
    """One line of two megabytes keeps its head and tail, with the number of characters that are missing."""
    text = json.dumps({"rows": "\U0001f31e" * 500_000})
    content = render_result(text).content
    assert len(content) < MAX_RESULT_CHARS + 100
    assert content.startswith('{"rows": "') and content.endswith('"}')
    assert f"[... {len(text) - MAX_RESULT_CHARS} characters left out ...]" in content


@given(st.text(), st.integers(1, 30))
def test_a_cut_never_breaks_a_character(text, most):
    """Head and tail are of the text, in all as many characters as allowed, and can be written."""
    content = render_result(text, most).content
    content.encode()
    if len(text) > most:
        head, _, rest = content.partition("\n[... ")
        note, _, tail = rest.rpartition(" characters left out ...]\n")
        assert len(head) + len(tail) == most or "[..." in text or "\n" in text
        assert note.isdigit() or "[..." in text
