"""Claude over the wire, from `ask` and `run` to the bytes: pauses, refusals, caching and its price, servers' tools."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import anthropic
import pytest

from agentkit import Agent, Binding, CallRuntime, ModelSettings, ReAct, UserMessage, ask, run, tool
from agentkit.core.contracts import AssistantMessage, ChatEnd, JsonObject, ModelEvent, TextDelta, Usage
from agentkit.errors import ConfigurationError, Refused
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer, Received
from agentkit.testing.turns import Turn, sse

MODEL = "anthropic:claude-sonnet-4-5"
SEARCH: JsonObject = {"type": "web_search_20260209", "name": "web_search"}
USED: JsonObject = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}
FOUND: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SIGNED: JsonObject = {"type": "thinking", "thinking": "", "signature": "c2ln+/="}


def said(text: str) -> JsonObject:
    """Return a block of text."""
    return {"type": "text", "text": text}


def answered(*blocks: JsonObject, reason: str = "end_turn", streamed: bool = True, **usage: Any) -> HttpAnswer:
    """Return an answer of these blocks, each in one piece."""
    message: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }
    end: JsonObject = {"stop_reason": reason, "stop_sequence": None}
    if not streamed:
        message = {
            **message,
            **end,
            "content": list(blocks),
            "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
        }
        return HttpAnswer(headers={"content-type": "application/json"}, pieces=(json.dumps(message).encode(),))
    events: list[JsonObject] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    pieces = tuple(sse(event, str(event["type"])) for event in events)
    return HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces)


def bound(server: LoopbackServer, **more: Any) -> Binding:
    """Return a binding to Claude as the SDK's client reaches it, here on loopback."""
    return Binding(MODEL, base_url=server.origin, api_key="key-for-loopback", price="3/15", **more)


async def test_a_pause_on_the_wire_is_one_answer() -> None:
    """A question whose answer pauses twice is asked with the parts as they came, and answered with their whole text."""
    script = [
        answered(said("I look. "), USED, reason="pause_turn"),
        answered(FOUND, said("Low. "), USED, reason="pause_turn"),
        answered(FOUND, said("High at noon.")),
    ]
    wishes = ModelSettings(extra={"tools": [SEARCH]})
    async with LoopbackServer(script) as server:
        answer = await ask(bound(server), "When is the tide high?", settings=wishes)
    assert (answer.text, answer.stop_reason, answer.calls) == ("I look. Low. High at noon.", "stop", 3)
    assert answer.usage == Usage(30, 15)
    assert all(request.body["tools"] == [SEARCH] for request in server.requests)
    question = {"role": "user", "content": [said("When is the tide high?")]}
    first, second = [said("I look. "), USED], [FOUND, said("Low. "), USED]
    assert [request.body["messages"] for request in server.requests] == [
        [question],
        [question, {"role": "assistant", "content": first}],
        [question, {"role": "assistant", "content": [*first, *second]}],
    ]


async def test_b44_b45_thinking_goes_through_the_tool_loop() -> None:
    """B44, B45: signed thinking, also empty, stands before its call in the next request, and a server's call beside it."""

    @tool(effect="read")
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call: JsonObject = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
    redacted: JsonObject = {"type": "redacted_thinking", "data": "b64=="}
    first = [SIGNED, redacted, said("Let me see."), USED, SIGNED, call]
    async with LoopbackServer([answered(*first, reason="tool_use"), answered(FOUND, said("3"))]) as server:
        answer = await run(bound(server), "1 + 2?", [add])
    assert answer.text == "3"
    _, model, results = server.requests[1].body["messages"]  # type: ignore[misc]
    assert model == {"role": "assistant", "content": first}
    assert results["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}]  # type: ignore[index,call-overload]


async def test_an_agent_pauses_streamed_as_not_streamed() -> None:
    """The deltas of a stream that pauses join to the text that is not streamed; each part is a turn."""

    def by_request(received: Received) -> Given:
        went_on = len(received.body["messages"]) > 1  # type: ignore[arg-type]
        return answered(FOUND, said("Noon.")) if went_on else answered(said("Hm. "), USED, reason="pause_turn")

    async with LoopbackServer(by_request) as server, CallRuntime() as calls:
        agent = Agent("a", bound(server), cognition=ReAct(max_turns=3))
        async with agent.stream("When?", calls.context("r1")) as events:
            told = [event.event async for event in events if isinstance(event, ModelEvent)]
        whole = await agent.run("When?", calls.context("r2"))
    text = "".join(event.text for event in told if isinstance(event, TextDelta))
    assert text == events.result.text == whole.text == "Hm. Noon."
    assert sum(isinstance(event, ChatEnd) for event in told) == 2
    assert events.result.messages == whole.messages


async def test_b35_a_refusal_is_billed_and_named() -> None:
    """B35: a refusal ends the question with its category and its explanation, and what it used is charged."""
    end: JsonObject = {
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "bio", "explanation": "It could do harm."},
    }
    start: JsonObject = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1000}}}
    events: list[JsonObject] = [
        start,
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 0}},
        {"type": "message_stop"},
    ]
    pieces = tuple(sse(event, str(event["type"])) for event in events)
    async with LoopbackServer([HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=pieces)]) as server:
        with pytest.raises(Refused, match="It could do harm") as raised:
            await ask(bound(server), "How?", dict)
        assert len(server.requests) == 1
    assert raised.value.code == "bio"
    assert raised.value.known_cost == Decimal("0.003")


@pytest.mark.parametrize("streamed", [True, False])
async def test_b21_cache_writes_are_priced_by_how_long_they_last(streamed: bool) -> None:
    """B21: five minutes and an hour of cache are counted apart and charged at their own list prices."""
    script = [
        answered(
            said("ok"),
            streamed=streamed,
            input_tokens=1_000,
            cache_read_input_tokens=10_000,
            cache_creation_input_tokens=3_000,
            cache_creation={"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 2_000},
        )
    ]
    async with LoopbackServer(script) as server:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=server.origin) as client:
            price = {"input": "3", "output": "15", "cache_read": "0.30", "cache_write": "3.75", "cache_write_1h": "6"}
            binding = Binding(MODEL, client=client, price=price)
            answer = await ask(binding, "q", settings=ModelSettings(prompt_cache="1h"), instructions="Be kind.")
    assert answer.usage == Usage(14_000, 5, 10_000, 3_000, 2_000)
    millionth = Decimal("0.000001")
    parts = 1_000 * 3 + 10_000 * Decimal("0.3") + 1_000 * Decimal("3.75") + 2_000 * 6 + 5 * 15
    assert answer.cost == parts * millionth


async def test_b45_another_server_gets_no_signatures() -> None:
    """B45: a conversation carried to another address goes without the first one's blocks, or not at all, as set."""
    async with LoopbackServer([answered(SIGNED, said("One."))]) as first, LoopbackServer([Turn(text="Two.")]) as second:
        begun = await ask(bound(first), "Say one.")
        carried = [*begun.messages, UserMessage("Say two.")]
        answer = await ask(bound(second), carried)
        with pytest.raises(ConfigurationError, match="replay='drop'"):
            await ask(bound(second), carried, settings=ModelSettings(replay="refuse"))
    assert answer.text == "Two."
    assert len(second.requests) == 1
    assert second.requests[0].body["messages"][1] == {"role": "assistant", "content": [said("One.")]}  # type: ignore[index,call-overload]
    assert isinstance(begun.messages[-1], AssistantMessage)
