"""Beginnings of JSON."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.schema import partial_json

BEGINNINGS = [
    ("", None),
    ("  ", None),
    ("x", None),
    ("nul", None),
    ("]", None),
    ("{", {}),
    ("[[", [[]]),
    ("12", 12),
    ('"ab', "ab"),
    ('{"a', {}),
    ('{"a"', {}),
    ('{"a":', {}),
    ('{"a":"b', {"a": "b"}),
    ('{"a":"b"', {"a": "b"}),
    ('{"a":12', {}),
    ('{"a":12 ', {"a": 12}),
    ('{"a":12,', {"a": 12}),
    ('{"a":tru', {}),
    ('{"a":true', {"a": True}),
    ('{"a":1,"b"', {"a": 1}),
    ("[1, 2", [1]),
    ("[-", []),
    ('[1, {"a": [', [1, {"a": []}]),
    ('{"a":[{"b":"c"},{"d', {"a": [{"b": "c"}, {}]}),
    ('{"a":1} and more', {"a": 1}),
    ('{"a":1}}', {"a": 1}),
    ('{"a":1]', None),
    ('"x\\', "x"),
    ('"x\\\\', "x\\"),
    ('"x\\u00', "x"),
    ('"x\\u00e9', "xé"),
    ('"x\\ud83c', "x"),
    ('"x\\ud83c\\u', "x"),
    ('"x\\ud83c\\udf1e', "x\U0001f31e"),
    ('"x\\\\ud83c', "x\\ud83c"),
    ('"x\ud83c', "x"),
]


@pytest.mark.parametrize(("text", "value"), BEGINNINGS)
def test_beginnings(text, value):
    """What is certain is there; a number that may go on, half a word, a key without a value are not."""
    assert partial_json(text) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abé\\"', max_size=3), inner, max_size=4),
    max_leaves=10,
)


def begins(part, whole) -> bool:
    """Return whether a partial value can still become the whole one."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and begins(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(begins, part, whole))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return part == whole and type(part) is type(whole)


@settings(deadline=None)
@given(st.dictionaries(st.text('abé\\"', max_size=3), JSON, max_size=4) | st.lists(JSON, max_size=4), st.booleans())
def test_every_beginning_can_become_the_whole(value, escaped):
    """At every cut the partial value is one that the whole continues; at the end it is the whole."""
    text = json.dumps(value, ensure_ascii=escaped)
    for cut in range(1, len(text)):
        part = partial_json(text[:cut])
        assert part is not None and begins(part, value), text[:cut]
    assert partial_json(text) == value


@settings(deadline=None)
@given(st.text('{}[]",:\\u0dDt8 19ae\ud83c') | st.text())
def test_it_never_raises(text):
    """Any text whatever gives a value or None."""
    json.dumps(partial_json(text))


@pytest.mark.parametrize("unit", ["[", '{"a":', '"\\\\', "\\", "1,", "[],", '"a",', "{}"])
def test_time_grows_with_the_text(unit):
    """Four times the text takes nowhere near sixteen times the time, whatever it repeats."""

    def best(count: int) -> float:
        text = "[" + unit * count
        times = []
        for _ in range(5):
            start = time.process_time()
            partial_json(text)
            times.append(time.process_time() - start)
        return min(times)

    assert best(40_000) < 10 * best(10_000) + 0.01
