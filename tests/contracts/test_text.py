"""Text that every store, wire and trace can hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import clean_text


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("W\u0000s\u0000l", "W\ufffds\ufffdl"),
        ("\ud83d", "\ufffd"),
        ("a\udc00b\ud800", "a\ufffdb\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("é\x00", "é\ufffd"),
        ("", ""),
    ],
)
def test_what_no_store_takes_is_replaced_and_marked(dirty, clean):
    """A NUL and a half of a pair become U+FFFD; two halves become their character (B92)."""
    assert clean_text(dirty) == clean


@pytest.mark.parametrize("text", ["\\u0000", "\\ud83d", "\U0001f600 done", "tab\tline\n", "\x01\x7f", "\ufffd"])
def test_good_text_stays(text):
    """The literal text backslash-u0000, emojis and other controls are not touched."""
    assert clean_text(text) is text


@given(st.text(st.characters(codec=None)))
def test_the_result_is_clean_and_stays_so(text):
    """Whatever comes in, what goes out encodes as UTF-8, has no NUL, and is a fixed point."""
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    assert json.loads(json.dumps(cleaned).encode()) == cleaned
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert clean_text(cleaned) == cleaned
    assert len(cleaned) <= len(text)
