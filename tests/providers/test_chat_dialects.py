"""How the chat protocol is written for servers that differ: order of roles, choices, images, echoes, usage."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from agentkit.core.contracts import (
    Adjustment,
    AssistantMessage,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    ImagePart,
    JsonObject,
    Message,
    ModelSettings,
    OutputSpec,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from agentkit.errors import ConfigurationError
from agentkit.providers.profiles import PROFILES, Profile
from agentkit.providers.wire.chat_echo import chat_decoder
from agentkit.providers.wire.chat_encode import ChatWriter
from agentkit.providers.wire.fold import Asked
from agentkit.testing.turns import sse

TOOLS = tuple(ToolSpec(name, "does", {"type": "object", "properties": {}}) for name in ("f", "g"))
OUTPUT = OutputSpec("answer", {"type": "object"})


def written(profile: Profile | str, *messages: Message, **request: Any) -> tuple[JsonObject, list[Adjustment]]:
    """Return the body for a conversation, and what was changed of it."""
    writer = ChatWriter(PROFILES[profile] if isinstance(profile, str) else profile, "e", "m")
    given = ChatRequest(messages or (UserMessage("x"),), **request)
    body = json.loads(writer.write(given, given.messages, given.settings.max_tokens))
    return body, writer.changes


def roles(body: JsonObject) -> list[tuple[str, Any]]:
    return [(one["role"], one.get("content")) for one in cast("list[dict[str, Any]]", body["messages"])]


CALLED = AssistantMessage("", (ToolCall("abcdefghi", "f"),))
RESULT = ToolMessage("abcdefghi", "42")


@pytest.mark.parametrize("arguments", ["", "  ", "\n"])
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_b11_empty_arguments_are_an_object(profile: str, arguments: str) -> None:
    """B11: a call without arguments goes to every server as {}; text that is no JSON is no empty call."""
    call = AssistantMessage("", (ToolCall("c", "f", arguments), ToolCall("d", "f", '{"a": ')))
    body, _ = written(profile, UserMessage("x"), call, ToolMessage("c", "1"), ToolMessage("d", "2"))
    calls = cast("list[dict[str, Any]]", body["messages"])[1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == "{}"
    assert json.loads(calls[1]["function"]["arguments"]) != {}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_b47_every_assistant_message_has_its_content(profile: str) -> None:
    """B47: the key is there wherever it is not switched off; null stands beside calls only, "" otherwise or no message."""
    empty = AssistantMessage("")
    body, changes = written(profile, UserMessage("x"), CALLED, RESULT, empty, UserMessage("y"))
    found = [content for role, content in roles(body) if role == "assistant"]
    assert found[0] == {"null": None, "empty": ""}[PROFILES[profile].null_content]
    if PROFILES[profile].empty_assistant == "keep":
        assert found[1:] == [""]
    else:
        assert "" not in found[1:]
        assert ("history", "empty answers") in [(change.kind, change.what) for change in changes]


def test_roles_in_the_order_a_server_takes() -> None:
    """One system message first where templates want that, neighbours joined, an answer between result and user."""
    system, late = SystemMessage("a"), SystemMessage("late")
    conversation = (system, SystemMessage("b"), UserMessage("x"), late, UserMessage("y"))
    body, changes = written("openai", *conversation)
    assert [role for role, _ in roles(body)] == ["system", "system", "user", "system", "user"]
    assert changes == []
    body, changes = written("vllm", *conversation)
    assert roles(body) == [("system", "a\n\nb"), ("user", "x"), ("user", "late"), ("user", "y")]
    assert [change.kind for change in changes] == ["history"]
    body, _ = written(replace(PROFILES["vllm"], roles="alternate"), *conversation)
    assert roles(body) == [("system", "a\n\nb"), ("user", "x\n\nlate\n\ny")]
    body, changes = written("mistral", UserMessage("x"), CALLED, RESULT, UserMessage("y"))
    assert [role for role, _ in roles(body)] == ["user", "assistant", "tool", "assistant", "user"]
    assert [change.kind for change in changes] == ["history"]
    assert written("vllm", system, UserMessage("x"))[1] == []


def test_joined_parts_keep_their_images() -> None:
    """Neighbours with parts are joined as parts."""
    image = ImagePart(url="http://h/i.png")
    profile = replace(PROFILES["vllm"], roles="alternate")
    body, _ = written(profile, UserMessage("x"), UserMessage((TextPart("y"), image)))
    (one,) = roles(body)
    assert [part["type"] for part in one[1]] == ["text", "text", "image_url"]


def test_a_schema_in_the_prompt_stands_with_the_system_message() -> None:
    """Where one system message is taken, the instruction for the schema is part of it, and the answer says so."""
    profile = replace(PROFILES["vllm"], schemas="prompt")
    body, changes = written(profile, SystemMessage("a"), UserMessage("x"), output=OUTPUT)
    assert [role for role, _ in roles(body)] == ["system", "user"]
    assert body["response_format"] == {"type": "json_object"}
    assert [(change.kind, change.what) for change in changes] == [("schema", "output 'answer'")]


@pytest.mark.parametrize(
    ("profile", "choice", "sent", "tools", "told"),
    [
        ("openai", ToolChoice("tool", "g"), {"type": "function", "function": {"name": "g"}}, 2, 0),
        ("lmstudio", ToolChoice("tool", "g"), "required", 1, 0),
        ("lmstudio", ToolChoice("none"), "none", 2, 0),
        ("unforced", ToolChoice("tool", "g"), None, 1, 1),
        ("unforced", ToolChoice("required"), None, 2, 1),
        ("unforced", ToolChoice("auto"), None, 2, 0),
        ("unforced", ToolChoice("none"), None, None, 0),
    ],
)
def test_choices_as_far_as_a_server_takes_them(
    profile: str, choice: ToolChoice, sent: Any, tools: int | None, told: int
) -> None:
    """One tool is asked for by sending no other where names are not taken; what cannot be forced is told."""
    unforced = replace(PROFILES["ollama"], rejects=frozenset({"tool_choice"}))
    body, changes = written(unforced if profile == "unforced" else profile, tools=TOOLS, tool_choice=choice)
    assert body.get("tool_choice") == sent
    listed = body.get("tools")
    assert (len(listed) if isinstance(listed, list) else None) == tools
    assert len([change for change in changes if change.kind == "setting"]) == told


def test_settings_by_a_servers_own_names() -> None:
    """A seed under another name, reasoning switched off by another field, a limit under the profile's."""
    settings = ModelSettings(seed=1, reasoning_effort="none", max_tokens=5)
    body, _ = written("mistral", settings=settings)
    assert (body["random_seed"], body["max_tokens"], body["reasoning_effort"]) == (1, 5, "none")
    assert "seed" not in body
    body, changes = written("deepseek", settings=settings)
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
    assert [change.what for change in changes] == ["seed"]


