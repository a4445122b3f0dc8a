"""Conversations as every server wants them: each call answered once, right after its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agentkit.core.contracts.history import NO_RESULT
from agentkit.errors import ConfigurationError
from agentkit.providers.history import guard_history, wire_id

A, B = ToolCall("a", "f"), ToolCall("b", "g")


def test_a_sound_conversation_is_passed_on_itself() -> None:
    """Nothing is copied when nothing is wrong."""
    messages = (
        SystemMessage("s"),
        UserMessage("u"),
        AssistantMessage("", (A, B)),
        ToolMessage("b", "2"),
        ToolMessage("a", "1"),
    )
    guarded = guard_history(messages)
    assert guarded.messages is messages
    assert (guarded.ids, guarded.repairs) == ({"a", "b"}, ())


def test_unanswered_calls_are_answered_in_place() -> None:
    """B42: a call whose result was never stored gets one that says so, right after its turn."""
    guarded = guard_history((UserMessage("u"), AssistantMessage("", (A, B)), UserMessage("hello?")))
    repaired = guarded.messages
    assert [getattr(message, "content", "") for message in repaired[2:]] == [NO_RESULT, NO_RESULT, "hello?"]
    assert [message.call_id for message in repaired[2:4] if isinstance(message, ToolMessage)] == ["a", "b"]
    assert [(each.kind, each.what) for each in guarded.repairs] == [("history", "2 calls ('a', 'b') without a result")]


def test_late_results_move_to_their_turn() -> None:
    """A result after the user's next message goes back to where its call is."""
    guarded = guard_history((UserMessage("u"), AssistantMessage("", (A,)), UserMessage("wait"), ToolMessage("a", "1")))
    repaired = guarded.messages
    assert [each.what for each in guarded.repairs] == ["1 call ('a') answered late"]
    assert repaired[2] == ToolMessage("a", "1")
    assert repaired[3] == UserMessage("wait")


def test_one_id_in_two_turns_keeps_both_results() -> None:
    """B16: calls that share an id across turns or within one become unique with their own results."""
    turn = AssistantMessage("", (A,))
    guarded = guard_history((turn, ToolMessage("a", "1"), turn, ToolMessage("a", "2")))
    repaired = guarded.messages
    calls = [message.tool_calls[0].id for message in repaired if isinstance(message, AssistantMessage)]
    results = [(message.call_id, message.content) for message in repaired if isinstance(message, ToolMessage)]
    assert results == [(calls[0], "1"), (calls[1], "2")]
    assert len(guarded.ids) == 2
    assert guard_history((turn, ToolMessage("a", "1"), turn, ToolMessage("a", "2"))) == guarded
    assert len(guarded.repairs) == 1


def test_b8_a_call_without_a_name_is_left_out() -> None:
    """B8: a stored call that no server takes goes with its result, named or not, and the rest stays sound."""
    nameless = ToolCall("x", "", '{"path": "a"}')
    messages = (
        UserMessage("u"),
        AssistantMessage("", (nameless, A)),
        ToolMessage("x", "no such tool"),
        ToolMessage("a", "1"),
        AssistantMessage("", (ToolCall("", ""),)),
        ToolMessage("", "no such tool"),
        UserMessage("go on"),
    )
    guarded = guard_history(messages)
    assert tuple(guarded.messages) == (
        UserMessage("u"),
        AssistantMessage("", (A,)),
        ToolMessage("a", "1"),
        UserMessage("go on"),
    )
    assert [each.what for each in guarded.repairs] == ["2 calls ('x', '') without a name"]


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ((), "empty"),
        ((UserMessage("u"), ToolMessage("x", "1")), "'x'"),
        ((AssistantMessage("", (A,)), ToolMessage("a", "1"), ToolMessage("a", "2")), "'a'"),
        ((ToolMessage("a", "1"), AssistantMessage("", (A,))), "'a'"),
        ((AssistantMessage("", (ToolCall("a", ""),)),), "nothing that can be sent"),
    ],
)
def test_results_without_a_call_are_refused(messages: tuple[Message, ...], named: str) -> None:
    """What cannot be repaired without inventing is an error that names the place."""
    with pytest.raises(ConfigurationError, match=named):
        guard_history(messages)


IDS = st.sampled_from(["a", "b", "c", ""])
NAMES = st.sampled_from(["f", "f", "g", ""])
MESSAGES = st.one_of(
    st.builds(UserMessage, st.just("u")),
    st.builds(AssistantMessage, st.just("t"), st.lists(st.builds(ToolCall, IDS, NAMES), max_size=3).map(tuple)),
    st.builds(ToolMessage, IDS, st.just("r")),
)


@given(st.lists(MESSAGES, min_size=1, max_size=9).map(tuple))
def test_any_conversation_is_sound_or_refused(messages: tuple[Message, ...]) -> None:
    """After the guard every call has exactly one answer directly after its turn, ids are unique, nothing is lost."""
    try:
        guarded = guard_history(messages)
    except ConfigurationError:
        return
    repaired = guarded.messages
    waiting: set[str] = set()
    seen: list[str] = []
    for message in repaired:
        if isinstance(message, ToolMessage):
            waiting.remove(message.call_id)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            assert all(call.id and call.name for call in message.tool_calls)
            waiting = {call.id for call in message.tool_calls}
            seen += [call.id for call in message.tool_calls]
    assert not waiting
    assert len(seen) == len(set(seen))
    assert set(seen) == guarded.ids
    assert [m for m in messages if isinstance(m, UserMessage)] == [m for m in repaired if isinstance(m, UserMessage)]
    if all(call.name for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls):
        kept = sum(isinstance(m, ToolMessage) and m.content == "r" for m in repaired)
        assert kept == sum(isinstance(m, ToolMessage) for m in messages)
    assert bool(guarded.repairs) == (repaired is not messages)
    assert guard_history(repaired).messages is repaired


@given(st.text(max_size=80))
def test_ids_fit_what_a_server_takes(given_id: str) -> None:
    """An id is itself where it fits, otherwise one of the allowed form, the same each time."""
    assert wire_id(given_id, "any") == given_id
    nine = wire_id(given_id, "nine")
    assert len(nine) == 9
    assert nine.isascii()
    assert nine.isalnum()
    assert wire_id(given_id, "nine") == nine
    word = wire_id(given_id, "word")
    assert 0 < len(word) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in word)
