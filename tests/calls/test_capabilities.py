"""What a model is known to lack stops a run before anything is sent and before any tool ran."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from agentkit import Agent, Binding, CallRuntime, ModelSettings, ToolCall, UserMessage, tool
from agentkit.catalog import Capabilities, CapabilityTable
from agentkit.core.contracts import FilePart, ImagePart, TextPart, ToolChoice
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import CapabilityMissing, ConfigurationError
from agentkit.testing import ScriptedModel

PICTURE = (UserMessage((TextPart("What is this?"), ImagePart(url="https://example.org/cat.png"))),)
PAPER = (UserMessage((TextPart("Sum it up."), FilePart(data=b"%PDF-", name="a.pdf"))),)
NOTHING = Capabilities(
    tools=False, vision=False, files=False, structured_output=False, reasoning_efforts=(), required_tools=False
)


class City(BaseModel):
    name: str


def runtime(known: Capabilities, *names: str) -> CallRuntime:
    """Return a runtime that knows the same of every scripted model of these names."""
    table = CapabilityTable()
    for name in names or ("scripted",):
        table = table.with_model("scripted", name, known)
    return CallRuntime(capabilities=table, budget=Budget("1.00"))


@pytest.mark.parametrize(
    ("known", "capability", "prompt", "options"),
    [
        (Capabilities(vision=False), "vision", PICTURE, {}),
        (Capabilities(files=False), "files", PAPER, {}),
        (
            Capabilities(reasoning_efforts=("low", "high")),
            "reasoning_efforts",
            "q",
            {"settings": ModelSettings(reasoning_effort="max")},
        ),
        (
            Capabilities(reasoning_efforts=()),
            "reasoning_efforts",
            "q",
            {"settings": ModelSettings(reasoning_effort="low")},
        ),
    ],
    ids=["image", "file", "effort", "no effort"],
)
@pytest.mark.parametrize("fresh", [Capabilities(), None], ids=["unknown", "unlisted"])
async def test_a_known_no_is_refused_and_the_unknown_passes(known, capability, prompt, options, fresh):
    """The error names capability, model and what to change; nothing is sent or charged. Unknown is not no."""
    model = ScriptedModel("a cat")
    async with runtime(known) as calls:
        with pytest.raises(CapabilityMissing, match="scripted:scripted") as raised:
            await calls.ask(Binding(model), prompt, **options)
    assert (raised.value.capability, raised.value.model) == (capability, "scripted")
    assert isinstance(raised.value, ConfigurationError)
    assert not model.requests and raised.value.cost == 0
    async with runtime(fresh) if fresh is not None else CallRuntime() as calls:
        assert (await calls.ask(Binding(model), prompt, **options)).text == "a cat"


async def test_an_unsupported_effort_names_those_that_are():
    """The message lists the efforts the model takes."""
    async with runtime(Capabilities(reasoning_efforts=("low", "high"))) as calls:
        with pytest.raises(CapabilityMissing, match="it takes 'low', 'high'"):
            await calls.ask(Binding(ScriptedModel("x")), "q", settings=ModelSettings(reasoning_effort="minimal"))


async def test_tools_are_missed_before_any_of_them_runs():
    """An agent whose model calls no tools fails in its first turn, its fallbacks looked at; no tool ran."""
    ran = []

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        ran.append(what)
        return "seen"

    first = ScriptedModel([ToolCall("c", "look", '{"what": "x"}'), "done"], name="first")
    second = ScriptedModel([ToolCall("c", "look", '{"what": "x"}'), "done"], name="second")
    binding = Binding(first, fallback=[Binding(second)])
    async with runtime(Capabilities(tools=False), "first", "second") as calls:
        agent = Agent("looker", binding, tools=[look])
        with pytest.raises(CapabilityMissing, match=r"scripted:first cannot call tools.*\+schema"):
            await agent.run("Look.", calls.context("r1"))
        assert not (ran or first.requests or second.requests)
    async with runtime(Capabilities(tools=False), "first") as calls:
        result = await Agent("looker", binding, tools=[look]).run("Look.", calls.context("r2"))
    assert result.output == "done" and ran == ["x"]
    assert not first.requests and len(second.requests) == 2


async def test_a_fallback_that_lacks_something_is_skipped():
    """When the first model fails, the one that cannot see the image is passed over for the one that can."""
    from agentkit.errors import Overloaded

    first = ScriptedModel([Overloaded("busy", retryable=False)], name="first")
    blind, seeing = ScriptedModel("no", name="blind"), ScriptedModel("a cat", name="seeing")
    binding = Binding(first, fallback=[Binding(blind), Binding(seeing)])
    async with runtime(Capabilities(vision=False), "blind") as calls:
        assert (await calls.ask(binding, PICTURE)).text == "a cat"
    assert not blind.requests


async def test_a_required_call_needs_a_model_that_can_be_held_to_it():
    """`tool_choice` required or named is refused where it is known to be ignored; auto is not."""
    from agentkit.catalog import missing_capability
    from agentkit.core.contracts import ChatRequest, Route, ToolSpec

    spec = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
    route = Route(ScriptedModel("x"), "m", "p", capabilities=Capabilities(tools=True, required_tools=False))
    for choice, found in [
        (ToolChoice("required"), "required_tools"),
        (ToolChoice("tool", "look"), "required_tools"),
        (ToolChoice("auto"), None),
        (ToolChoice("none"), None),
        (None, None),
    ]:
        error = missing_capability(route, ChatRequest((UserMessage("q"),), (spec,), choice))
        assert (error.capability if error else None) == found


async def test_a_schema_is_never_missing_and_knowing_nothing_is_no_hindrance():
    """Where no schema is enforced it goes another way; a plain question needs nothing at all."""
    async with runtime(NOTHING) as calls:
        answer = await calls.ask(Binding(ScriptedModel('{"name": "Paris"}')), "Capital?", output=City)
    assert answer.value == City(name="Paris")


async def test_rows_of_a_provider_do_not_hold_for_another_server():
    """`base_url` of another server makes everything unknown, unless the user says what is known of that model."""
    from agentkit.testing import LoopbackServer, Turn

    async with LoopbackServer([Turn(text="a cat")]) as server:
        elsewhere = Binding("openai:gpt-3.5-turbo", base_url=server.url, api_key="k")
        async with CallRuntime() as calls:
            assert (await calls.ask(elsewhere, PICTURE)).text == "a cat"
            with pytest.raises(CapabilityMissing, match="reads no images"):
                await calls.ask(Binding("openai:gpt-3.5-turbo", api_key="k"), PICTURE)
        table = CapabilityTable().with_model("openai", "gpt-3.5-turbo", Capabilities(vision=False))
        async with CallRuntime(capabilities=table) as calls:
            with pytest.raises(CapabilityMissing, match="reads no images"):
                await calls.ask(elsewhere, PICTURE)
        assert len(server.requests) == 1


async def test_tools_through_a_schema_count_as_tools():
    """A profile that makes tool calls through a schema needs a schema of the server, not tools of the model."""
    from agentkit.testing import LoopbackServer, Turn

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        return "seen"

    table = CapabilityTable().with_model("openai", "tiny", Capabilities(tools=False, structured_output=True))
    async with LoopbackServer([Turn(text='{"answer": "fine"}')]) as server, CallRuntime(capabilities=table) as calls:
        made = Binding("openai:tiny", base_url=server.url, api_key="k", profile="llamacpp+schema")
        assert (await calls.run(made, "q", [look])).text == "fine"
        with pytest.raises(CapabilityMissing, match="cannot call tools"):
            await calls.run(Binding("openai:tiny", base_url=server.url, api_key="k"), "q", [look])


async def test_calls_side_by_side_are_asked_for_only_where_they_can_be():
    """A model known to make one call at a time refuses the wish for several; without the wish, and unknown, it runs."""

    @tool(effect="read")
    async def look(place: str) -> str:
        """Look somewhere."""
        return place

    wish = ModelSettings(parallel_tool_calls=True)
    model = ScriptedModel(["done"], repeat_last=True)
    async with runtime(Capabilities(parallel_tools=False)) as calls:
        with pytest.raises(CapabilityMissing, match="parallel_tool_calls=True") as raised:
            await calls.run(Binding(model), "q", [look], settings=wish)
        assert raised.value.capability == "parallel_tools"
        assert not model.requests
        assert (await calls.run(Binding(model), "q", [look])).text == "done"
        assert (await calls.ask(Binding(model), "q", settings=wish)).text == "done"
    async with runtime(Capabilities()) as calls:
        assert (await calls.run(Binding(model), "q", [look], settings=wish)).text == "done"
