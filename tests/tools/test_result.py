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

from agentkit.core.contracts import FilePart, ImagePart, TextPart, ToolMessage, ToolResult
from agentkit.tools import MAX_RESULT_CHARS, fit_batch, render_result


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


GIANTS = {
    "json": ({"rows": [{"id": n, "text": "x" * 50} for n in range(26_000)]}, '{"rows":[{"id":0', '"}]}'),
    "log": ("2026-12-01 INFO line\n" * 90_500, "2026-12-01 INFO", "INFO line\n"),
    "emoji": ("\N{ROCKET}" * 700_000, "\N{ROCKET}", "\N{ROCKET}"),
}


@pytest.mark.parametrize(("value", "begins", "ends"), GIANTS.values(), ids=GIANTS)
def test_b68_one_giant_result_keeps_its_ends(value, begins, ends):
    """However it has its lines, head and tail stay whole characters, and the middle is counted."""
    whole = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    assert len(whole) > 700_000 - 1
    text = render_result(value).content
    note = f"[... {len(whole) - MAX_RESULT_CHARS} characters left out ...]"
    assert text.startswith(begins)
    assert text.endswith(ends)
    assert text.count(note) == 1
    assert len(text) == MAX_RESULT_CHARS + len(note) + 2
    assert text.encode().decode() == text


@pytest.mark.parametrize("wrap", [lambda data: {"file": data, "n": 1}, lambda data: [bytearray(data)]])
def test_b68_binary_data_inside_a_value_is_named_and_not_spelled_out(wrap):
    """Three megabytes within JSON are a note; a picture by itself is a part."""
    picture = b"\x89PNG\r\n\x1a\n" + bytes(3_000_000)
    text = render_result(wrap(picture)).content
    assert "[3000008 bytes of binary data, not shown]" in text
    assert len(text) < 100
    part = render_result(picture).content[0]
    assert isinstance(part, ImagePart)
    assert part.data == picture


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=12), st.integers(0, 9_000))
def test_b68_a_batch_fits_and_small_answers_stay_whole(sizes, most):
    """Together they have at most so many characters, only the longest are cut, and each says what it lost."""
    letters = "ZYXWVUTSRQPO"  # none of them in a note
    before = {n: ToolMessage(f"c{n}", letters[n] * size) for n, size in enumerate(sizes)}
    after = dict(before)
    fit_batch(after, most)
    shown = {n: message.content.count(letters[n]) for n, message in after.items()}
    assert sum(shown.values()) <= max(most, 0) or after == before
    cut = [n for n in after if after[n] != before[n]]
    assert bool(cut) == (sum(sizes) > most)
    for n in cut:
        assert f"[... {sizes[n] - shown[n]} characters left out ...]" in after[n].content
        assert all(shown[n] >= shown[other] for other in after)
    assert sum(shown.values()) > most - len(sizes) or not cut


def test_b68_what_was_left_out_twice_is_counted_once():
    """A result cut at its own limit, and again beside others, tells the whole gap."""
    text = render_result("y" * 300_000).content
    answers = {n: ToolMessage(f"c{n}", text) for n in range(4)}
    fit_batch(answers, 40_000)
    for message in answers.values():
        assert message.content.count("y") == 10_000
        assert message.content.count("[... 290000 characters left out ...]") == 1
        assert message.content.count("left out") == 1
