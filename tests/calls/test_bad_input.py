"""What a newcomer types first is refused by name, with what to write instead."""

from __future__ import annotations

import pytest

from agentkit import Agent, Binding, CallRuntime, ModelSettings, Scope, UserMessage, ask, run, tool
from agentkit.errors import ConfigurationError

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
