"""Server-sent events out of bytes cut anywhere, and both decoders on top of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import ChatEnd, ChatEvent, ToolCall, Usage
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.sse import SseReader, data_of
from agentkit.testing.turns import Turn, write_turn

TURN = Turn(
    text="Größe 😀 ok\r\n",
    reasoning="hm 日本",
    calls=(ToolCall("a", "f", '{"t":"\\ud83d\\ude00 é"}'), ToolCall("b", "g", "{}")),
    usage=Usage(30, 8, cache_read_tokens=10),
    size=3,
)


def frames(chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the events of a stream that comes in these chunks."""
    reader = SseReader()
    found = [frame for chunk in chunks for frame in reader.feed(chunk)]
    return [data_of(frame) for frame in [*found, reader.rest()] if frame.strip()]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the bytes cut at these places."""
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in zip(marks, marks[1:], strict=False)]


def decoded(protocol: str, chunks: list[bytes]) -> list[ChatEvent]:
    """Return the events of a decoder fed with these chunks."""
    decoder = CODECS[protocol].decoder(Asked(provider="p", model="m", endpoint="http://e"))  # type: ignore[index]
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.end()


LINES = st.sampled_from([b"data: {}", b"data:x", b": ping", b"event: e", b"id: 7", b"data: \xf0\x9f\x98\x80", b"", b""])


@given(
    st.lists(LINES, max_size=20),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 500), max_size=30),
    st.booleans(),
)
def test_chunks_do_not_matter(lines: list[bytes], end: bytes, places: list[int], bom: bool) -> None:
    """Any line end and any chunks give the frames of the whole text with plain line feeds."""
    stream = (b"\xef\xbb\xbf" if bom else b"") + end.join([*lines, b"", b""])
    assert frames(cut(stream, places)) == frames([b"\n".join([*lines, b"", b""])])


@pytest.mark.parametrize("protocol", ["chat", "messages"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_byte_is_a_place_to_cut(protocol: str, end: bytes) -> None:
    """A turn told byte by byte gives the same events as in one piece."""
    stream = b"".join(write_turn(TURN, protocol)).replace(b"\n", end)  # type: ignore[arg-type]
    whole = decoded(protocol, [stream])
    assert decoded(protocol, [stream[place : place + 1] for place in range(len(stream))]) == whole
    assert isinstance(whole[-1], ChatEnd)
    message = whole[-1].response.message
    assert message.content == TURN.text
    assert [msgspec.json.decode(call.arguments) for call in message.tool_calls] == [{"t": "😀 é"}, {}]
    assert whole[-1].response.usage == TURN.usage


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


@settings(max_examples=60)
@given(TEXT, TEXT, st.integers(1, 7), st.lists(st.integers(0, 9000), max_size=25))
@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_any_text_in_any_chunks(protocol: str, text: str, reasoning: str, size: int, places: list[int]) -> None:
    """Whatever the model says arrives as it is, streamed in any chunks or whole."""
    turn = Turn(
        text=text, reasoning=reasoning, calls=(ToolCall("a", "f", msgspec.json.encode([text]).decode()),), size=size
    )
    streamed = decoded(protocol, cut(b"".join(write_turn(turn, protocol)), places))[-1]  # type: ignore[arg-type]
    decoder = CODECS[protocol].decoder(Asked(provider="p", model="m", endpoint="http://e"))  # type: ignore[index]
    whole = decoder.whole(write_turn(turn, protocol, stream=False)[0])[-1]  # type: ignore[arg-type]
    assert streamed == whole
    assert isinstance(streamed, ChatEnd)
    said = streamed.response.message
    assert (said.content, said.reasoning) == (text, reasoning)
    assert msgspec.json.decode(said.tool_calls[0].arguments) == [text]


def test_one_large_frame_in_many_chunks_is_linear() -> None:
    """A frame of 4 MB in 4,000 chunks is joined once, not once a chunk."""
    reader = SseReader()
    piece = b"x" * 1000
    assert reader.feed(b"data: ") == []
    for _ in range(4000):
        assert reader.feed(piece) == []
    assert len(reader._pieces) == 4001
    assert reader.feed(b"\n\n") == [b"data: " + piece * 4000]
