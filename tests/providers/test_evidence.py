"""What a provider says of its bill: kept as evidence, counted as units, and heeded as limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts import ChatEnd, ChatResponse, ChatStart, JsonObject, RateLimit, Usage, WireProtocol
from agentkit.errors import ProviderError
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.evidence import Words, kept_usage
from agentkit.providers.wire.fold import Asked
from agentkit.providers.wire.rate_limits import rate_limit_of
from agentkit.testing.turns import sse

CHAT: JsonObject = {"id": "c1", "model": "m", "service_tier": "flex"}
MESSAGE: JsonObject = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
TEXT: JsonObject = {"type": "text", "text": "Yes."}
ITEM: JsonObject = {
    "id": "i1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
}


def chat(usage: JsonObject) -> tuple[bytes, bytes]:
    """Return the answer streamed and whole."""
    text, end = {"delta": {"content": "Yes."}}, {"delta": {}, "finish_reason": "stop"}
    pieces = [{**CHAT, "choices": [text]}, {**CHAT, "choices": [end]}, {**CHAT, "choices": [], "usage": usage}]
    whole = {**CHAT, "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}], "usage": usage}
    return b"".join(map(sse, pieces)) + b"data: [DONE]\n\n", json.dumps(whole).encode()


def messages(usage: JsonObject) -> tuple[bytes, bytes]:
    """Return the answer streamed, its usage told in two parts, and whole."""
    first = {name: value for name, value in usage.items() if name not in ("output_tokens", "server_tool_use")}
    events: list[JsonObject] = [
        {"type": "message_start", "message": {**MESSAGE, "usage": {**first, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    whole = {**MESSAGE, "content": [TEXT], "stop_reason": "end_turn", "usage": usage}
    return b"".join(sse(event, str(event["type"])) for event in events), json.dumps(whole).encode()


def responses(usage: JsonObject, *items: JsonObject, **more: Any) -> tuple[bytes, bytes]:
    """Return the answer streamed and whole."""
    body: JsonObject = {"id": "r1", "model": "m", "status": "completed", "output": [*items, ITEM], **more}
    whole: JsonObject = {**body, "usage": usage, "error": None, "incomplete_details": None}
    event: JsonObject = {"type": "response.completed", "response": whole}
    return sse(event, "response.completed"), json.dumps(whole).encode()


def both(protocol: WireProtocol, answer: tuple[bytes, bytes], words: Words | None = None) -> ChatResponse:
    """Return the response, the same from the stream and from the whole body."""
    asked = Asked(provider="p", model="m", words=words or Words())
    streaming, whole = CODECS[protocol].decoder(asked), CODECS[protocol].decoder(asked)
    events = [*streaming.feed(answer[0]), *streaming.end()]
    ends = [found[-1] for found in (events, whole.whole(answer[1]))]
    assert isinstance(ends[0], ChatEnd) and isinstance(ends[1], ChatEnd)
    assert ends[0].response.usage == ends[1].response.usage
    assert ends[0].response.raw_usage == ends[1].response.raw_usage
    return ends[0].response


def test_raw_usage_is_what_the_provider_said() -> None:
    """The provider's own object is on the answer, in each protocol, with the numbers that we do not count too."""
    told: JsonObject = {"prompt_tokens": 9, "completion_tokens": 2, "cost": 0.00014, "cost_details": {"upstream": None}}
    answer = both("chat", chat(told))
    assert answer.raw_usage == told
    assert (answer.usage, answer.service_tier) == (Usage(9, 2), "flex")
    told = {"input_tokens": 9, "output_tokens": 2, "service_tier": "priority", "inference_geo": "us", "speed": "fast"}
    answer = both("messages", messages(told))
    assert answer.raw_usage == told
    assert (answer.service_tier, answer.billing) == ("priority", {"inference_geo": "us", "speed": "fast"})
    told = {"input_tokens": 9, "output_tokens": 2, "cost_in_usd_ticks": 37_756_000}
    answer = both("responses", responses(told, tool_usage={"web_search": {"num_requests": 1}}))
    assert answer.raw_usage == {**told, "tool_usage": {"web_search": {"num_requests": 1}}}


def test_what_has_no_usage_has_no_evidence() -> None:
    """Nothing is made up; "not_available" is no fact."""
    assert both("chat", (b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n', b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}')).raw_usage is None  # fmt: skip
    assert (
        both("messages", messages({"input_tokens": 1, "output_tokens": 1, "inference_geo": "not_available"})).billing
        == {}
    )


def test_evidence_is_bounded_and_holds_no_texts_and_no_secrets() -> None:
    """A server cannot fill the ledger, nor put content or a key into it."""
    hostile: JsonObject = {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "note": "The user asked for their diagnosis, which is",
        "echo": "key-of-mine-77",
        "other": "sk-abcdefgh12345678",
        "key-of-mine-77": 3,
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}},
        "long": "x" * 100,
        "list": ["ok", "not a word", 3],
        **{f"counter_{index}": index for index in range(5_000)},
    }
    kept = both("chat", chat(hostile), Words(("key-of-mine-77",))).raw_usage
    assert kept is not None and kept["prompt_tokens"] == 1
    written = json.dumps(kept)
    assert len(written) <= 4_600 and "diagnosis" not in written and "xxx" not in written
    assert "key-of-mine" not in written and "sk-abc" not in written
    few: JsonObject = {name: hostile[name] for name in ("prompt_tokens", "deep", "list", "note", "echo")}
    kept = both("chat", chat(few), Words(("key-of-mine-77",))).raw_usage
    assert kept == {"prompt_tokens": 1, "deep": {"a": {"b": {"c": {}}}}, "list": ["ok", 3], "echo": "****"}


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=80),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80),
            lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
            max_leaves=40,
        ),
        max_size=12,
    )
)
def test_any_usage_is_kept_small_or_not_at_all(usage: JsonObject) -> None:
    """Whatever a server puts there, what is kept is JSON of at most 4 KB whose words have no spaces."""
    kept = kept_usage(usage, Words())
    assert len(json.dumps(kept, separators=(",", ":")).encode()) <= 4_096
    assert " " not in json.dumps(kept, separators=(",", ":"))


