"""What differs between servers, as data: where they are, what they take, how they spell it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentkit.errors import ConfigurationError

__all__ = ["PROFILES", "CallIdStyle", "NullContent", "Profile", "WireProtocol", "find_profile"]

WireProtocol: TypeAlias = Literal["chat", "messages"]
NullContent: TypeAlias = Literal["null", "empty", "omit"]
CallIdStyle: TypeAlias = Literal["any", "word", "nine"]


class Profile(Struct, frozen=True, kw_only=True):
    """One server's dialect.

    `key_variables` are tried in order when no key is given; `null_content` is how an assistant message with calls and
    no text is written; `call_ids` is which ids it takes ("word": letters, digits, _ and -; "nine": nine letters or
    digits); `echo_reasoning` sends reasoning_content back inside a tool loop; `tools` "schema" makes tool calls through
    an enforced JSON schema; `schemas` says whether an answer's schema is enforced, or goes into the prompt beside
    JSON mode; `rejects` are body fields that are left out; `elsewhere` is the profile for a base_url that is not the
    server's own; `reports_model` False ignores the model name in answers; `keeps_connections` False asks for a new
    connection each time, for a server that closes them without saying so; `max_tokens` is sent when the request and
    the capability table name none, 0 sends nothing.
    """

    name: str
    protocol: WireProtocol = "chat"
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    elsewhere: str = ""
    null_content: NullContent = "null"
    call_ids: CallIdStyle = "any"
    stream_usage: bool = True
    max_tokens_field: str = "max_tokens"
    max_tokens: int = 0
    echo_reasoning: bool = False
    tools: Literal["native", "schema"] = "native"
    strict_tools: bool = False
    schemas: Literal["strict", "enforced", "prompt"] = "enforced"
    rejects: frozenset[str] = frozenset()
    reports_model: bool = True
    keeps_connections: bool = True


_COMPATIBLE = Profile(name="openai-compatible", null_content="empty", strict_tools=False)

_ROWS = (
    Profile(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        elsewhere="openai-compatible",
        max_tokens_field="max_completion_tokens",
        strict_tools=True,
        schemas="strict",
    ),
    Profile(
        name="anthropic",
        protocol="messages",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        headers=(("anthropic-version", "2026-10-21"),),
        call_ids="word",
        max_tokens=8192,
        strict_tools=True,
    ),
    _COMPATIBLE,
    Profile(
        name="deepseek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        echo_reasoning=True,
        schemas="prompt",
        rejects=frozenset({"seed", "parallel_tool_calls", "metadata", "service_tier"}),
    ),
    Profile(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        max_tokens_field="max_completion_tokens",
        rejects=frozenset({"metadata"}),
    ),
    Profile(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        null_content="empty",
        call_ids="nine",
        stream_usage=False,
        rejects=frozenset({"service_tier", "metadata"}),
    ),
    Profile(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        strict_tools=True,
        schemas="strict",
    ),
    Profile(
        name="together",
        base_url="https://api.together.xyz/v1",
        key_variables=("TOGETHER_API_KEY",),
        rejects=frozenset({"service_tier", "metadata"}),
    ),
    Profile(
        name="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        rejects=frozenset({"parallel_tool_calls"}),
    ),
    Profile(
        name="xai",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        max_tokens_field="max_completion_tokens",
    ),
    Profile(name="vllm", base_url="http://127.0.0.1:8000/v1", null_content="null"),
    Profile(name="ollama", base_url="http://127.0.0.1:11434/v1", null_content="empty"),
    Profile(name="lmstudio", base_url="http://127.0.0.1:1234/v1", null_content="empty"),
    Profile(
        name="llamacpp",
        base_url="http://127.0.0.1:8080/v1",
        null_content="null",
        reports_model=False,
        keeps_connections=False,
    ),
)

PROFILES: dict[str, Profile] = {row.name: row for row in _ROWS}
_SCHEMA = "+schema"


def find_profile(name: str) -> Profile:
    """Return the profile of that name; "NAME+schema" makes tool calls through an enforced JSON schema.

    Raises ConfigurationError with the nearest names.
    """
    base = name.removesuffix(_SCHEMA)
    profile = PROFILES.get(base)
    if profile is None:
        near = get_close_matches(base, PROFILES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PROFILES)}."
        raise ConfigurationError(
            f"Unknown provider {base!r}; {hint} For another compatible server use 'openai:MODEL' with base_url=."
        )
    return replace(profile, tools="schema") if name.endswith(_SCHEMA) else profile
