"""Tool calls through an enforced schema: what the model is told, and what its reply becomes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    ImagePart,
    JsonObject,
    LLMPort,
    OutputSpec,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    text_of,
)
from agentkit.errors import ConfigurationError, StreamBroken
from agentkit.providers.schema_envelope import build_envelope
from agentkit.providers.schema_tools import SchemaTools, with_schema_tools

CITY: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("weather", "Current weather in a city.", CITY)
CLOCK = ToolSpec("clock", "The time now.", {"type": "object", "properties": {}})
PLACE = OutputSpec("place", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})


class Recited:
    """A model that says these pieces, whatever it is asked, and remembers the request."""

    def __init__(self, *pieces: str, stop_reason: str = "stop", ends: bool = True) -> None:
        self.pieces, self.stop_reason, self.ends = pieces, stop_reason, ends
        self.asked: list[ChatRequest] = []
        self.closed = 0

    async def stream(self, call: Call[ChatRequest]) -> AsyncGenerator[ChatEvent, None]:
        self.asked.append(call.request)
        try:
            yield ChatStart("m", "p", "r1")
            for piece in self.pieces:
                yield TextDelta(piece)
            if self.ends:
                said = AssistantMessage("".join(self.pieces), reasoning="why")
                yield ChatEnd(ChatResponse(said, Usage(7, 5), self.stop_reason, model="m", response_id="r1"))
        finally:
            self.closed += 1


def asking(*messages, tools=(WEATHER, CLOCK), choice=None, output=None) -> Call[ChatRequest]:  # noqa: ANN001, ANN002
    """Return a call with these messages, one plain question by default."""
    said = messages or (UserMessage("Is it raining in Oslo?"),)
    return Call(None, ChatRequest(said, tools=tools, tool_choice=choice, output=output), "c1")  # type: ignore[arg-type]


async def events_of(port: LLMPort, call: Call[ChatRequest]) -> list[ChatEvent]:
    """Return every event of a call."""
    async with aclosing(port.stream(call)) as events:
        return [event async for event in events]


def text_told(events: Sequence[ChatEvent]) -> str:
    """Return the text deltas joined."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def response_of(events: Sequence[ChatEvent]) -> ChatResponse:
    """Return the response of the last event."""
    assert isinstance(events[-1], ChatEnd)
    return events[-1].response