def test_a_broken_stream_keeps_what_was_reported() -> None:
    """The error that ends an answer is told the bill so far by its decoder; a start says what it knows at once."""
    decoder = CODECS["messages"].decoder(Asked())
    start: JsonObject = {**MESSAGE, "usage": {"input_tokens": 25, "output_tokens": 1, "service_tier": "standard"}}
    events = decoder.feed(sse({"type": "message_start", "message": start}, "message_start"))
    assert isinstance(events[0], ChatStart) and events[0].reported is not None
    assert (events[0].reported.usage.input_tokens, events[0].reported.service_tier) == (25, "standard")
    with pytest.raises(ProviderError):
        decoder.end()
    assert decoder.reported().raw == {"input_tokens": 25, "output_tokens": 1, "service_tier": "standard"}


SEARCHED: JsonObject = {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search"}}


@pytest.mark.parametrize(
    ("protocol", "answer", "units"),
    [
        (
            "chat",
            chat({"prompt_tokens": 90, "completion_tokens": 20, "prompt_tokens_details": {"audio_tokens": 40, "cached_tokens": 10, "image_tokens": 5}, "completion_tokens_details": {"audio_tokens": 7}}),
            {"input_audio_tokens": 40, "input_image_tokens": 5, "output_audio_tokens": 7},
        ),
        (
            "chat",
            chat({"prompt_tokens": 90, "completion_tokens": 20, "prompt_tokens_details": {"audio_tokens": 40, "cached_tokens_details": {"audio_tokens": 0, "text_tokens": 9}}}),
            {"input_audio_tokens": 40, "cache_audio_read_tokens": 0},
        ),
        ("chat", chat({"prompt_tokens": 9, "completion_tokens": 2, "server_tool_use": {"web_search_requests": 3}}), {"web_searches": 3}),
        ("chat", chat({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"audio_tokens": 0}}), {}),
        (
            "messages",
            messages({"input_tokens": 9, "output_tokens": 2, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 4, "code_execution_requests": 1, "new_requests": 1}}),
            {"web_searches": 2, "code_executions": 1, "new_requests": 1},
        ),
        ("responses", responses({"input_tokens": 9, "output_tokens": 2}, SEARCHED, {**SEARCHED, "id": "w2", "action": {"type": "open_page"}}), {"web_searches": 1}),
        ("responses", responses({"input_tokens": 9, "output_tokens": 2}, SEARCHED, tool_usage={"web_search": {"num_requests": 3}}), {"web_searches": 3}),
        ("responses", responses({"input_tokens": 9, "output_tokens": 2}, SEARCHED, tool_usage={"web_search": {"num_requests": 0}}), {}),
        (
            "responses",
            responses(
                {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3, "image_tokens": 4}},
                {"type": "file_search_call", "id": "f1"},
                {"type": "code_interpreter_call", "id": "k1", "container_id": "a"},
                {"type": "code_interpreter_call", "id": "k2", "container_id": "a"},
            ),
            {"storage_searches": 1, "code_containers": 1, "input_image_tokens": 4},
        ),
    ],
)  # fmt: skip
def test_units_have_the_names_that_prices_have(
    protocol: WireProtocol, answer: tuple[bytes, bytes], units: dict[str, int]
) -> None:
    """What is billed beside or inside the tokens comes under the catalogue's names; what is free is left out."""
    assert dict(both(protocol, answer).usage.units) == units


@pytest.mark.parametrize(
    ("headers", "limit"),
    [
        ({}, None),
        ({"x-request-id": "r"}, None),
        (
            {"x-ratelimit-remaining-requests": "59", "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"},
            RateLimit(requests_left=59, tokens_left=149_984, requests_reset=1.0, tokens_reset=360.0),
        ),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-remaining-tokens": "17997", "x-ratelimit-reset-tokens": "20ms"},
            RateLimit(requests_left=0, requests_reset=179.56, tokens_left=17_997, tokens_reset=0.02),
        ),
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, None),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "soon"}, RateLimit(requests_left=7)),
        ({"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "1h2m3s4ms"}, RateLimit(requests_left=9, requests_reset=3_723.004)),
        ({"retry-after": "30"}, RateLimit(retry_after=30.0)),
        ({"retry-after-ms": "1500", "retry-after": "9"}, RateLimit(retry_after=1.5)),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "1"}, None),
    ],
)  # fmt: skip
def test_limits_are_read_from_headers(headers: dict[str, str], limit: RateLimit | None) -> None:
    """Spans in every spelling; below zero and nonsense are not said."""
    assert rate_limit_of(headers) == limit


def test_limits_that_are_moments() -> None:
    """Anthropic's resets are moments in RFC 3339, OpenRouter's are milliseconds since 1970; what is past is now."""
    past = {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z"}
    assert rate_limit_of(past) == RateLimit(requests_left=0, requests_reset=0.0)
    far = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1577836800000"}
    assert rate_limit_of(far) == RateLimit(requests_left=0, requests_reset=0.0)
    never = {"anthropic-ratelimit-tokens-remaining": "9", "anthropic-ratelimit-tokens-reset": "2999-01-01T00:00:00Z"}
    assert rate_limit_of(never) == RateLimit(tokens_left=9)
