"""Requests of the Messages protocol: what each generation of models takes, caching, servers' tools, and their types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    ChatRequest,
    FilePart,
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    ModelSettings,
    OpaqueItem,
    OutputSpec,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.history import guard_history
from agentkit.providers.profiles import PROFILES
from agentkit.providers.wire.claude import claude_of
from agentkit.providers.wire.messages_blocks import BLOCKS_KIND, CONTAINER_KIND
from agentkit.providers.wire.messages_encode import MessagesWriter

OPUS = "claude-opus-4-5-20251101"
QUESTION = (UserMessage("q"),)
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}}, strict=True)
SEARCH: JsonObject = {"type": "web_search_20260209", "name": "web_search", "max_uses": 3}


def written(
    messages: Sequence[Message] = QUESTION,
    *,
    model: str = "claude-opus-4-8",
    profile: str = "anthropic",
    max_tokens: int | None = 64_000,
    wishes: ModelSettings | None = None,
    **more: Any,
) -> tuple[dict[str, Any], list[Adjustment]]:
    """Return the body of a request and what was changed of it."""
    writer = MessagesWriter(PROFILES[profile], "https://api.anthropic.com", model)
    request = ChatRequest(tuple(messages), settings=wishes or ModelSettings(), **more)
    return json.loads(writer.write(request, request.messages, max_tokens)), writer.changes


@pytest.mark.parametrize(
    ("names", "family", "version"),
    [
        (["claude-3-5-sonnet-20241022", "claude-3-5-sonnet-latest", "anthropic/claude-3.5-sonnet"], "sonnet", (3, 5)),
        (["claude-opus-4-20250514", "claude-4-opus", "anthropic.claude-opus-4-20250514-v1:0"], "opus", (4, 0)),
        (["claude-haiku-4-5", "claude-haiku-4-5@20251001", "us.anthropic.claude-haiku-4-5-20251001-v1:0"], "haiku", (4, 5)),
        (["anthropic.claude-opus-4-6-v1", "claude-opus-4.6", "Claude-Opus-4-6-thinking"], "opus", (4, 6)),
        (["claude-fable-5", "publishers/anthropic/models/claude-fable-5"], "fable", (5, 0)),
        (["claude-mythos-preview"], "mythos", (99, 0)),
        (["kimi-k2", "claudette", "deepseek-v4", ""], None, None),
    ],
)  # fmt: skip
def test_models_are_told_by_name(names: list[str], family: str | None, version: tuple[int, int] | None) -> None:
    """Every way to write a model's name says the same family and generation."""
    for name in names:
        found = claude_of(name)
        assert (found and found.family, found and found.version) == (family, version)


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "word"),
    [
        ("claude-sonnet-4-5", "high", {"type": "enabled", "budget_tokens": 16384}, None),
        ("claude-3-7-sonnet-latest", "minimal", {"type": "enabled", "budget_tokens": 1024}, None),
        (OPUS, "xhigh", {"type": "enabled", "budget_tokens": 32000}, "high"),
        ("claude-sonnet-4-6", "high", {"type": "adaptive"}, "high"),
        ("claude-sonnet-4-6", "xhigh", {"type": "adaptive"}, "high"),
        ("claude-opus-4-8", "xhigh", {"type": "adaptive"}, "xhigh"),
        ("claude-fable-5-2", "max", {"type": "adaptive"}, "max"),
        ("claude-opus-5-5", "minimal", {"type": "adaptive"}, "low"),
        ("claude-3-5-haiku-latest", "high", None, None),
        ("deepseek-v4-pro", "low", {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-sonnet-4-5", "none", None, None),
        ("claude-opus-4-8", "none", None, None),
        ("claude-opus-5", "none", {"type": "disabled"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-opus-5-5", "none", None, "low"),
        ("claude-fable-5", "none", None, "low"),
        ("kimi-k2", "none", {"type": "disabled"}, None),
    ],
)
def test_each_generation_is_asked_to_think_in_its_own_form(
    model: str, effort: Any, thinking: JsonObject | None, word: str | None
) -> None:
    """Thinking goes out as a budget, as adaptive or off by the model's own word; what differs from the wish is said."""
    body, changes = written(model=model, wishes=ModelSettings(reasoning_effort=effort))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == word
    renamed = word is not None and word != effort
    ignored = thinking is None and effort != "none"
    assert [change.what for change in changes] == ["reasoning_effort"] * (renamed or ignored)


@pytest.mark.parametrize(("cap", "budget"), [(1024, None), (1500, 1024), (8000, 4000), (64_000, 16384), (None, 16384)])
def test_a_budget_leaves_room_for_the_answer(cap: int | None, budget: int | None) -> None:
    """The budget is at most half of the output, at least what servers take, and left out where that does not fit."""
    body, changes = written(model="claude-sonnet-4-5", max_tokens=cap, wishes=ModelSettings(reasoning_effort="high"))
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert bool(changes) == (budget is None)


@pytest.mark.parametrize(
    ("profile", "model", "effort", "sent"),
    [
        ("anthropic", "claude-3-5-haiku-latest", None, False),
        ("anthropic-cloud", "anthropic.claude-sonnet-4-5-20250929-v1:0", None, True),
        ("anthropic-cloud", "anthropic.claude-sonnet-4-5-20250929-v1:0", "low", False),
        ("anthropic-cloud", "anthropic.claude-opus-4-8", None, False),
        ("anthropic-compatible", "kimi-k2", "low", True),
        ("anthropic-compatible", "claude-fable-5", None, False),
    ],
)
def test_sampling_goes_where_it_is_taken(profile: str, model: str, effort: Any, sent: bool) -> None:
    """The API's version, the model and its thinking decide over temperature and top_p; left out, they are reported."""
    wishes = ModelSettings(temperature=0.5, top_p=0.9, reasoning_effort=effort)
    body, changes = written(model=model, profile=profile, wishes=wishes)
    assert [body.get("temperature"), body.get("top_p")] == ([0.5, 0.9] if sent else [None, None])
    assert [change.what for change in changes] == ([] if sent else ["temperature", "top_p"])
    assert all(change.kind == "setting" for change in changes)


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("tool", "add")])
def test_a_forced_tool_and_thinking_are_refused_here(choice: ToolChoice) -> None:
    """A combination that the server refuses is an error with the way out, before anything is sent."""
    for wishes in (
        ModelSettings(reasoning_effort="low"),
        ModelSettings(extra={"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    ):
        with pytest.raises(ConfigurationError, match="reasoning_effort='none'"):
            written(tools=(ADD,), tool_choice=choice, wishes=wishes)
    with pytest.raises(ConfigurationError, match="always thinks"):
        written(model="claude-opus-5-5", tools=(ADD,), tool_choice=choice)
    body, _ = written(tools=(ADD,), tool_choice=choice, wishes=ModelSettings(reasoning_effort="none"))
    assert body["tool_choice"]["type"] in ("any", "tool")
    for mode in ("auto", "none"):
        body, _ = written(
            model="claude-opus-5-5",
            tools=(ADD,),
            tool_choice=ToolChoice(mode),  # type: ignore[arg-type]
            wishes=ModelSettings(reasoning_effort="low"),
        )
        assert body["tool_choice"] == {"type": mode}


def test_the_order_of_turns_is_checked_here() -> None:
    """A conversation that begins or ends with the model's turn is refused before it is sent, where the model does."""
    ends = (UserMessage("q"), AssistantMessage("The answer is"))
    with pytest.raises(ConfigurationError, match="begins with an assistant message"):
        written((AssistantMessage("Hello."), UserMessage("q")))
    with pytest.raises(ConfigurationError, match="ends with an assistant message"):
        written(ends)
    assert written(ends, model="claude-haiku-4-5")[0]["messages"][1]["role"] == "assistant"
    assert written(ends, model="kimi-k2")[0]["messages"][1]["role"] == "assistant"


def test_a_paused_turn_may_end_the_conversation() -> None:
    """An answer that the server paused among its own tools is sent back as the last turn, into its container."""
    owner = ("https://api.anthropic.com", "claude-opus-4-8")
    used: JsonObject = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    opaque = (OpaqueItem(owner, BLOCKS_KIND, [used]), OpaqueItem(owner, CONTAINER_KIND, "container_1"))
    paused = AssistantMessage("", opaque=opaque)
    body, _ = written((*QUESTION, paused, AssistantMessage("So far")))
    assert body["messages"][1] == {"role": "assistant", "content": [used, {"type": "text", "text": "So far"}]}
    assert body["container"] == "container_1"
    assert "container" not in written((*QUESTION, paused, UserMessage("next")))[0]
    mine = ModelSettings(extra={"container": "mine"})
    assert written((*QUESTION, paused), wishes=mine)[0]["container"] == "mine"
    with pytest.raises(ConfigurationError, match="ends with an assistant message"):
        written((*QUESTION, AssistantMessage("Let me look.", opaque=opaque)), model="claude-opus-5")


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_caching_is_asked_for_by_a_setting(ttl: Any) -> None:
    """The whole request is cached where the server does that, tools and system text on a cloud, elsewhere it is said."""
    control = {"type": "ephemeral", "ttl": ttl}
    messages = (SystemMessage("Be kind."), UserMessage("q"))
    marked = [{"type": "text", "text": "Be kind.", "cache_control": control}]
    body, changes = written(messages, wishes=ModelSettings(prompt_cache=ttl))
    assert (body["cache_control"], body["system"], changes) == (control, marked, [])
    body, changes = written(messages, profile="anthropic-cloud", wishes=ModelSettings(prompt_cache=ttl))
    assert (body.get("cache_control"), body["system"]) == (None, marked)
    assert [change.what for change in changes] == ["prompt_cache"]
    body, changes = written(messages, profile="anthropic-compatible", wishes=ModelSettings(prompt_cache=ttl))
    assert (body.get("cache_control"), body["system"]) == (None, "Be kind.")
    assert [change.what for change in changes] == ["prompt_cache"]
    assert "cache_control" not in json.dumps(written(messages)[0])


def test_servers_tools_join_ours() -> None:
    """Tools passed in `extra` stand after the request's own, with a choice among them all; a name is used once."""
    closed = {**ADD.parameters, "additionalProperties": False}
    own = {"name": "add", "description": "Add.", "input_schema": closed, "strict": True}
    extra = ModelSettings(extra={"tools": [SEARCH]}, parallel_tool_calls=False)
    body, _ = written(tools=(ADD,), wishes=extra)
    assert body["tools"] == [own, SEARCH]
    body, _ = written(wishes=extra)
    assert body["tools"] == [SEARCH]
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert written(tools=(ADD,), wishes=ModelSettings(extra={"tools": []}))[0]["tools"] == [own]
    with pytest.raises(ConfigurationError, match="'add'"):
        written(tools=(ADD,), wishes=ModelSettings(extra={"tools": [{**SEARCH, "name": "add"}]}))


def test_extra_objects_join_their_namesakes() -> None:
    """An object of `extra` adds to the one of its name, one with a type of its own and plain values take its place."""
    output = OutputSpec("o", {"type": "object", "properties": {}, "additionalProperties": False})
    extra: dict[str, JsonValue] = {
        "output_config": {"effort": "max"},
        "thinking": {"display": "summarized"},
        "max_tokens": 7,
    }
    body, _ = written(output=output, wishes=ModelSettings(reasoning_effort="low", extra=extra))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": output.schema}, "effort": "max"}
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["max_tokens"] == 7
    off = ModelSettings(reasoning_effort="low", extra={"thinking": {"type": "disabled"}})
    assert written(wishes=off)[0]["thinking"] == {"type": "disabled"}


def test_a_schema_that_is_not_enforced_is_told() -> None:
    """A server that is only compatible gets the schema in its system text, and that is said."""
    output = OutputSpec("city", {"type": "object", "title": "Town"})
    body, changes = written((SystemMessage("Be kind."), *QUESTION), profile="anthropic-compatible", output=output)
    assert "output_config" not in body
    assert body["system"].startswith("Be kind.")
    assert '"Town"' in body["system"]
    assert [(change.kind, change.what) for change in changes] == [("schema", "output 'city'")]


def test_b11_no_arguments_are_an_empty_object() -> None:
    """B11, B47: a call kept with empty arguments goes back with an empty object, and without a block of empty text."""
    call = AssistantMessage("", (ToolCall("toolu_1", "add", ""), ToolCall("toolu_2", "add", " \n")))
    body, _ = written((*QUESTION, call, ToolMessage("toolu_1", "1"), ToolMessage("toolu_2", "2")))
    assert [(block["type"], block["input"]) for block in body["messages"][1]["content"]] == [("tool_use", {})] * 2


def test_a_later_system_message_is_said_to_be_the_users() -> None:
    """System text among the turns has no place of its own; it goes out as the user's, and that is told each time."""
    messages = (SystemMessage("a"), UserMessage("q"), SystemMessage("b"))
    writer = MessagesWriter(PROFILES["anthropic"], "e", "m")
    for _ in range(2):
        writer.changes.clear()
        request = ChatRequest(messages)
        body = json.loads(writer.write(request, messages, 10))
        assert body["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "b"}]}
        ]
        assert [change.kind for change in writer.changes] == ["history"]


def test_plain_text_files_are_text_documents() -> None:
    """A text file goes as text, which is the only form that servers take it in."""
    part = FilePart(data="ä".encode(), media_type="text/markdown", name="n.md")
    body, _ = written((UserMessage((part,)),))
    source = {"type": "text", "media_type": "text/plain", "data": "ä"}
    assert body["messages"][0]["content"] == [{"type": "document", "source": source, "title": "n.md"}]


PARTS = st.sampled_from(
    [
        TextPart("see"),
        TextPart(""),
        ImagePart(data=b"x", media_type="image/jpeg"),
        ImagePart(url="https://x/i.png"),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a"),
        FilePart(url="https://x/a.pdf"),
        FilePart(data=b"plain", media_type="text/plain"),
    ]
)
CONTENT = st.text(min_size=1, max_size=8) | st.lists(PARTS, min_size=1, max_size=3).map(
    lambda parts: (TextPart("t"), *parts)
)
CALLS = st.lists(st.sampled_from(['{"a": 1}', "{}", "", "{broken"]), max_size=3).map(
    lambda given: tuple(ToolCall(f"functions.add:{place}", "add", arguments) for place, arguments in enumerate(given))
)
TURN = st.one_of(
    st.builds(UserMessage, CONTENT),
    st.builds(AssistantMessage, st.text(max_size=5), CALLS),
    st.builds(ToolMessage, st.sampled_from(["functions.add:0", "functions.add:1"]), CONTENT, is_error=st.booleans()),
    st.builds(SystemMessage, st.text(max_size=5)),
)
SETTINGS = st.builds(
    ModelSettings,
    temperature=st.none() | st.just(0.5),
    stop=st.sampled_from([(), ("END",)]),
    reasoning_effort=st.sampled_from([None, "none", "minimal", "low", "high", "xhigh", "max"]),
    parallel_tool_calls=st.sampled_from([None, False]),
    service_tier=st.sampled_from([None, "auto"]),
    prompt_cache=st.sampled_from([None, "5m", "1h"]),
    metadata=st.sampled_from([None, {"user_id": "u"}]),
    extra=st.sampled_from([None, {"tools": [SEARCH]}, {"container": "c1"}]),
)
MODELS = st.sampled_from(
    ["claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-4-8", "claude-opus-5-5", "claude-sonnet-5-5"]
)
PARAMS = {True: TypeAdapter(MessageCreateParamsStreaming), False: TypeAdapter(MessageCreateParamsNonStreaming)}
FIELDS = set(get_type_hints(MessageCreateParamsStreaming))


def exhaust(value: object) -> None:
    """Read everything, since a validated iterable is only checked when it is read."""
    if isinstance(value, Mapping):
        for one in value.values():
            exhaust(one)
    elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for one in value:
            exhaust(one)


@settings(max_examples=150, deadline=None)
@given(st.lists(TURN, max_size=6), SETTINGS, MODELS, st.booleans(), st.booleans(), st.booleans())
def test_b11_b42_b47_requests_fit_the_sdks_parameters(
    turns: list[Message], wishes: ModelSettings, model: str, stream: bool, tools: bool, output: bool
) -> None:
    """B11, B42, B47: whatever is asked, the body is one the official SDK's types allow, or it is refused here."""
    try:
        guarded = guard_history((UserMessage("q"), *turns))
        writer = MessagesWriter(PROFILES["anthropic"], "e", model)
        request = ChatRequest(
            tuple(guarded.messages),
            tools=(ADD,) if tools else (),
            tool_choice=ToolChoice("none") if tools else None,
            output=OutputSpec("o", {"type": "object"}) if output else None,
            settings=wishes,
            stream=stream,
        )
        body = json.loads(writer.write(request, request.messages, 64_000))
    except ConfigurationError:
        return
    assert set(body) <= FIELDS
    exhaust(PARAMS[stream].validate_python({"stream": False, **body}))
    roles = [turn["role"] for turn in body["messages"]]
    assert all(one != other for one, other in zip(roles, roles[1:], strict=False))
    answered: list[str] = []
    for turn in body["messages"]:
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(answered)
        assert [block["type"] for block in turn["content"]][: len(results)] == ["tool_result"] * len(results)
        assert not any(block == {"type": "text", "text": ""} for block in turn["content"])
        answered = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
