"""Answers' and tools' schemas on their way to a server and back, through the public calls."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from agentkit import Binding, CallRuntime, ModelSettings, UserMessage, ask, tool
from agentkit.catalog import Capabilities, CapabilityTable
from agentkit.core.contracts import ChatRequest, OutputSpec, ToolCall, ToolSpec
from agentkit.errors import ConfigurationError, ContextOverflow
from agentkit.providers.profiles import PROFILES
from agentkit.providers.wire.chat_encode import ChatWriter
from agentkit.providers.wire.schemas import output_shape, tool_shape
from agentkit.testing import LoopbackServer, Turn


class Stop(BaseModel):
    name: str
    minutes: int = 5


class Route(BaseModel):
    stops: list[Stop]
    note: str | None = None


class Tags(BaseModel):
    tags: dict[str, str]


class Tree(BaseModel):
    name: str
    parts: list[Tree] = []


WRITTEN = '{"stops": [{"name": "A", "minutes": null}, {"name": "B", "minutes": 3}], "note": null}'
READ = Route(stops=[Stop(name="A"), Stop(name="B", minutes=3)])


def at(server: LoopbackServer, profile: str, **more: object) -> Binding:
    """Return a binding to the server that speaks as this provider's does."""
    url = server.origin if profile == "anthropic" else server.url
    return Binding("openai:m", base_url=url, api_key="k", profile=replace(PROFILES[profile], elsewhere=""), **more)


def schema_of(body: dict) -> dict | None:
    """Return the schema in a body, wherever its protocol has it."""
    if "output_config" in body:
        return body["output_config"]["format"]["schema"]
    if "text" in body:
        return body["text"]["format"]["schema"]
    return body.get("response_format", {}).get("json_schema", {}).get("schema")


async def test_b39_a_strict_answer_goes_out_and_comes_back() -> None:
    """OpenAI gets every object closed and every property required; its nulls come back as defaults; it is reported."""
    async with LoopbackServer([Turn(text=WRITTEN)]) as server:
        answer = await ask(at(server, "openai"), "Plan.", output=Route)
        body = server.requests[0].body
    assert answer.value == READ
    assert body["response_format"]["json_schema"]["strict"] is True
    stop = schema_of(body)["$defs"]["Stop"]
    assert stop["additionalProperties"] is False and stop["required"] == ["name", "minutes"]
    assert stop["properties"]["minutes"]["type"] == ["integer", "null"]


async def test_the_same_output_is_adapted_once() -> None:
    """Each turn of a conversation reports the schema again, and none adapts it again."""
    output = OutputSpec("o", {"type": "object", "properties": {"a": {"type": "string"}}})
    writer = ChatWriter(PROFILES["openai"], "e", "m")
    request = ChatRequest((UserMessage("q"),), output=output)
    bodies, notes = [], []
    for _ in range(2):
        writer.changes.clear()
        bodies.append(writer.write(request, request.messages, None))
        notes += writer.changes
    assert bodies[0] == bodies[1]
    assert notes[0] is notes[1] and notes[0].kind == "schema" and "$.a: required" in notes[0].why
    assert output.schema == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(("model", "why"), [(Tags, "$.tags: an open map"), (Tree, "$: it contains itself")])
async def test_b40_b41_what_a_server_cannot_enforce_is_asked_for_in_words(model: type, why: str) -> None:
    """Anthropic's servers enforce closed schemas only: others go into the prompt, and the answer is validated here."""
    right = {"tags": {"a": "b"}} if model is Tags else {"name": "a", "parts": [{"name": "b", "parts": []}]}
    async with LoopbackServer([Turn(text=json.dumps(right))]) as server:
        answer = await ask(at(server, "anthropic"), "Plan.", output=model)
        body = server.requests[0].body
    assert answer.value == model.model_validate(right)
    assert "output_config" not in body and '"properties"' in body["system"]
    shape = output_shape(OutputSpec("o", model.model_json_schema()), PROFILES["anthropic"])
    assert shape.note is not None and why in shape.note.why


async def test_b40_an_open_map_is_sent_without_strict_knowingly() -> None:
    """OpenAI gets the schema as it is, not strict, and that is reported; strict=True refuses before sending."""
    async with LoopbackServer([Turn(text='{"tags": {"a": "b"}}')]) as server:
        answer = await ask(at(server, "openai"), "Plan.", output=Tags)
        sent = server.requests[0].body["response_format"]["json_schema"]
    assert answer.value == Tags(tags={"a": "b"}) and sent["strict"] is False
    spec = OutputSpec("tags", Tags.model_json_schema(), True)
    for profile in ("openai", "anthropic", "deepseek"):
        with pytest.raises(ConfigurationError, match="'tags' was asked for with strict=True"):
            output_shape(spec, PROFILES[profile])


