"""B34: tools whose names servers refuse, by whatever protocol, keep their own names on this side of the wire."""

from __future__ import annotations

from contextlib import aclosing
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    JsonObject,
    Route,
    ToolCall,
    ToolCallDelta,
    ToolCallReady,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
    WireProtocol,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.model import build_model
from agentkit.providers.names import aliases_of, wire_name
from agentkit.providers.profiles import find_profile
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

ODD = ("crm__" + "find_customer_by_" * 4, "Open Ticket", "files.read", "größe", "a/b:c", "")


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "does", {"type": "object", "properties": {}})


@given(st.text(max_size=90), st.text(max_size=90))
def test_aliases_are_taken_stable_and_apart(one: str, other: str) -> None:
    """Every alias is one that servers take, the same each time; a good name stays; two names never share one."""
    for name in (one, other):
        alias = wire_name(name)
        assert alias == wire_name(name)
        assert 1 <= len(alias) <= 64
        assert alias.isascii()
        assert set(alias) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
        assert wire_name(alias) == alias
    if one != other and wire_name(one) != other and wire_name(other) != one:
        assert wire_name(one) != wire_name(other)


def test_two_names_with_one_alias_are_refused() -> None:
    """A tool that is called what another one's alias is would get its calls; that is told before anything is sent."""
    with pytest.raises(ConfigurationError, match="Open Ticket"):
        aliases_of([spec("Open Ticket"), spec(wire_name("Open Ticket"))])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
async def test_b34_odd_names_go_and_come_back(protocol: WireProtocol, stream: bool) -> None:
    """The server sees aliases in tools, choice and history; events and the message have the tools' own names."""
    tools = (*map(spec, ODD), spec("plain"))
    history = (
        UserMessage("hi"),
        AssistantMessage("", (ToolCall("c1", "files.read"), ToolCall("c2", "gone from the tools"))),
        ToolMessage("c1", "1"),
        ToolMessage("c2", "2"),
    )
    request = ChatRequest(history, tools, tool_choice=ToolChoice("tool", "files.read"), stream=stream)
    turn = Turn(calls=tuple(ToolCall(f"n{place}", wire_name(tool.name)) for place, tool in enumerate(tools)))
    async with LoopbackServer([turn]) as server:
        profile = replace(find_profile("openai-compatible"), null_content="null")
        model = build_model(profile, base_url=server.url, protocol=protocol)
        async with aclosing(model.stream(Call(None, request, "c", Route(model, "m", "x")))) as stream_:
            events: list[ChatEvent] = [event async for event in stream_]
        await model.aclose()
    names = [tool.name for tool in tools]
    last = events[-1]
    assert isinstance(last, ChatEnd)
    assert [call.name for call in last.response.message.tool_calls] == names
    assert [event.call.name for event in events if isinstance(event, ToolCallReady)] == names
    assert {event.name for event in events if isinstance(event, ToolCallDelta)} == set(names)
    sent = str(server.requests[0].body)
    assert all(wire_name(name) in sent for name in (*names, "gone from the tools"))
    assert "files.read" not in sent
    assert "gone from" not in sent
    listed = cast("list[JsonObject]", server.requests[0].body["tools"])
    assert len(listed) == len(tools)


async def test_good_names_cost_nothing() -> None:
    """With names that servers take the events are those of the wire, not copies through a generator of names."""
    async with LoopbackServer([Turn(text="hi")]) as server:
        model = build_model(find_profile("openai"), base_url=server.url)
        tools = (spec("plain"),)
        events = model.stream(Call(None, ChatRequest((UserMessage("x"),), tools), "c", Route(model, "m", "x")))
        assert events.__qualname__ == "HttpModel._native"
        await events.aclose()
        await model.aclose()
