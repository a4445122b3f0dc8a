"""What differs between servers, as data: where they are, what they take, how they spell it."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import WireProtocol
from agentkit.errors import ConfigurationError
from agentkit.schema import SchemaDialect

__all__ = [
    "PROFILES",
    "CallIdStyle",
    "Echo",
    "NullContent",
    "Profile",
    "Roles",
    "find_profile",
    "speaking",
]

NullContent: TypeAlias = Literal["null", "empty", "omit"]
CallIdStyle: TypeAlias = Literal["any", "word", "nine"]
Echo: TypeAlias = Literal["", "content", "details", "signatures"]
Roles: TypeAlias = Literal["any", "system_first", "alternate", "assistant_after_tools"]


class Profile(Struct, frozen=True, kw_only=True):
    """One server's dialect; `replace(find_profile("vllm"), ...)` makes a changed one, for `Binding(profile=...)`.

    Where it is. `protocol` is the one spoken unless another of `protocols`, all that the server speaks, is asked for.
    `base_url` is its address, `base_urls` those of protocols that have one of their own, `example_url` is
    shown where it has no fixed one; `hosts` are further endings of host names that are the provider's own;
    `key_variables` are tried in order when no key is given, `key_header` carries the key ("authorization" as a bearer
    token); `elsewhere` is the profile for a base_url that is not the server's own, `cloud` that for a client of a cloud
    that serves the provider's models.

    What it takes. `rejects` are body fields that are left out and reported, `renames` fields under another name;
    `max_tokens_field` is the name of the output's limit, `max_tokens` is sent when the request and the capability table
    name none, 0 sends nothing; `stream_usage` asks for the usage of a stream; `tools` "schema" makes tool calls through
    an enforced JSON schema; `named_tool` False asks for one tool by sending only that and "required"; `strict_tools`
    holds tools to their schemas where that is possible ("always") or was asked for ("asked"); `schemas` says whether
    an answer's schema is enforced, goes into the prompt beside JSON mode ("prompt"), or into the prompt alone ("text");
    `schema_subset` names the part of JSON Schema it enforces; `prompt_cache` is what is cached where that is asked for,
    "prefix" being the tools and the system text; `images` "data" takes no URLs; `thinking_switch` turns reasoning off
    by a `thinking` field.

    How a conversation is written. `null_content` is an assistant message with calls and no text, `empty_assistant` what
    becomes of one with neither; `call_ids` is which ids it takes ("word": letters, digits, _ and -; "nine": nine
    letters or digits); `roles` is the order it needs: "system_first" joins the system messages at the start and sends
    later ones as the user's, "alternate" also joins neighbours of one role, "assistant_after_tools" puts a short
    answer between results and the user; `echo` is what must go back: the `reasoning_content` of a turn with calls
    ("content"), `reasoning_details` ("details"), or the thought signatures of calls ("signatures"). With Responses,
    `chat_format` puts a schema where Chat Completions has it.

    What comes back. `output_is_rest` counts as output all tokens that are not input, for a server that leaves reasoning
    out of its completion tokens; `think_tags` tells what stands between <think> and </think> at the start of a chat
    answer as reasoning, for a server that leaves it in the text; `reports_model` False ignores the model name in
    answers; `keeps_connections` False asks for a new connection each time, for a server that closes them without saying
    so.
    """

    name: str
    protocol: WireProtocol = "chat"
    protocols: tuple[WireProtocol, ...] = ("chat",)
    base_url: str = ""
    base_urls: tuple[tuple[WireProtocol, str], ...] = ()
    example_url: str = ""
    hosts: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    key_header: str = "authorization"
    headers: tuple[tuple[str, str], ...] = ()
    elsewhere: str = ""
    cloud: str = ""
    rejects: frozenset[str] = frozenset()
    renames: tuple[tuple[str, str], ...] = ()
    max_tokens_field: str = "max_tokens"
    max_tokens: int = 0
    stream_usage: bool = True
    tools: Literal["native", "schema"] = "native"
    named_tool: bool = True
    strict_tools: Literal["never", "asked", "always"] = "never"
    schemas: Literal["strict", "enforced", "prompt", "text"] = "enforced"
    schema_subset: SchemaDialect = ""
    prompt_cache: Literal["", "prefix", "all"] = ""
    images: Literal["any", "data"] = "any"
    thinking_switch: bool = False
    null_content: NullContent = "null"
    empty_assistant: Literal["keep", "drop"] = "keep"
    call_ids: CallIdStyle = "any"
    roles: Roles = "any"
    echo: Echo = ""
    output_is_rest: bool = False
    think_tags: bool = False
    reports_model: bool = True
    keeps_connections: bool = True
    chat_format: bool = False


_FILE: Final = Path(__file__).parent / "data" / "profiles.json"
_SCHEMA: Final = "+schema"

PROFILES: Final[dict[str, Profile]] = {
    row.name: row for row in msgspec.json.decode(_FILE.read_bytes(), type=list[Profile])
}


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
        common = PROFILES["anthropic-compatible"]
        return replace(
            profile,
            protocol=protocol,
            max_tokens=profile.max_tokens or common.max_tokens,
            headers=(*profile.headers, *common.headers),
            call_ids=common.call_ids,
            schemas=common.schemas,
        )
    return replace(profile, protocol=protocol)