def test_images_by_address_are_refused_where_nobody_loads_them() -> None:
    """A server that takes bytes only gets none of an address; the error says what to pass."""
    by_address = UserMessage((ImagePart(url="https://h/i.png"),))
    with pytest.raises(ConfigurationError, match="ollama loads no images"):
        written("ollama", by_address)
    written("openai", by_address)
    written("ollama", UserMessage((ImagePart(data=b"x", media_type="image/png"),)))


def answered(profile: str, *chunks: dict[str, Any], stream: bool = True) -> ChatResponse:
    """Return what a server of this profile is understood to say, streamed or in one piece."""
    dialect = PROFILES[profile]
    decoder = chat_decoder(Asked(model="m", endpoint="e", echo=dialect.echo, output_is_rest=dialect.output_is_rest))
    if stream:
        for chunk in chunks:
            decoder.feed(sse(chunk))
        decoder.feed(sse("[DONE]"))
        events = decoder.end()
    else:
        events = decoder.whole(json.dumps(chunks[0]).encode())
    assert isinstance(events[-1], ChatEnd)
    return events[-1].response


def delta(reason: str | None = None, **content: Any) -> dict[str, Any]:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": content, "finish_reason": reason}]}


def detail(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "format": "f", "index": 0, **fields}


def test_reasoning_details_go_back_whole() -> None:
    """Pieces of a detail are joined, signatures and sealed ones kept, and all go back to the router's same model only."""
    sealed = {"type": "reasoning.encrypted", "data": "c2VhbGVk", "index": 1}
    response = answered(
        "openrouter",
        delta(reasoning="think", reasoning_details=[detail(text="th")]),
        delta(reasoning_details=[detail(text="ink")]),
        delta(reasoning_details=[detail(text="", signature="sig")]),
        delta(reasoning_details=[sealed]),
        delta(content="done"),
        delta("stop"),
    )
    expected = [detail(text="think", signature="sig"), sealed]
    whole = {
        "choices": [
            {
                "message": {"content": "done", "reasoning": "think", "reasoning_details": expected},
                "finish_reason": "stop",
            }
        ]
    }
    assert answered("openrouter", whole, stream=False).message == response.message
    body, _ = written("openrouter", UserMessage("x"), response.message, UserMessage("y"))
    assert cast("list[Any]", body["messages"])[1]["reasoning_details"] == expected
    for other in (PROFILES["openai"], PROFILES["deepseek"]):
        assert "reasoning_details" not in str(written(other, UserMessage("x"), response.message)[0])
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(response.message), type=AssistantMessage)
    assert kept == response.message


