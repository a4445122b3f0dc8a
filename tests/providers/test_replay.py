"""Opaque items go back unchanged to the model that made them; to any other they do not go, and that is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    Call,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    Message,
    ModelSettings,
    OpaqueItem,
    Route,
    ToolCall,
    ToolMessage,
    UserMessage,
    decode_data,
    encode_data,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.model import build_model
from agentkit.providers.profiles import PROFILES
from agentkit.providers.wire.chat_decode import ECHO_KIND
from agentkit.providers.wire.messages_decode import BLOCKS_KIND
from agentkit.providers.wire.replay import Replay
from agentkit.testing import make_context
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

THINKING = Turn(reasoning="Hm, let me see.", calls=(ToolCall("c1", "add", "{}"),), signature="c2VjcmV0IHNpZw==")


async def asked(
    server: LoopbackServer,
    messages: tuple[Message, ...],
    profile: str = "anthropic",
    model: str = "thinker",
    **settings: object,
) -> ChatResponse:
    """Return the answer of this profile's model at this server."""
    port = build_model(PROFILES[profile], base_url=server.url, api_key="key-for-loopback")
    request = ChatRequest(messages, settings=ModelSettings(max_tokens=50, **settings))  # type: ignore[arg-type]
    call = Call(make_context(port), request, "call-1", Route(port, model, profile))
    try:
        events = [event async for event in port.stream(call)]
    finally:
        await port.aclose()
    assert isinstance(events[-1], ChatEnd)
    return events[-1].response


def continued(message: AssistantMessage, answer: Message | None = None) -> tuple[Message, ...]:
    """Return a conversation that goes on after this turn of the model."""
    results = tuple(ToolMessage(call.id, "42") for call in message.tool_calls)
    return (UserMessage("What is it?"), message, *results, answer or UserMessage("And?"))


@pytest.mark.parametrize(("profile", "kind"), [("anthropic", BLOCKS_KIND), ("deepseek", ECHO_KIND)])
async def test_items_go_back_to_their_owner_after_a_checkpoint(profile: str, kind: str) -> None:
    """What was stored and read again goes back as it came, also when the server answers under a dated model name."""
    async with LoopbackServer([replace(THINKING, model="thinker-2026-03-01")]) as server:
        first = await asked(server, (UserMessage("What is it?"),), profile)
        stored = decode_data(encode_data("message", first.message), "message", AssistantMessage)
        second = await asked(server, continued(stored), profile)
    assert [item.kind for item in stored.opaque] == [kind]
    assert first.model == "thinker-2026-03-01"
    wire = str(server.requests[1].body)
    assert THINKING.reasoning in wire
    assert (THINKING.signature in wire) == (profile == "anthropic")
    assert second.adjustments == ()


@pytest.mark.parametrize(
    ("profile", "model"), [("deepseek", "thinker"), ("anthropic", "another"), ("openai", "thinker"), ("vllm", "x")]
)
async def test_others_items_are_left_out_and_told_once(profile: str, model: str) -> None:
    """Another model, protocol or server gets none of it; one adjustment a request says how many, and whose."""
    async with LoopbackServer([THINKING]) as server:
        first = await asked(server, (UserMessage("What is it?"),))
        foreign = OpaqueItem(("https://elsewhere.example/v1", "m"), "responses.items", [{"id": "rs_1"}])
        messages = continued(first.message, AssistantMessage("So it is.", opaque=(foreign, foreign)))
        for _ in range(2):
            answer = await asked(server, (*messages, UserMessage("And?")), profile, model)
            (told,) = answer.adjustments
            assert told.kind == "replay"
            assert told.what.startswith("3 items of 'thinker' at ")
            assert "'m' at https://elsewhere.example/v1" in told.what
    for received in server.requests[1:]:
        assert THINKING.reasoning not in str(received.body)
        assert THINKING.signature not in str(received.body)
        assert "rs_1" not in str(received.body)


@pytest.mark.parametrize(("profile", "model"), [("deepseek", "thinker"), ("anthropic", "another")])
async def test_refusing_ends_before_anything_is_sent(profile: str, model: str) -> None:
    """With replay="refuse" a conversation that would lose items is an error, each time, and no request."""
    async with LoopbackServer([THINKING]) as server:
        first = await asked(server, (UserMessage("What is it?"),))
        port = build_model(PROFILES[profile], base_url=server.url, api_key="key-for-loopback")
        request = ChatRequest(continued(first.message), settings=ModelSettings(max_tokens=50, replay="refuse"))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="1 item of 'thinker' at .*replay='drop'"):
                await anext(port.stream(Call(make_context(port), request, "c", Route(port, model, profile))))
        await asked(server, continued(first.message), replay="refuse")
        await port.aclose()
    assert len(server.requests) == 2


def test_a_conversation_without_others_items_is_not_walked() -> None:
    """The usual case costs the same whatever the length of the conversation."""

    def never() -> Iterator[Message]:
        raise AssertionError("the conversation was walked")
        yield

    rule = Replay("http://e", "m", "kind")
    mine = OpaqueItem(("http://e", "m"), "kind", {"signature": "x"})
    assert list(rule.own(AssistantMessage("hi", opaque=(mine,)))) == [mine]
    assert rule.left_out(never(), "refuse") == ()


def test_keys_in_an_address_are_not_told() -> None:
    """The address of the owner is named without what may be a key in it."""
    rule = Replay("http://e", "m", "kind")
    message = AssistantMessage("", opaque=(OpaqueItem(("https://x.example/v1?key=verysecret", "m"), "kind", 1),))
    assert list(rule.own(message)) == []
    (told,) = rule.left_out([message], None)
    assert isinstance(told, Adjustment)
    assert "verysecret" not in told.what
