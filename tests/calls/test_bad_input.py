"""What a newcomer types first is refused by name, with what to write instead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agentkit import Agent, Binding, CallRuntime, ModelSettings, Scope, UserMessage, ask, run, tool
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import find_profile
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

MODEL = Binding("scripted:Fine.")


@tool
def lookup(word: str) -> str:
    """Look a word up."""
    return word


async def test_an_amount_is_no_budget() -> None:
    """`budget="0.05"` names the Budget to write, wherever it is passed."""
    with pytest.raises(ConfigurationError, match=r"Budget\('0.05'\)"):
        await ask(MODEL, "Hi", budget="0.05")
    async with CallRuntime() as calls:
        with pytest.raises(ConfigurationError, match=r"Budget\('0.05'\)"):
            calls.context("r", Scope(tenant="t"), budget="0.05")
        with pytest.raises(ConfigurationError, match=r"Budget\('0.05'\)"):
            await Agent("a", MODEL).run("Hi", calls.context(), budget="0.05")


async def test_one_tool_is_no_list_of_tools() -> None:
    """`tools=lookup` names the list to write."""
    with pytest.raises(ConfigurationError, match=r"tools="):
        await run(MODEL, "Hi", tools=lookup)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1),
        ("max_tokens", True),
        ("temperature", "hot"),
        ("top_p", -0.1),
        ("stop", "END"),
        ("stop", ("",)),
    ],
)
def test_settings_that_mean_nothing_are_named(field: str, value: object) -> None:
    """Each bad knob is refused with its name."""
    with pytest.raises(ConfigurationError, match=field):
        ModelSettings(**{field: value})


async def test_a_message_of_no_text_is_named() -> None:
    """Content that is neither text nor parts is refused with its place."""
    with pytest.raises(ConfigurationError, match=r"prompt\[0\].content"):
        await ask(MODEL, [UserMessage({"a": 1})])


def test_credentials_in_a_url_are_refused_without_showing_them() -> None:
    """A key belongs into api_key=, and the error does not repeat it."""
    with pytest.raises(ConfigurationError, match="api_key=") as caught:
        Binding("openai:m", base_url="http://user:hunter22@127.0.0.1:8000/v1")
    assert "hunter22" not in str(caught.value)


async def test_a_profile_of_ones_own() -> None:
    """A dialect written by the user names server, key and habits; list prices of a provider do not go with it."""
    profile = replace(find_profile("vllm"), name="mine", rejects=frozenset({"seed"}))
    async with LoopbackServer([Turn(text="hi")]) as server:
        binding = Binding("openai:gpt-5.2", profile=replace(profile, base_url=server.url))
        async with CallRuntime() as calls:
            answer = await calls.ask(binding, "hi", settings=ModelSettings(seed=3))
    assert (answer.text, answer.cost, answer.cost_complete) == ("hi", None, False)
    assert "seed" not in server.requests[0].body
    with pytest.raises(ConfigurationError, match="Profile"):
        Binding("openai:x", profile=7)  # type: ignore[arg-type]


def test_an_address_shows_without_its_query() -> None:
    """A query may hold a key, so a binding's repr leaves it out."""
    binding = Binding("openai:m", base_url="https://h.test/v1?api-key=topsecret")
    assert repr(binding) == "Binding('openai:m', base_url='https://h.test/v1')"
