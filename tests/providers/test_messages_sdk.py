"""The official anthropic SDK as referee: it reads the same streams to the same answers; its cloud clients are spoken."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.foundry import AsyncAnthropicFoundry
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    JsonObject,
    ModelSettings,
    Route,
    SystemMessage,
    ToolCall,
    Usage,
    UserMessage,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.model import build_model
from agentkit.providers.profiles import find_profile
from agentkit.testing.context import make_context
from agentkit.testing.loopback import HttpAnswer, LoopbackServer
from agentkit.testing.turns import Turn, sse, write_turn

SSE = {"content-type": "text/event-stream"}
OK = Turn(text="It is forty two.", usage=Usage(12, 7, 3, 2))
WISHES = ModelSettings(max_tokens=50, temperature=0.5, prompt_cache="1h")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
VALUE = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda inner: st.lists(inner, max_size=2))
CALLS = st.lists(st.dictionaries(TEXT, VALUE, max_size=3).map(json.dumps), max_size=3).map(
    lambda given: tuple(ToolCall(f"toolu_{place}", "look_up", arguments) for place, arguments in enumerate(given))
)
TURNS = st.builds(
    Turn,
    text=TEXT,
    calls=CALLS,
    reasoning=TEXT,
    usage=st.builds(Usage, st.integers(100, 900), st.integers(1, 99), st.integers(0, 50), st.integers(0, 50)),
    size=st.integers(1, 9),
).filter(lambda turn: bool(turn.text or turn.calls or turn.reasoning))


async def ours(client: Any, *, stream: bool = True, name: str = "claude-haiku-4-5") -> ChatResponse:
    """Return the answer of a model over this client."""
    model = build_model(find_profile("anthropic"), client=client)
    messages = (SystemMessage("Be brief."), UserMessage("hi"))
    request = ChatRequest(messages, settings=WISHES, stream=stream)
    async with aclosing(
        model.stream(Call(make_context(model), request, "c1", Route(model, name, "anthropic")))
    ) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, ChatEnd)
    return last.response


def same(answer: ChatResponse, theirs: Any) -> None:
    """Check that the SDK's message says what our answer says."""
    blocks = theirs.content
    assert answer.message.content == "".join(block.text for block in blocks if block.type == "text")
    assert answer.message.reasoning == "".join(block.thinking for block in blocks if block.type == "thinking")
    calls = [(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in answer.message.tool_calls] == calls
    usage = theirs.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert answer.usage.input_tokens == usage.input_tokens + read + written
    assert (answer.usage.output_tokens, answer.usage.cache_read_tokens) == (usage.output_tokens, read)
    assert answer.usage.cache_write_tokens == written
    assert answer.raw_stop_reason == theirs.stop_reason
    assert answer.response_id == theirs.id


async def refereed(body: tuple[bytes, ...]) -> None:
    """Read one recorded stream with the SDK's own accumulation and with ours, over the same client."""
    answer = HttpAnswer(headers=SSE, pieces=body)
    async with LoopbackServer([answer]) as server, httpx2.AsyncClient(verify=False) as http:
        client = anthropic.AsyncAnthropic(
            api_key="k", base_url=server.origin, http_client=http, open_telemetry=False, max_retries=0
        )
        asked: Any = {"model": "claude-haiku-4-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        async with client.messages.stream(**asked) as stream:
            theirs = await stream.get_final_message()
        same(await ours(client), theirs)


@settings(max_examples=25, deadline=None)
@given(TURNS)
def test_b21_b45_any_turn_is_read_as_the_sdk_reads_it(turn: Turn) -> None:
    """B12, B13, B21, B45: text, thinking, calls, usage and stop reason are those of the SDK's own accumulator."""
    asyncio.run(refereed(write_turn(turn, "messages")))


def test_server_tools_are_read_as_the_sdk_reads_them() -> None:
    """A stream with a server's tools, citations and usage in both places is the same answer to both readers."""
    search: JsonObject = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    cited: JsonObject = {
        "type": "web_search_result_location",
        "url": "http://x",
        "title": "t",
        "cited_text": "c",
        "encrypted_index": "i",
    }
    start: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    events: list[JsonObject] = [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 25, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": search},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"query":"x"}'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": found},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "", "citations": []}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "So."}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": cited}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "pause_turn", "stop_sequence": None},
            "usage": {"input_tokens": 25, "cache_read_input_tokens": 9, "output_tokens": 15},
        },
        {"type": "message_stop"},
    ]  # fmt: skip
    asyncio.run(refereed(tuple(sse(event, str(event["type"])) for event in events)))


