"""What a long-lived budget keeps of runs: nothing of those that are over, and each is counted once."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, Scope, Usage
from agentkit.core.contracts import ChatRequest, UserMessage
from agentkit.errors import ConfigurationError
from agentkit.testing import Reply, ScriptedModel

SCOPE = Scope(tenant="t")
ANSWER = Reply("x", usage=Usage(1000, 1000))  # costs 0.002 at 1/1


async def test_resuming_a_finished_run_counts_nothing_again(tmp_path):
    """The same budget is not charged a second time for a run whose result is only read again."""
    budget = Budget("1")
    agent = Agent("a", Binding(ScriptedModel([ANSWER]), price="1/1"))
    async with CallRuntime(store=f"sqlite:{tmp_path / 'runs.db'}") as calls:
        first = await agent.run("go", calls.context("r", SCOPE, budget=budget))
        for _ in range(2):
            again = await agent.resume("r", calls.context("r", SCOPE, budget=budget))
            assert (again.output, again.cost) == (first.output, first.cost)
            assert budget.spent() == Decimal("0.002")
    assert not budget._accounts


@pytest.mark.parametrize("kind", ["run", "child", "failed child", "bare call"])
async def test_a_budget_for_life_keeps_no_account_of_what_is_over(kind):
    """Accounts do not pile up, whichever way calls were made on the runtime."""
    life = Budget("9")
    replies = [RuntimeError("no")] if kind == "failed child" else [ANSWER]
    binding = Binding(ScriptedModel(replies, repeat_last=True), price="1/1")
    agent = Agent("a", binding)
    async with CallRuntime(budget=life) as calls:
        for number in range(5):
            ctx = calls.context(f"r{number}", SCOPE, budget=life)
            if kind == "bare call":
                route = calls.services.models.route(binding)
                await ctx.services.invoker.chat(ChatRequest((UserMessage("hi"),)), ctx, route=route)
            elif kind == "failed child":
                with pytest.raises(RuntimeError):
                    await agent.run("go", ctx.child(name="one"))
            else:
                await agent.run("go", ctx if kind == "run" else ctx.child(name="one"))
        assert await calls.services.checkpointer.slots("t") == []
    assert not life._accounts
    assert life.held() == 0
    assert (life.spent() == Decimal("0.010")) is (kind != "failed child")


@pytest.mark.parametrize("key", ["acme\nother", "", "acme\x00", "acme\u2028"])
def test_a_shared_key_is_one_line_that_can_be_seen(key):
    """A tenant whose name holds a line break spends under no key but its own: such a key is refused."""
    with pytest.raises(ConfigurationError, match="shared="):
        Budget("1", shared=key)
