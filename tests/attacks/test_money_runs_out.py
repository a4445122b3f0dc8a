"""A three-level tree whose money runs out again and again: each sitting on a new runtime, the whole as if at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal

import pytest

from agentkit import Agent, AssistantMessage, Binding, Budget, CallRuntime, Scope, ToolCall, Usage, tool
from agentkit.errors import MeterExceeded
from agentkit.testing import Reply, ScriptedModel

SCOPE = Scope(tenant="t")
USED = Usage(1000, 1000)  # costs 0.002 at 1/1
STEP = Decimal("0.0053")  # two more calls a sitting, or three
SUB_AGENTS = ("mid", "leaf")


def wish(*names):
    """Return a turn that calls these tools and agents."""
    calls = (
        ToolCall(f"{name}-{i}", name, '{"task": "t"}' if name in SUB_AGENTS else "{}") for i, name in enumerate(names)
    )
    return Reply("", tuple(calls), usage=USED)


def by_turn(*replies):
    """Return a model that answers by how often it has answered in this conversation."""
    return ScriptedModel(lambda request: replies[sum(isinstance(m, AssistantMessage) for m in request.messages)])


def say(text):
    """Return an answer."""
    return Reply(text, usage=USED)


def tree(log):
    """Return the lead of a tree that notes in `log` what its tools did."""

    def noted(name, effect, **more):
        @tool(name=name, effect=effect, **more)
        async def act() -> str:
            """Act."""
            log.append(name)
            await asyncio.sleep(0)
            return name

        return act

    look = noted("look", "read")
    leaf_model = by_turn(wish("leaf_save", "look", "leaf_ask"), wish("look"), say("leaf done"))
    leaf_tools = [noted("leaf_save", "write"), look, noted("leaf_ask", "external", requires_approval=True)]
    leaf = Agent("leaf", Binding(leaf_model, price="1/1"), tools=leaf_tools)
    mid_model = by_turn(wish("leaf", "mid_save", "leaf", "look"), wish("mid_ask", "mid_save"), say("mid done"))
    mid_tools = [look, noted("mid_save", "write"), noted("mid_ask", "write", requires_approval=True), leaf.as_tool()]
    mid = Agent("mid", Binding(mid_model, price="1/1"), tools=mid_tools)
    lead_model = by_turn(wish("mid", "look", "mid", "save"), wish("ask", "save", "leaf"), say("done"))
    lead_tools = [look, noted("save", "write"), noted("ask", "external", requires_approval=True)]
    return Agent("lead", Binding(lead_model, price="1/1"), tools=[*lead_tools, mid.as_tool(), leaf.as_tool()])


async def sit(lead, calls, budget, decisions, *, first):
    """Run or resume once; None when the ceiling was raised as an error."""
    ctx = calls.context("r", SCOPE, budget=budget)
    try:
        return await (lead.run("go", ctx) if first else lead.resume("r", ctx, decisions))
    except MeterExceeded:
        return None
    finally:
        assert budget.held() == 0


async def to_the_end(url, ceiling, on_exceeded, *, one_budget, one_by_one):
    """Run the tree with ever more money and approvals; return the result, what was done, and the last budget."""
    log, decisions, sittings = [], {}, 0
    lead = tree(log)
    budget = Budget(ceiling, on_exceeded=on_exceeded)
    while True:
        async with CallRuntime(store=url) as calls:
            result = await sit(lead, calls, budget, decisions, first=sittings == 0)
        sittings += 1
        assert sittings < 60
        decisions = {}
        if result is None or result.stop_reason == "budget_exhausted":
            ceiling += STEP
        elif result.is_suspended:
            assert result.cost == budget.spent()
            ids = [waiting.id for waiting in result.pending]
            decisions = dict.fromkeys(ids[:1] if one_by_one else ids, True)
        else:
            return result, log, budget
        if one_budget:
            budget.max_cost_usd = ceiling
        else:
            budget = Budget(ceiling, on_exceeded=on_exceeded)


@pytest.mark.parametrize("start", ["0", "0.005", "0.013", "0.021"])
@pytest.mark.parametrize("kind", ["stop", "raise"])
async def test_a_tree_that_runs_out_of_money_ends_as_if_it_never_had(kind, start, tmp_path):
    """The same transcript, cost and effects as with money enough, each effect once, whoever holds the budget."""
    plain, plain_log, _ = await to_the_end(
        f"sqlite:{tmp_path / 'plain.db'}", Decimal(9), "stop", one_budget=True, one_by_one=False
    )
    result, log, budget = await to_the_end(
        f"sqlite:{tmp_path / 'poor.db'}",
        Decimal(start),
        kind,
        one_budget=start in ("0", "0.013"),
        one_by_one=kind == "stop",
    )
    assert result.messages == plain.messages
    assert (result.output, result.cost, result.calls) == ("done", plain.cost, plain.calls)
    assert budget.spent() == result.cost
    effects, expected = Counter(log), Counter(plain_log)
    del effects["look"], expected["look"]
    assert effects == expected
    assert not budget._accounts