def test_strict_tools_where_they_are_to_be_had() -> None:
    """OpenAI holds tools to their schemas by itself, Anthropic when asked; elsewhere asking for it is refused."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    plain, asked = ToolSpec("f", "", schema), ToolSpec("f", "", schema, True)
    loose = ToolSpec("f", "", {"type": "object"})
    openai, anthropic, vllm = PROFILES["openai"], PROFILES["anthropic"], PROFILES["vllm"]
    assert tool_shape(plain, openai).strict is True
    assert tool_shape(plain, openai).parameters["required"] == ["a"]
    assert tool_shape(loose, openai).strict is False and tool_shape(loose, openai).note is not None
    assert tool_shape(ToolSpec("f", "", schema, False), openai) == type(tool_shape(plain, openai))(schema, False)
    assert tool_shape(plain, anthropic).strict is None and tool_shape(plain, anthropic).parameters is schema
    assert tool_shape(asked, anthropic).strict is True and "required" not in tool_shape(asked, anthropic).parameters
    assert tool_shape(plain, vllm).strict is None
    with pytest.raises(ConfigurationError, match="has no strict tools"):
        tool_shape(asked, vllm)


async def test_nulls_of_strict_tool_calls_are_the_defaults_of_the_function() -> None:
    """A strict server writes null for a parameter that is left out; the function gets its own default."""
    got = []

    @tool(effect="read")
    async def wait(name: str, minutes: int = 5, note: str | None = "none") -> str:
        """Wait at a stop."""
        got.append((name, minutes, note))
        return "waited"

    call = ToolCall("c1", "wait", '{"name": "A", "minutes": null, "note": null}')
    async with LoopbackServer([Turn(calls=(call,)), Turn(text="done")]) as server, CallRuntime() as calls:
        await calls.run(at(server, "openai"), "Wait.", [wait])
        parameters = server.requests[0].body["tools"][0]["function"]["parameters"]
    assert parameters["required"] == ["name", "minutes", "note"]
    assert got == [("A", 5, None)]


async def test_a_model_known_to_enforce_no_schema_is_asked_in_words() -> None:
    """Known to lack structured output, it gets the schema in its prompt and no response_format."""
    table = CapabilityTable().with_model("openai", "m", Capabilities(structured_output=False))
    async with LoopbackServer([Turn(text=WRITTEN)]) as server, CallRuntime(capabilities=table) as calls:
        answer = await calls.ask(at(server, "openai"), "Plan.", output=Route)
        body = server.requests[0].body
    assert answer.value == READ
    assert "response_format" not in body and "JSON Schema" in body["messages"][0]["content"]


async def test_a_cap_above_what_the_model_writes_is_lowered() -> None:
    """The server gets the model's own limit instead of a refusal waiting to happen; a lower cap stays as it is."""
    table = CapabilityTable().with_model("openai", "m", Capabilities(max_output_tokens=100))
    async with LoopbackServer([Turn(text="x")]) as server, CallRuntime(capabilities=table) as calls:
        for asked in (7, 101, None):
            await calls.ask(at(server, "openai"), "q", settings=ModelSettings(max_tokens=asked))
        sent = [request.body.get("max_completion_tokens") for request in server.requests]
    assert sent == [7, 100, None]


async def test_a_conversation_that_surely_does_not_fit_is_not_sent() -> None:
    """Words are counted only when the body is large; what may fit is the server's to judge."""
    table = CapabilityTable().with_model("openai", "m", Capabilities(context_window=50))
    async with LoopbackServer([Turn(text="x")]) as server, CallRuntime(capabilities=table) as calls:
        model = at(server, "openai", fallback=[at(server, "openai")])
        for fits in ("word " * 49, "x" * 5_000, "日本語" * 500):
            await calls.ask(model, fits)
        sent = len(server.requests)
        with pytest.raises(ContextOverflow, match="at least 60 tokens, and the window of openai:m holds 50") as raised:
            await calls.ask(at(server, "openai"), "words " * 60)
        assert len(server.requests) == sent == 3
    assert raised.value.accepted is False and raised.value.cost is not None