async def test_a_whole_answer_is_read_as_the_sdk_reads_it() -> None:
    """Not streamed, the same turn is the same answer to both, over the SDK's own client."""
    turn = Turn(
        text="Hm.", reasoning="So.", calls=(ToolCall("toolu_1", "f", '{"a": [1]}'),), usage=Usage(40, 5, 10, 20)
    )
    async with (
        LoopbackServer([turn]) as server,
        anthropic.AsyncAnthropic(api_key="k", base_url=server.origin) as client,
    ):
        theirs = await client.messages.create(
            model="claude-haiku-4-5", max_tokens=50, messages=[{"role": "user", "content": "hi"}]
        )
        same(await ours(client, stream=False), theirs)


async def test_vertex_addresses_the_model_in_the_path() -> None:
    """A Vertex client puts the model into the path and the version into the body; the whole turn comes back."""
    async with LoopbackServer([HttpAnswer(headers=SSE, pieces=write_turn(OK, "messages"))]) as server:
        client = anthropic.AsyncAnthropicVertex(
            region="europe-west1", project_id="p1", access_token="token-of-cloud", base_url=server.origin
        )
        answer = await ours(client, name="claude-haiku-4-5@20251001")
        await client.close()
    assert (answer.message.content, answer.usage) == (OK.text, OK.usage)
    (sent,) = server.requests
    model = "/projects/p1/locations/europe-west1/publishers/anthropic/models/claude-haiku-4-5@20251001"
    assert sent.path == f"{model}:streamRawPredict"
    assert sent.headers["authorization"] == "Bearer token-of-cloud"
    assert "model" not in sent.body
    assert sent.body["temperature"] == 0.5
    assert "cache_control" not in sent.body
    assert [change.what for change in answer.adjustments] == ["prompt_cache"]


async def test_bedrock_answers_that_are_not_streamed() -> None:
    """A Bedrock client asked for a whole answer invokes the model without a stream."""
    body = write_turn(OK, "messages", stream=False)
    async with LoopbackServer([HttpAnswer(headers={"content-type": "application/json"}, pieces=body)]) as server:
        client = anthropic.AsyncAnthropicBedrock(api_key="aws-key", aws_region="eu-west-1", base_url=server.origin)
        answer = await ours(client, stream=False, name="anthropic.claude-haiku-4-5-20251001-v1:0")
        await client.close()
    assert (answer.message.content, answer.usage) == (OK.text, OK.usage)
    assert server.requests[0].path.endswith("/invoke")
    assert server.requests[0].body["temperature"] == 0.5


async def test_foundry_is_a_cloud_too() -> None:
    """A Foundry client brings its own key and address."""
    async with LoopbackServer([HttpAnswer(headers=SSE, pieces=write_turn(OK, "messages"))]) as server:
        client = AsyncAnthropicFoundry(api_key="foundry-key", base_url=f"{server.origin}/anthropic/")
        answer = await ours(client)
        await client.close()
    assert answer.message.content == OK.text
    assert server.requests[0].path == "/anthropic/v1/messages"


@pytest.mark.parametrize("stream", [True, False])
async def test_the_sdks_own_guards_are_not_ours(stream: bool) -> None:
    """A large cap, which the SDK refuses for an answer that is not streamed, is the server's to decide."""
    async with LoopbackServer([OK]) as server, anthropic.AsyncAnthropic(api_key="k", base_url=server.origin) as client:
        model = build_model(find_profile("anthropic"), client=client)
        request = ChatRequest((UserMessage("q"),), settings=ModelSettings(max_tokens=64_000), stream=stream)
        call = Call(make_context(model), request, "c1", Route(model, "claude-haiku-4-5", "anthropic"))
        events = [event async for event in model.stream(call)]
    assert isinstance(events[-1], ChatEnd)
    assert server.requests[0].body["max_tokens"] == 64_000


async def test_what_is_refused_here_is_not_sent() -> None:
    """A conversation that the model would refuse is an error that says so, and no request goes out."""
    async with LoopbackServer([OK]) as server, anthropic.AsyncAnthropic(api_key="k", base_url=server.origin) as client:
        model = build_model(find_profile("anthropic"), client=client)
        request = ChatRequest((SystemMessage("only"),))
        call = Call(make_context(model), request, "c1", Route(model, "claude-haiku-4-5", "anthropic"))
        with pytest.raises(ConfigurationError, match="^The conversation holds no user message"):
            await anext(model.stream(call))
    assert not server.requests
