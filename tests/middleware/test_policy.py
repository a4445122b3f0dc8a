"""The policy layers: validate, authorise, approve, in that order."""

from __future__ import annotations

import pytest

from agentkit.core.contracts import (
    CallKey,
    ChatRequest,
    Decision,
    PendingCall,
    ToolCall,
    ToolRequest,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from agentkit.core.contracts.digest import digest, pending_id
from agentkit.core.runtime.services import Services
from agentkit.errors import Cancelled, ConfigurationError, PolicyDenied, ToolError
from agentkit.middleware.policy import chat_policy, policy
from agentkit.testing import ScriptedModel, make_context


class Box:
    """A tool that keeps what it ran with."""

    idempotent = False
    timeout = None
    resumable = False

    def __init__(self, effect="read", *, requires_approval=False) -> None:
        self.effect, self.requires_approval = effect, requires_approval
        self.spec = ToolSpec("box", "", {"type": "object"})
        self.ran = []

    def bind(self, arguments):
        import json

        value = json.loads(arguments)
        if "x" not in value:
            raise ToolError("'x' is missing.", tool="box", hint='Pass {"x": 1}.')
        return value

    async def invoke(self, bound, call):
        self.ran.append(bound)
        return ToolResult("done")


class Asker:
    """A person with one answer."""

    def __init__(self, answer) -> None:
        self.answer, self.asked = answer, []

    async def ask(self, pending: PendingCall):
        self.asked.append(pending)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def decided(tool, rules=(), *, arguments='{"x": 1}', asker=None, decision=None, layers=(), **fields):
    services = Services(asker=asker)
    ctx = make_context(tool_middleware=[policy(rules), *layers], services=services, **fields)
    request = ToolRequest(tool, ToolCall("c1", "box", arguments), CallKey("r", "lead", 2, 1), None, decision)
    return await ctx.invoker.invoke_tool(request, ctx)


def deny(call):
    return Decision.deny("not on Sundays")


def ask(call):
    return Decision.ask("is it right?")


async def allow(call):
    return Decision.allow()


async def test_bad_arguments_are_an_answer_with_a_hint_and_nobody_is_asked():
    """Arguments that do not bind come back to the model as an error; neither rules nor the tool see them."""
    seen = []
    tool = Box(requires_approval=True)
    result = await decided(tool, [seen.append], arguments="{}")
    assert result == ToolResult("'x' is missing. Pass {\"x\": 1}.", "error") and not seen and not tool.ran


async def test_without_rules_or_asks_the_layer_is_not_there():
    """A call nobody has to decide on goes straight to the next layer, with its arguments bound."""
    tool = Box()
    layer, calls = policy(), []

    def terminal(call):
        calls.append(call)
        return "the stream itself"

    ctx = make_context()
    from agentkit.core.contracts import Call

    request = ToolRequest(tool, ToolCall("c1", "box", '{"x": 1}'), CallKey("r", "", 1, 0))
    assert layer(Call(ctx, request, "1"), terminal) == "the stream itself"
    assert calls[0].request.bound == {"x": 1}


@pytest.mark.parametrize(
    ("effect", "autonomy", "mode", "rules", "decision", "outcome"),
    [
        ("read", "auto", "act", [], None, "ok"),
        ("write", "auto", "act", [], None, "ok"),
        ("write", "auto", "act", [allow], None, "ok"),
        ("write", "auto", "act", [allow, deny], None, "denied"),
        ("write", "auto", "act", [ask, deny], "allow", "denied"),
        ("read", "auto", "plan", [], None, "ok"),
        ("write", "auto", "plan", [], "allow", "denied"),
        ("unknown", "auto", "plan", [ask], None, "denied"),
        ("read", "auto", "plan", [ask], None, "pending"),
        ("read", "auto", "act", [ask], None, "pending"),
        ("read", "auto", "act", [ask], "allow", "ok"),
        ("read", "auto", "act", [ask], "deny", "denied"),
        ("read", "auto", "act", [], "deny", "denied"),
        ("read", "gated", "act", [], None, "ok"),
        ("unknown", "gated", "act", [allow], None, "pending"),
        ("write", "gated", "act", [], "allow", "ok"),
        ("read", "manual", "act", [], None, "pending"),
    ],
)
async def test_deny_beats_plan_beats_ask_beats_allow(effect, autonomy, mode, rules, decision, outcome):
    """Each combination ends as the precedence says, and the tool runs only when it ends ok."""
    tool = Box(effect)
    result = await decided(tool, rules, decision=decision, autonomy=autonomy, mode=mode)
    assert result.outcome == outcome
    assert bool(tool.ran) == (outcome == "ok")


async def test_a_tool_that_requires_approval_waits_even_in_auto():
    """The author's word holds at every autonomy; the pending result says why."""
    result = await decided(Box(requires_approval=True))
    assert result == ToolResult("box requires approval", "pending")


@pytest.mark.parametrize(
    "rule",
    [lambda call: 1 / 0, lambda call: None, lambda call: True, lambda call: Decision("maybe")],
    ids=["raises", "None", "True", "unknown verdict"],
)
async def test_a_broken_rule_denies(rule):
    """A rule that fails or gives no decision fails closed."""
    tool = Box()
    assert (await decided(tool, [rule])).outcome == "denied" and not tool.ran


async def test_a_cancelled_run_is_not_a_denial():
    """The run's own end passes through a rule as what it is."""

    def rule(call):
        raise Cancelled("stop")

    with pytest.raises(Cancelled):
        await decided(Box(), [rule])


async def test_a_person_is_asked_with_what_will_run():
    """The asker gets place, arguments and their digest; an approval runs the tool."""
    asker, tool = Asker(Decision.allow(actor="ann")), Box("write")
    assert (await decided(tool, [ask], asker=asker)).outcome == "ok"
    (pending,) = asker.asked
    assert (pending.id, pending.path, pending.turn, pending.position) == ("lead:2.1", "lead", 2, 1)
    assert pending.digest == digest("box", '{ "x":1 }') and pending.reason == "is it right?"
    assert tool.ran == [{"x": 1}]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Decision.deny("no"), "denied"),
        (Decision.ask("later"), "pending"),
        (OSError("pager"), "denied"),
        ("yes", "denied"),
    ],
)
async def test_anything_but_an_approval_does_not_run(answer, outcome):
    """A denial, a deferral, a failing asker and a malformed answer leave the tool alone."""
    tool = Box()
    assert (await decided(tool, [ask], asker=Asker(answer))).outcome == outcome and not tool.ran


