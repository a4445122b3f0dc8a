"""The public usage of the first page, checked by type checkers and never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal

from typing_extensions import assert_type

from agentkit import (
    Agent,
    AgentResult,
    Answer,
    Binding,
    Budget,
    CallRuntime,
    ReAct,
    RunContext,
    Scope,
    ask,
    run,
    tool,
)
from agentkit.core.contracts import Call, CallNext, ChatEvent, ChatRequest


@dataclass
class City:
    """A city."""

    name: str


@tool(effect="read")
async def weather(city: str) -> str:
    """Return the weather."""
    return city


@tool
def plain(number: int) -> int:
    """Return the number."""
    return number


async def layer(
    call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent]
) -> AsyncGenerator[ChatEvent, None]:
    """Pass everything through."""
    async with aclosing(call_next(call)) as events:
        async for event in events:
            yield event


async def usage() -> None:
    """Use everything once."""
    binding = Binding("openai:gpt-5.2", price="1.25/10")
    assert_type(await ask(binding, "What is 6 * 7?"), Answer[str])
    assert_type(await ask(binding, "Capital of France?", output=City), Answer[City])
    assert_type((await ask(binding, "Capital?", City)).value, City)
    assert_type((await run(binding, "Umbrella?", tools=[weather, plain])).cost, Decimal | None)
    assert_type(await run(binding, "City?", output=City), Answer[City])
    assert_type(plain(3), int)
    async with CallRuntime(budget=Budget("5.00"), store="sqlite:runs.db", chat_middleware=[layer]) as calls:
        ctx = calls.context("req-1", Scope(tenant="acme", user="u1"), budget=Budget("2.00", on_exceeded="stop"))
        assert_type(ctx, RunContext)
        assert_type(ctx.child(name="a"), RunContext)
        researcher = Agent("researcher", binding, tools=[weather], cognition=ReAct(max_turns=12))
        lead = Agent("lead", binding, output=City, tools=[researcher.as_tool(), weather])
        assert_type(await lead.run("Compare ...", ctx), AgentResult[City])
        assert_type((await lead.resume("req-1", ctx)).output, City)
        async with calls.stream(binding, "Go") as events:
            async for event in events:
                print(event)
