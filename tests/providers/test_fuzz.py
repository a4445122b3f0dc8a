"""Whatever comes over a wire, a decoder ends it as an answer that holds together, or as an error of the tree."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import (
    ChatEnd,
    ChatEvent,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolSpec,
    Usage,
)
from agentkit.errors import ProviderError
from agentkit.providers.wire.chat_shapes import told_usage
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.testing.damage import cut_at_random, damaged
from agentkit.testing.turns import Protocol, Turn, write_turn

PROTOCOLS: tuple[Protocol, ...] = ("chat", "messages", "responses")
ECHOES = ("", "content", "details", "signatures")
TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("f", "find", "find_all"))

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
CALLS = st.lists(
    st.tuples(st.sampled_from(["f", "find", "odd-name"]), st.dictionaries(TEXT, TEXT | st.integers(), max_size=2)),
    max_size=3,
)
TURNS = st.builds(
    lambda text, reasoning, calls, size, usage: Turn(
        text=text,
        reasoning=reasoning,
        calls=tuple(ToolCall(f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls)),
        size=size,
        usage=usage,
    ),
    TEXT,
    TEXT,
    CALLS,
    st.integers(1, 9),
    st.builds(Usage, st.integers(0, 2**40), st.integers(0, 2**40)),
)


def outcome(protocol: Protocol, pieces: list[bytes], echo: str = "", *, whole: bool = False) -> list[ChatEvent] | str:
    """Return the events, or the name of the error; anything outside the tree is raised."""
    asked = Asked(provider="p", model="m", endpoint="e", tools=TOOLS, echo=echo)  # type: ignore[arg-type]
    decoder = CODECS[protocol].decoder(asked)
    try:
        if whole:
            return decoder.whole(b"".join(pieces))
        events: list[ChatEvent] = []
        for piece in pieces:
            events += decoder.feed(piece)
            if decoder.done:
                break
        return events + decoder.end()
    except ProviderError as error:
        assert isinstance(error.usage, dict)
        error.message.encode()
        assert "\x00" not in error.message
        return f"{type(error).__name__}: {error.message}"


def check_sound(events: list[ChatEvent]) -> None:
    """Check what every answer holds, however it came: deltas and message agree, texts are clean, calls can be run."""
    last = events[-1]
    assert isinstance(last, ChatEnd)
    message, usage = last.response.message, last.response.usage
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == message.content
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == message.reasoning
    for event in events:
        repr(event).encode()
        assert not isinstance(event, (TextDelta, ReasoningDelta)) or "\x00" not in event.text
    ids = [call.id for call in message.tool_calls]
    assert len(ids) == len(set(ids))
    assert all(call.id and call.name for call in message.tool_calls)
    for ready in (event for event in events if isinstance(event, ToolCallReady)):
        assert message.tool_calls[ready.index] == ready.call
        json.loads(ready.call.arguments)
    for index, call in enumerate(message.tool_calls):
        told = {(e.id, e.name) for e in events if isinstance(e, ToolCallDelta) and e.index == index}
        assert told == {(call.id, call.name)}
    numbers = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.reasoning_tokens)
    assert all(number is None or number >= 0 for number in numbers)


@settings(max_examples=50, deadline=None)
@given(TURNS, st.randoms(use_true_random=False), st.sampled_from([b"\n", b"\r\n", b"\r"]))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_cut_of_any_turn_gives_the_same_events(protocol: Protocol, turn: Turn, random: Random, end: bytes) -> None:
    """Wherever the bytes of any turn are cut, the events are those of the whole, and say the turn."""
    stream = b"".join(write_turn(turn, protocol))
    told = outcome(protocol, [stream])
    dressed = stream.replace(b"\n", end)
    assert outcome(protocol, cut_at_random(dressed, random)) == told
    if isinstance(told, str):
        assert not turn.calls
        assert not turn.text
        return
    check_sound(told)
    response = told[-1].response  # type: ignore[union-attr]
    assert (response.message.content, response.message.reasoning) == (turn.text, turn.reasoning)
    assert [json.loads(c.arguments) for c in response.message.tool_calls] == [
        json.loads(c.arguments) for c in turn.calls
    ]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        turn.usage.input_tokens,
        turn.usage.output_tokens,
    )


@settings(max_examples=80, deadline=None)
@given(TURNS, st.randoms(use_true_random=False), st.sampled_from(ECHOES), st.booleans())
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_damaged_streams(protocol: Protocol, turn: Turn, random: Random, echo: str, streamed: bool) -> None:
    """A damaged stream or answer is a sound answer or an error of the tree, the same wherever it is cut."""
    stream = damaged(b"".join(write_turn(turn, protocol, stream=streamed)), random)
    told = outcome(protocol, [stream], echo)
    assert outcome(protocol, cut_at_random(stream, random), echo) == told
    for events in (told, outcome(protocol, [stream], echo, whole=True)):
        if not isinstance(events, str):
            check_sound(events)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b"event: error\n", b"{", b"[DONE]"])))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_bytes(protocol: Protocol, pieces: list[bytes]) -> None:
    """Bytes of any kind are no answer, and nothing worse."""
    assert isinstance(outcome(protocol, pieces), str)
    assert isinstance(outcome(protocol, pieces, whole=True), str)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", [b"[", b'{"a":', b'{"choices":[{"delta":', b'{"type":"message_start","message":'])
def test_deep_nesting(protocol: Protocol, shape: bytes) -> None:
    """Nesting without end is a broken answer, not a crash."""
    for data in (b"data: " + shape * 100_000 + b"\n\n", shape * 100_000):
        assert isinstance(outcome(protocol, [data]), str)
        assert isinstance(outcome(protocol, [data], whole=True), str)


def test_half_a_character_in_the_place_of_a_list():
    """A chunk whose list is half a character, as damage leaves it, is read as far as it says something."""
    body = {"id": "c", "model": "m", "choices": "\ud83d", "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
    assert told_usage(body) == body["usage"]
