"""The tools of an agent: wrapped, ordered, found, and refused."""

from __future__ import annotations

import pytest

from agentkit import Agent, Binding
from agentkit.errors import ConfigurationError
from agentkit.tools import Tool, Toolbox, tool


@tool
async def weather(city: str, days: int = 1) -> str:
    """Current weather in a city.

    Longer words that the model reads too.
    """
    return f"{city}: sun for {days}"


def plain(x: int) -> int:
    """Do it."""
    return x


def silent(x: int) -> int:
    return x


def test_tools_are_wrapped_found_and_ordered():
    """Plain functions become tools; specs keep the given order and are made once."""
    box = Toolbox([weather, plain])
    assert [spec.name for spec in box.specs] == ["weather", "plain"] and len(box) == 2
    assert box.specs is box.specs and box.get("weather") is weather and box.get("nope") is None
    assert Toolbox().specs == () and Toolbox(iter([plain])).get("plain").function is plain


def test_an_unknown_name_is_answered_with_the_nearest_first():
    """The model reads which tools there are, the likely one first."""
    names = ["read_file", "list_rows", "write_file"]
    box = Toolbox([Tool(plain, name=name) for name in names])
    told = box.unknown("writefile")
    assert told == "There is no tool 'writefile'. Available: write_file, read_file, list_rows."
    assert box.unknown("zzz") == "There is no tool 'zzz'. Available: read_file, list_rows, write_file."
    assert Toolbox().unknown("x") == "There is no tool 'x', and no other one: answer without tools."


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        (
            [weather, Tool(plain, name="weather")],
            "Two tools are named 'weather': tool\\('weather'.*and tool\\('weather'",
        ),
        ([plain, 3], r"tools\[1\] is 3"),
        ([dict], r"tools\[0\] is <class 'dict'>"),
        ("weather", "pass a list"),
        (weather, "pass a list"),
        ({"a": plain}, "pass a list"),
        ([silent], "'silent' has no description"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_wrong_toolboxes_are_refused(tools, reason):
    """Two tools of one name and what is no tool are ConfigurationErrors that name them."""
    with pytest.raises(ConfigurationError, match=reason):
        Toolbox(tools)


def test_an_agent_refuses_two_tools_of_one_name():
    """The agent's own constructor says so, before anything runs."""
    with pytest.raises(ConfigurationError, match="Two tools are named 'plain'"):
        Agent("a", Binding("scripted:"), tools=[plain, Tool(plain)])
