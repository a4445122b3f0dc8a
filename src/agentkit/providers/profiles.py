"""What differs between servers, as data: where they are, what they take, how they spell it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from agentkit.errors import ConfigurationError

__all__ = ["PROFILES", "CallIdStyle", "NullContent", "Profile", "WireProtocol", "find_profile", "speaking"]

WireProtocol: TypeAlias = Literal["chat", "messages", "responses"]
NullContent: TypeAlias = Literal["null", "empty", "omit"]
CallIdStyle: TypeAlias = Literal["any", "word", "nine"]


class Profile(Struct, frozen=True, kw_only=True):
    """One server's dialect.

    `protocol` is the one spoken unless another of `protocols`, all that the server speaks, is asked for;
    `key_variables` are tried in order when no key is given; `null_content` is how an assistant message with calls and
    no text is written; `call_ids` is which ids it takes ("word": letters, digits, _ and -; "nine": nine letters or
    digits); `echo_reasoning` sends reasoning_content back inside a tool loop; `tools` "schema" makes tool calls through
    an enforced JSON schema; `schemas` says whether an answer's schema is enforced, or goes into the prompt beside
    JSON mode; `rejects` are body fields that are left out; `elsewhere` is the profile for a base_url that is not the
    server's own; `reports_model` False ignores the model name in answers; `keeps_connections` False asks for a new
    connection each time, for a server that closes them without saying so; `max_tokens` is sent when the request and
    the capability table name none, 0 sends nothing. With Responses, `output_parts` writes what the model said before
    as parts instead of text, and `chat_format` puts a schema where Chat Completions has it.
    """

    name: str
    protocol: WireProtocol = "chat"
    protocols: tuple[WireProtocol, ...] = ("chat",)
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
    output_parts: bool = False
    chat_format: bool = False


_ALL: tuple[WireProtocol, ...] = ("chat", "responses", "messages")
_COMPATIBLE = Profile(name="openai-compatible", protocols=_ALL, null_content="empty", strict_tools=False)

_ROWS = (
    Profile(
        name="openai",
        protocols=("chat", "responses"),
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
        protocols=("messages",),
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
        protocols=("chat", "responses"),
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        max_tokens_field="max_completion_tokens",
        rejects=frozenset({"metadata", "include", "store"}),
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
        protocols=("chat", "responses"),
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
        protocols=("chat", "responses"),
        base_url="https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        rejects=frozenset({"parallel_tool_calls"}),
    ),
    Profile(
        name="xai",
        protocols=("chat", "responses"),
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        max_tokens_field="max_completion_tokens",
    ),
    Profile(name="vllm", protocols=_ALL, base_url="http://127.0.0.1:8000/v1", null_content="null"),
    Profile(name="ollama", protocols=_ALL, base_url="http://127.0.0.1:11434/v1", null_content="empty"),
    Profile(name="lmstudio", protocols=_ALL, base_url="http://127.0.0.1:1234/v1", null_content="empty"),
    Profile(
        name="llamacpp",
        protocols=_ALL,
        output_parts=True,
        chat_format=True,
        base_url="http://127.0.0.1:8080/v1",
        null_content="null",
        reports_model=False,
        keeps_connections=False,
    ),
)

PROFILES: dict[str, Profile] = {row.name: row for row in _ROWS}
_SCHEMA = "+schema"
_MESSAGES_CAP = 8192  # the protocol requires a cap


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


def speaking(profile: Profile, protocol: WireProtocol | None) -> Profile:
    """Return the profile in this protocol, its own for None; raises ConfigurationError naming those it speaks."""
    if protocol is None or protocol == profile.protocol:
        return profile
    if protocol not in profile.protocols:
        known = " and ".join(repr(name) for name in profile.protocols)
        raise ConfigurationError(
            f"protocol={protocol!r}: {profile.name} speaks {known}; choose of these, or leave protocol out."
        )
    if protocol == "messages":
        versioned = (*profile.headers, *PROFILES["anthropic"].headers)
        return replace(profile, protocol=protocol, max_tokens=profile.max_tokens or _MESSAGES_CAP, headers=versioned)
    return replace(profile, protocol=protocol)