def signed(index: int, name: str, signature: str | None) -> dict[str, Any]:
    call: dict[str, Any] = {
        "index": index,
        "id": f"id-{name}",
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
    }
    return call if signature is None else {**call, "extra_content": {"google": {"thought_signature": signature}}}


def test_thought_signatures_go_back_on_their_calls() -> None:
    """Each call keeps its own signature; a call that another model made says that it has none."""
    response = answered(
        "gemini",
        delta(tool_calls=[signed(0, "f", "s1")]),
        delta(tool_calls=[signed(0, "g", None)]),
        delta("stop", tool_calls=[signed(0, "h", "s3")]),
    )
    whole = {
        "choices": [
            {
                "message": {"tool_calls": [signed(0, "f", "s1"), signed(1, "g", None), signed(2, "h", "s3")]},
                "finish_reason": "stop",
            }
        ]
    }
    assert answered("gemini", whole, stream=False).message == response.message
    results = [ToolMessage(call.id, "1") for call in response.message.tool_calls]
    body, _ = written("gemini", UserMessage("x"), response.message, *results)
    calls = cast("list[Any]", body["messages"])[1]["tool_calls"]
    assert [call.get("extra_content", {}).get("google", {}).get("thought_signature") for call in calls] == [
        "s1",
        None,
        "s3",
    ]
    body, _ = written("gemini", UserMessage("x"), CALLED, RESULT)
    (call,) = cast("list[Any]", body["messages"])[1]["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert "extra_content" not in str(written("openai", UserMessage("x"), response.message, *results)[0])


@pytest.mark.parametrize(
    ("profile", "usage", "expected"),
    [
        (
            "xai",
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(32, 103, 0, 0, 0, 94),
        ),
        ("gemini", {"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}, Usage(21, 60, 0, 0, 0, 0)),
        ("gemini", {"prompt_tokens": 21, "completion_tokens": 7}, Usage(21, 7, 0, 0, 0, 0)),
        ("openai", {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 99}, Usage(3, 4, 0, 0, 0, 0)),
        (
            "deepseek",
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8},
            Usage(9, 1, 8, 0, 0, 0),
        ),
        (
            "openai-compatible",
            {"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 5},
            Usage(9, 1, 5, 0, 0, 0),
        ),
    ],
)
def test_usage_as_each_server_spells_it(profile: str, usage: dict[str, Any], expected: Usage) -> None:
    """Reasoning that a server counts beside its output is output here; cached tokens are found under all their names."""
    response = answered(profile, delta(content="x"), delta("stop"), {"choices": [], "usage": usage})
    assert response.usage == expected


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>hm <b>\n</think>\n\nYes.</think>", "hm <b>\n", "Yes.</think>"),
        (" \n<think>é</think>Ja", "é", "Ja"),
        ("<think></think>\n\nYes", "", "Yes"),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("<thin", "", "<thin"),
        ("Say <think>no</think>", "", "Say <think>no</think>"),
        ("<thinker> is", "", "<thinker> is"),
    ],
)
def test_reasoning_between_tags(text: str, reasoning: str, content: str) -> None:
    """Where the profile says so, what stands between the tags at the start is reasoning, cut wherever the pieces are."""
    asked = Asked(model="m", endpoint="e", think_tags=True)
    for size in (1, 3, 50):
        decoder = chat_decoder(asked)
        for start in range(0, len(text), size):
            decoder.feed(sse(delta(content=text[start : start + size])))
        decoder.feed(sse(delta("stop")) + sse("[DONE]"))
        last = decoder.end()[-1]
        assert isinstance(last, ChatEnd)
        assert (last.response.message.reasoning, last.response.message.content) == (reasoning, content)
    whole = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    last = chat_decoder(asked).whole(json.dumps(whole).encode())[-1]
    assert isinstance(last, ChatEnd)
    assert (last.response.message.reasoning, last.response.message.content) == (reasoning, content)
