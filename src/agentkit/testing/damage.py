"""Damages recorded streams the way servers, proxies and networks do, at random but repeatably; for fuzzing decoders."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random

from agentkit.core.contracts import JsonValue

__all__ = ["cut_at_random", "damaged"]

_DEEP = 60
_FRAMES = (
    b"data: [DONE]",
    b": note",
    b"event: error\ndata: boom",
    b"event: ping\ndata: {}",
    b"data: null",
    b"data: {oops",
    b"data: []",
    b'data: {"error": {"message": "no", "code": 429}}',
    b'data: {"type": "error", "error": {"type": "overloaded_error"}}',
    b"<html><body>Bad gateway</body></html>",
    b"",
)
_BYTES = (b"\x00", b"\xff", b"\r", b"\n", b"\n\n", b"\xed\xa0\xbd", b"{", b"}", b'"', b"\\", b"data: ", b"\xef\xbb\xbf")


def damaged(stream: bytes, random: Random) -> bytes:
    """Return the stream after one to four damages: to its frames, to the JSON in them, or to its bytes."""
    for _ in range(random.randint(1, 4)):
        stream = random.choice(_DAMAGES)(stream, random)
    return stream


def cut_at_random(stream: bytes, random: Random) -> list[bytes]:
    """Return the stream in a few pieces, or in single bytes."""
    places = range(len(stream)) if random.random() < 0.1 else (random.randint(0, len(stream)) for _ in range(9))
    marks = sorted({0, *places, len(stream)})
    return [stream[start:end] for start, end in pairwise(marks)]


def _frames(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    place = random.randrange(len(frames))
    what = random.randrange(5)
    if what == 0:
        del frames[place]
    elif what == 1:
        frames.insert(random.randrange(len(frames)), frames[place])
    elif what == 2:
        frames.insert(place, random.choice(_FRAMES))
    elif what == 3:
        frames = frames[:place]
    else:
        other = random.randrange(len(frames))
        frames[place], frames[other] = frames[other], frames[place]
    return random.choice((b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n")).join(frames)


def _bytes(stream: bytes, random: Random) -> bytes:
    place = random.randint(0, len(stream))
    what = random.randrange(4)
    if what == 0:
        return stream[:place]
    if what == 1:
        return stream[:place] + stream[place + random.randint(1, 9) :]
    piece = random.choice(_BYTES) if what == 2 else stream[: random.randint(0, 40)]
    return stream[:place] + piece + stream[place:]


def _json(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    place = random.randrange(len(frames))
    head, mark, data = frames[place].partition(b"{")
    try:
        value = json.loads(mark + data)
    except (ValueError, RecursionError):
        return stream
    told = json.dumps(_changed(value, random), ensure_ascii=random.random() < 0.5)
    frames[place] = head + told.encode("utf-8", "replace")
    return b"\n\n".join(frames)


def _changed(value: JsonValue, random: Random) -> JsonValue:
    """Return the value with one part, anywhere inside, replaced, left out, renamed or wrapped."""
    inside = random.random() < 0.85
    if isinstance(value, dict) and value and inside:
        key = random.choice(list(value))
        what = random.randrange(12)
        if what == 0:
            return {name: item for name, item in value.items() if name != key}
        if what == 1:
            return {(random.choice(list(value)) if name == key else name): item for name, item in value.items()}
        return {**value, key: _changed(value[key], random)}
    if isinstance(value, list) and value and inside:
        place = random.randrange(len(value))
        return [*value[:place], _changed(value[place], random), *value[place + random.randint(0, 1) :]]
    return _odd(value, random)


def _odd(value: JsonValue, random: Random) -> JsonValue:
    deep: JsonValue = value
    for _ in range(_DEEP):
        deep = [deep]
    text = value if isinstance(value, str) else json.dumps(value)
    odd: tuple[JsonValue, ...] = (
        None, True, False, 0, -1, 7, 2**63, 2**70, -(2**70), 1e308, 0.5, "", " ", "0", "null", "{}", "\x00", "\ud83d",
        "\ude00", "é😀", [], {}, [None], [[]], {"": None}, [value], {"0": value}, {"error": value}, text, text * 2,
        text[: len(text) // 2], json.dumps(text), deep, float("nan"), float("inf"),
    )  # fmt: skip
    return random.choice(odd)


_DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (_json, _json, _json, _json, _frames, _frames, _bytes)
