"""Decoding costs in proportion to what comes: eight times the stream is no more than twenty times the work."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable

import pytest

from agentkit.core.contracts import ToolCall
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.testing.turns import Protocol, Turn, sse, write_turn

TIMES = 8
MOST = 20.0  # quadratic work would be 64
PROTOCOLS: tuple[Protocol, ...] = ("chat", "messages", "responses")


def cpu(protocol: Protocol, stream: bytes, size: int) -> float:
    """Return the least CPU seconds of two runs over the stream in pieces of this size."""
    best = float("inf")
    for _ in range(2):
        gc.collect()
        decoder = CODECS[protocol].decoder(Asked(model="m"))
        start = time.process_time()
        for place in range(0, len(stream), size):
            decoder.feed(stream[place : place + size])
        decoder.end()
        best = min(best, time.process_time() - start)
    return best


def argument(size: int) -> Turn:
    return Turn(calls=(ToolCall("c", "write", json.dumps({"content": 'é"{[' * (size // 4)})),), size=64)


def one_delta(size: int) -> Turn:
    return Turn(calls=(ToolCall("c", "write", json.dumps({"content": "x" * size})),), size=2 * size)


def many_calls(number: int) -> Turn:
    return Turn(calls=tuple(ToolCall(f"c{n}", "write", '{"a": 1}') for n in range(number)), size=64)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("turn", "units", "size"),
    [
        pytest.param(lambda n: Turn(text="wörd " * n), 4_000, 1 << 14, id="deltas"),
        pytest.param(argument, 40_000, 1 << 14, id="an-argument"),
        pytest.param(argument, 1_000, 1, id="an-argument-byte-by-byte"),
        pytest.param(one_delta, 5_000, 1, id="one-frame-byte-by-byte"),
        pytest.param(one_delta, 80_000, 16, id="one-frame-in-small-pieces"),
        pytest.param(many_calls, 150, 1 << 14, id="calls"),
    ],
)
def test_work_grows_with_the_stream(protocol: Protocol, turn: Callable[[int], Turn], units: int, size: int) -> None:
    """Neither long deltas, long arguments nor small pieces make a decoder look at anything again and again."""
    small, large = (b"".join(write_turn(turn(n), protocol)) for n in (units, TIMES * units))
    assert cpu(protocol, large, size) < MOST * max(cpu(protocol, small, size), 1e-4)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(
            lambda n: {"index": 0, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}, id="one-slot"
        ),
        pytest.param(lambda n: {"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}, id="no-index"),
        pytest.param(lambda n: {"function": {"name": "f", "arguments": f'{{"n":{n}}}'}}, id="no-ids"),
        pytest.param(lambda n: {"index": n, "id": "c", "function": {"name": "f", "arguments": ""}}, id="one-id"),
    ],
)
def test_calls_of_odd_servers_grow_alike(piece: Callable[[int], dict[str, object]]) -> None:
    """Keeping calls apart takes the same work for each, whatever the server leaves out."""

    def stream(calls: int) -> bytes:
        chunks = [{"choices": [{"delta": {"tool_calls": [piece(n)]}}]} for n in range(calls)]
        end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
        return b"".join(map(sse, [*chunks, end]))  # type: ignore[arg-type]

    small, large = stream(300), stream(TIMES * 300)
    assert cpu("chat", large, 1 << 14) < MOST * max(cpu("chat", small, 1 << 14), 1e-4)
