"""An answer that outgrows its bound is cut where it would cross a ceiling, and what was said is kept."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agentkit import Agent, Binding, Budget, CallRuntime, ModelSettings, Quota
from agentkit.core.contracts import (
    AssistantMessage,
    ChatEnd,
    ChatRequest,
    ChatResponse,
    Rates,
    Route,
    TextDelta,
    Usage,
    UserMessage,
)
from agentkit.errors import MeterExceeded, StreamBroken
from agentkit.middleware.meter import meter
from agentkit.testing import Reply, ScriptedModel, make_context

RATES = Rates(Decimal(1), Decimal(2), rule="test")
REQUEST = ChatRequest((UserMessage("x" * 396),), settings=ModelSettings(max_tokens=20))  # 103 tokens, 20 reserved
LONG = " ".join(["word"] * 2000)
CEILING = Decimal("0.001")


class Endless:
    """A model that heeds no cap, and tells whether it was closed; closing may fail."""

    provider, name = "test", "endless"

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.said = 0
        self.closed = False

    async def stream(self, call):
        try:
            while True:
                self.said += 1
                yield TextDelta("four")
        finally:
            self.closed = True
            if self.fails is not None:
                raise self.fails


def route(port):
    """Return a priced route to the port."""
    return Route(port, "m", "test", rates=RATES)


@pytest.mark.parametrize("on_exceeded", ["raise", "stop"])
async def test_an_answer_is_cut_where_it_would_cross_the_ceiling(on_exceeded):
    """Closed before the error is told, text kept, usage estimated and flagged, spent within the ceiling, none held."""
    model, quota = Endless(), Quota(max_usd="100")
    budget = Budget(CEILING, on_exceeded=on_exceeded, stop_midstream=True)
    ctx = make_context(middleware=[meter()], budget=budget, meters=[quota])
    with pytest.raises(MeterExceeded, match=r"the answer was cut: cost up to \$0\.001") as cut:
        await ctx.invoker.chat(REQUEST, ctx, route=route(model))
    assert model.closed
    assert (cut.value.axis, cut.value.suspends) == ("cost", on_exceeded == "stop")
    (row,) = ctx.account.records
    assert cut.value.partial == "four" * model.said
    assert row.usage == Usage(103, model.said, estimated=True)
    assert (row.outcome, row.accepted) == ("closed", True)
    assert row.cost == budget.spent() == quota.spent_in_window(ctx.scope.key()) == cut.value.cost
    assert CEILING * 9 / 10 < budget.spent() <= CEILING
    assert budget.held() == 0 and not budget.exhausted()


async def test_without_the_option_an_answer_is_never_cut():
    """It is finished, paid for, and only the next call is refused."""
    ctx = make_context(middleware=[meter()], budget=Budget(CEILING))
    answer = await ctx.invoker.chat(REQUEST, ctx, route=route(ScriptedModel([Reply(LONG, usage=Usage(103, 2500))])))
    assert answer.message.content == LONG and ctx.budget.spent() > CEILING
    with pytest.raises(MeterExceeded, match=r"cost \$0\.00"):
        await ctx.invoker.chat(REQUEST, ctx, route=route("never"))


async def test_an_answer_that_fits_is_not_touched():
    """One that is longer than its bound grows it, and passes whole while money is left."""
    budget = Budget("1.00", stop_midstream=True)
    ctx = make_context(middleware=[meter()], budget=budget)
    answer = await ctx.invoker.chat(REQUEST, ctx, route=route(ScriptedModel([Reply(LONG, usage=Usage(103, 2500))])))
    assert answer.message.content == LONG and budget.held() == 0


async def test_the_money_that_others_hold_is_theirs():
    """While another attempt is open its bound counts: together they stay under the ceiling."""
    budget = Budget(CEILING, stop_midstream=True)
    ctx = make_context(middleware=[meter()], budget=budget)
    async with ctx.invoker.stream(REQUEST, ctx, route=route(Endless())) as events:
        await anext(events)
        held = budget.held()
        with pytest.raises(MeterExceeded, match="cut"):
            await ctx.invoker.chat(REQUEST, ctx, route=route(Endless()))
        assert budget.held() == held and budget.spent() + held <= CEILING


async def test_an_error_of_closing_is_kept_beside_the_cut():
    """The error is the budget's, and that of closing is its cause."""
    broken = StreamBroken("could not close", provider="test")
    ctx = make_context(middleware=[meter()], budget=Budget(CEILING, stop_midstream=True))
    with pytest.raises(MeterExceeded) as cut:
        await ctx.invoker.chat(REQUEST, ctx, route=route(Endless(broken)))
    assert cut.value.__cause__ is broken and cut.value.partial


async def test_tokens_are_a_ceiling_too():
    """An answer is cut at the tokens that all answers may have together."""
    budget = Budget(max_output_tokens=200, stop_midstream=True)
    ctx = make_context(middleware=[meter()], budget=budget)
    with pytest.raises(MeterExceeded, match="output tokens up to") as cut:
        await ctx.invoker.chat(REQUEST, ctx, route=route(Endless()))
    assert cut.value.axis == "output tokens" and 100 < budget.usage.output_tokens <= 200


@pytest.mark.parametrize("on_exceeded", ["raise", "stop"])
async def test_a_run_keeps_what_was_said_and_can_ask_again(on_exceeded):
    """The text is on the error or the result, not in the transcript that a resumed run goes on with."""
    model = ScriptedModel([Reply(LONG, usage=Usage(103, 2500)), "done"])
    agent = Agent("a", Binding(model, price="1/2", settings=ModelSettings(max_tokens=20)))
    async with CallRuntime() as calls:
        ctx = calls.context("r", budget=Budget("0.0005", on_exceeded=on_exceeded, stop_midstream=True))
        if on_exceeded == "stop":
            stopped = await agent.run("go", ctx)
            assert stopped.is_suspended and stopped.partial and LONG.startswith(stopped.partial)
            assert len(stopped.messages) == 1 and stopped.text == ""
        else:
            with pytest.raises(MeterExceeded) as cut:
                await agent.run("go", ctx)
            assert LONG.startswith(cut.value.messages[-1]["content"]) and cut.value.messages[-1]["content"]
        spent = ctx.budget.spent()
        ctx.budget.max_cost_usd = "1"
        done = await agent.resume("r", ctx)
        assert done.text == "done" and done.cost == ctx.budget.spent() > spent > 0


async def test_the_end_of_an_answer_is_not_cut_off():
    """An answer that arrives whole, longer than its bound and without usage, is kept whatever it likely cost."""

    class Whole:
        provider, name = "test", "whole"

        async def stream(self, call):
            yield ChatEnd(ChatResponse(AssistantMessage(LONG), Usage(None, None)))

    ctx = make_context(middleware=[meter()], budget=Budget(CEILING, stop_midstream=True))
    answer = await ctx.invoker.chat(REQUEST, ctx, route=route(Whole()))
    assert answer.message.content == LONG and ctx.budget.spent() > CEILING