async def test_a_decision_given_on_resume_is_not_asked_for_again():
    """The resumed call's decision counts before the asker is bothered."""
    asker = Asker(Decision.deny())
    assert (await decided(Box(), [ask], asker=asker, decision="allow")).outcome == "ok" and not asker.asked


async def test_what_runs_is_what_was_approved():
    """A rule that changes the bound arguments does not change what runs after the approval."""

    def meddling(call):
        call.request.bound["x"] = 1_000_000
        return Decision.ask()

    tool = Box("write")
    await decided(tool, [meddling], asker=Asker(Decision.allow()))
    assert tool.ran == [{"x": 1}]


def test_digests_bind_meaning_not_spelling():
    """Key order and spaces do not matter; tool, values, types and broken text do."""
    same = {digest("t", '{"a":1,"b":[2]}'), digest("t", ' { "b" : [2], "a" : 1 } ')}
    assert len(same) == 1 and digest("t", "") == digest("t", "{}")
    others = [
        ("u", '{"a":1,"b":[2]}'),
        ("t", '{"a":"1","b":[2]}'),
        ("t", '{"a":1'),
        ("t", "NaN"),
        ("t", '"{\\"a\\":1"'),
    ]
    digests = {digest(*other) for other in others} | same
    assert len(digests) == len(others) + 1
    assert pending_id(CallKey("r", "", 1, 0)) == "1.0"


REQUEST = ChatRequest((UserMessage("hi"),))


async def test_a_chat_rule_refuses_before_anything_is_sent():
    """A denial raises PolicyDenied with its reason; an ask about a model call is a denial too."""
    for rule in (deny, ask):
        model = ScriptedModel(["never"])
        ctx = make_context(model, middleware=[chat_policy([allow, rule])])
        with pytest.raises(PolicyDenied, match=r"Sundays|right"):
            await ctx.invoker.chat(REQUEST, ctx)
        assert model.requests == []
    ctx = make_context(["ok"], middleware=[chat_policy([allow])])
    assert (await ctx.invoker.chat(REQUEST, ctx)).message.content == "ok"


@pytest.mark.parametrize("make", [policy, chat_policy])
def test_a_rule_that_is_none_is_refused_at_wiring(make):
    """Something that cannot be called is named with its place."""
    with pytest.raises(ConfigurationError, match=r"rules\[1\]"):
        make([allow, "deny"])