@st.composite
def pieces_of(draw: st.DrawFn, value: st.SearchStrategy[object]) -> tuple[object, list[str]]:
    """Draw a value and its JSON, spelt in any way, cut anywhere."""
    made = draw(value)
    raw = json.dumps(made, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return made, [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, lambda x: st.lists(x) | st.dictionaries(TEXT, x)
)


@given(pieces_of(st.fixed_dictionaries({"answer": TEXT})))
async def test_answer_streams_however_cut(drawn: tuple[dict[str, str], list[str]]) -> None:
    """The deltas join to the answer's text, for any text, spelling and cutting of the JSON around it."""
    made, pieces = drawn
    events = await events_of(with_schema_tools(Recited(*pieces)), asking())
    response = response_of(events)
    assert text_told(events) == response.message.content == made["answer"]
    assert response.stop_reason == "stop"
    assert not response.message.tool_calls


@given(pieces_of(st.fixed_dictionaries({"tool": TEXT.filter(bool), "arguments": st.dictionaries(TEXT, JSON)})))
async def test_call_survives_however_cut(drawn: tuple[dict[str, object], list[str]]) -> None:
    """A call comes out ready, once, with its arguments, and nothing of it is told as text."""
    made, pieces = drawn
    events = await events_of(with_schema_tools(Recited(*pieces)), asking())
    ready = [event.call for event in events if isinstance(event, ToolCallReady)]
    response = response_of(events)
    assert (ready[0].name, json.loads(ready[0].arguments)) == (made["tool"], made["arguments"])
    assert response.message.tool_calls == tuple(ready)
    assert response.stop_reason == "tool_calls"
    assert text_told(events) == response.message.content == ""


@given(pieces_of(st.fixed_dictionaries({"answer": JSON})))
async def test_typed_answer_comes_whole(drawn: tuple[dict[str, object], list[str]]) -> None:
    """With an output schema the answer's text is the JSON of its value, a string's too."""
    made, pieces = drawn
    events = await events_of(with_schema_tools(Recited(*pieces)), asking(output=PLACE))
    assert text_told(events) == response_of(events).message.content
    assert json.loads(text_told(events)) == made["answer"]


@pytest.mark.parametrize("length", range(len('{"tool": "weather", "arguments": {"city": "Oslo"}')))
async def test_cut_call_is_never_ready(length: int) -> None:
    """A call that the token limit cut anywhere is not ready, and its arguments are not JSON that a tool accepts."""
    raw = '{"tool": "weather", "arguments": {"city": "Oslo"}}'[:length]
    events = await events_of(with_schema_tools(Recited(raw, stop_reason="length")), asking())
    response = response_of(events)
    assert response.stop_reason == "length"
    assert not any(isinstance(event, ToolCallReady) for event in events)
    for call in response.message.tool_calls:
        assert call.name == "weather"
        with pytest.raises(ValueError, match="."):
            json.loads(call.arguments)
    assert response.message.tool_calls or text_told(events) == raw


async def test_cut_answer_keeps_what_came() -> None:
    """An answer that the token limit cut is the text so far, without half an escape."""
    model = Recited('{"answer": "It rai', "ns \\u26", stop_reason="length")
    events = await events_of(with_schema_tools(model), asking())
    assert text_told(events) == response_of(events).message.content == "It rains "
    assert response_of(events).stop_reason == "length"


async def test_prose_is_an_answer() -> None:
    """A server that ignores the schema and lets the model talk still streams an answer."""
    events = await events_of(with_schema_tools(Recited(" It ", "rains: {x}")), asking())
    assert [event.text for event in events if isinstance(event, TextDelta)] == [" It ", "rains: {x}"]
    assert response_of(events).message.content == " It rains: {x}"


async def test_request_becomes_instruction_and_schema() -> None:
    """The inner port gets no tools, the system message extended, and a schema with a branch for each way on."""
    model = Recited('{"answer": "no"}')
    events = await events_of(with_schema_tools(model), asking(SystemMessage("Be kind."), UserMessage("Rain?")))
    (asked,) = model.asked
    assert asked.tools == ()
    assert asked.tool_choice is None
    system = asked.messages[0]
    assert isinstance(system, SystemMessage)
    assert system.content.startswith("Be kind.\n\nYou have these tools:")
    assert "- weather(city: string): Current weather in a city." in system.content
    assert asked.messages[1] == UserMessage("Rain?")
    assert asked.output is not None
    assert [list(branch["properties"]) for branch in asked.output.schema["oneOf"]] == [
        ["tool", "arguments"],
        ["tool", "arguments"],
        ["answer"],
    ]
    response = response_of(events)
    assert (response.usage, response.model, response.message.reasoning) == (Usage(7, 5), "m", "why")
    assert events[0] == ChatStart("m", "p", "r1")


@pytest.mark.parametrize(
    ("choice", "accepted"),
    [
        (None, {"weather", "clock", "answer"}),
        (ToolChoice("auto"), {"weather", "clock", "answer"}),
        (ToolChoice("required"), {"weather", "clock"}),
        (ToolChoice("tool", "clock"), {"clock"}),
    ],
)
async def test_choice_decides_the_branches(choice: ToolChoice | None, accepted: set[str]) -> None:
    """The schema accepts exactly the replies that the tool choice allows."""
    model = Recited("{}")
    await events_of(with_schema_tools(model), asking(choice=choice))
    assert model.asked[0].output is not None
    replies = {
        "weather": {"tool": "weather", "arguments": {"city": "Oslo"}},
        "clock": {"tool": "clock", "arguments": {}},
        "answer": {"answer": "no"},
        "mixed": {"tool": "weather", "arguments": {"city": "Oslo"}, "answer": "no"},
        "unknown": {"tool": "other", "arguments": {}},
        "misfit": {"tool": "weather", "arguments": {"city": 3}},
    }
    fits = jsonschema_rs.validator_for(model.asked[0].output.schema).is_valid
    assert {name for name, reply in replies.items() if fits(reply)} == accepted


async def test_choice_of_an_unknown_tool_is_refused() -> None:
    """A tool choice that names no tool of the request is an error before anything is sent."""
    model = Recited("{}")
    with pytest.raises(ConfigurationError, match=r"'rain'.*weather, clock"):
        await events_of(with_schema_tools(model), asking(choice=ToolChoice("tool", "rain")))
    assert model.asked == []


def test_references_keep_their_meaning() -> None:
    """Schemas with definitions of one name, recursion, a root reference and a pointer accept what they did."""
    tree: JsonObject = {
        "type": "object",
        "properties": {
            "node": {"$ref": "#/$defs/Node"},
            "same": {"$ref": "#/properties/limit"},
            "limit": {"maximum": 9},
        },
        "$defs": {"Node": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    }
    nested: JsonObject = {
        "type": "object",
        "properties": {
            "node": {"$ref": "#/definitions/Node"},
            "deeper": {"$ref": "#"},
            "$ref": {"enum": [{"$ref": "#/x"}]},
        },
        "definitions": {"Node": {"type": "string"}},
        "additionalProperties": False,
    }
    tools = [ToolSpec("tree", "", tree), ToolSpec("nested", "", nested)]
    envelope = build_envelope(tools, OutputSpec("o", tree), may_answer=True)
    fits = jsonschema_rs.validator_for(envelope.schema).is_valid
    samples: list[object] = [{"node": [[], [[]]]}, {"node": [1]}, {"node": "x"}, {"deeper": {"node": 1}}]
    samples += [
        {"deeper": {"node": "x"}},
        {"same": 10, "limit": 9},
        {"same": 9},
        {"$ref": {"$ref": "#/x"}},
        {"$ref": 1},
    ]
    for tool in tools:
        alone = jsonschema_rs.validator_for(tool.parameters).is_valid
        for sample in samples:
            assert fits({"tool": tool.name, "arguments": sample}) == alone(sample), (tool.name, sample)
    assert [fits({"answer": sample}) for sample in samples[:2]] == [True, False]


@pytest.mark.parametrize("ref", ["#/$defs/Missing", "#/type"])
def test_dangling_reference_is_refused(ref: str) -> None:
    """A reference to nothing names the tool and the reference."""
    tool = ToolSpec("weather", "", {"type": "object", "properties": {"city": {"$ref": ref}}})
    with pytest.raises(ConfigurationError, match=r"tool 'weather'.*" + ref.replace("$", r"\$")):
        build_envelope([tool], None, may_answer=False)


HISTORY = (
    UserMessage("Rain in Oslo?"),
    AssistantMessage("", (ToolCall("a", "weather", '{"city": "Oslo"}'), ToolCall("call_3", "clock"))),
    ToolMessage("a", "snow"),
    ToolMessage("call_3", "no clock here", is_error=True),
)


async def test_history_is_told_as_plain_turns() -> None:
    """Calls become the assistant's JSON, results that follow each other one user turn, ids do not collide."""
    model = Recited('{"tool": "clock", "arguments": {}}')
    events = await events_of(with_schema_tools(model), asking(*HISTORY))
    _, question, said, results = model.asked[0].messages
    assert question == HISTORY[0]
    assert isinstance(said, AssistantMessage)
    assert [json.loads(line)["tool"] for line in text_of(said.content).splitlines()] == ["weather", "clock"]
    assert not said.tool_calls
    assert isinstance(results, UserMessage)
    assert text_of(results.content).splitlines() == [
        'weather({"city": "Oslo"}) returned: snow',
        "clock({}) failed: no clock here",
        "Now answer my question: Rain in Oslo?",
    ]
    assert response_of(events).message.tool_calls[0].id == "call_4"


@pytest.mark.parametrize("call", [asking(*HISTORY, tools=()), asking(*HISTORY, choice=ToolChoice("none"))])
async def test_turn_without_tools_asks_for_prose(call: Call[ChatRequest]) -> None:
    """Without tools the results join the question, no call is shown, and the reply is the answer as it stands."""
    model = Recited('{"answer": 1}')
    events = await events_of(with_schema_tools(model), call)
    (asked,) = model.asked
    assert (asked.tools, asked.tool_choice, asked.output) == ((), None, None)
    (only,) = asked.messages
    assert isinstance(only, UserMessage)
    assert text_of(only.content).startswith('Rain in Oslo?\nweather({"city": "Oslo"}) returned: snow\n')
    assert response_of(events).message.content == '{"answer": 1}'


async def test_pictures_of_a_result_stay() -> None:
    """An image that a tool returned reaches the model beside the text."""
    picture = ImagePart(data=b"png", media_type="image/png")
    said = AssistantMessage("Let me look.", (ToolCall("a", "weather"),))
    model = Recited("{}")
    answer = ToolMessage("a", (TextPart("see: "), picture))
    await events_of(with_schema_tools(model), asking(UserMessage("Rain?"), said, answer))
    shown = model.asked[0].messages[-1]
    assert isinstance(shown, UserMessage)
    assert shown.content == (
        TextPart("weather({}) returned: see: "),
        picture,
        TextPart("Now answer my question: Rain?"),
    )


async def test_conversation_without_tools_is_untouched() -> None:
    """A request that has nothing to do with tools is handed on as the same object."""
    model = Recited("hello")
    call = asking(tools=(), output=PLACE)
    await events_of(with_schema_tools(model), call)
    assert model.asked[0] is call.request


async def test_leaving_early_closes_the_model() -> None:
    """Closing the stream after one delta has closed the inner stream before control returns."""
    model = Recited('{"answer": "a', "b", "c")
    async with aclosing(with_schema_tools(model).stream(asking())) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert model.closed == 1


async def test_missing_end_is_a_broken_stream() -> None:
    """An inner stream that just stops is an error, not an answer."""
    with pytest.raises(StreamBroken):
        await events_of(with_schema_tools(Recited('{"answer": "a"}', ends=False)), asking())


def test_wrapping_twice_is_wrapping_once() -> None:
    """A port that already calls tools through a schema is returned as it is."""
    port = with_schema_tools(Recited())
    assert isinstance(port, SchemaTools)
    assert with_schema_tools(port) is port
