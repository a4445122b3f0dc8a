"""What a request weighs that is no plain text, under a budget that may not be crossed."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal

import pytest

from agentkit import Binding, Budget, CallRuntime, Usage
from agentkit.catalog import bound, cost
from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatRequest,
    ModelSettings,
    OpaqueItem,
    OutputSpec,
    Rates,
    ToolSpec,
    UnitRate,
    UserMessage,
)
from agentkit.errors import ConfigurationError, MeterExceeded, UnpricedModel
from agentkit.testing import Reply, ScriptedModel
from agentkit.tools import metered

BLOB = "x" * 20_000
ASKED = (UserMessage("Hi"),)
SEALED = AssistantMessage("Yes.", opaque=(OpaqueItem(("server", "m"), "reasoning", {"encrypted_content": BLOB}),))
SCHEMA = {"type": "object", "description": BLOB}
REQUESTS = {
    "sealed reasoning": ChatRequest((*ASKED, SEALED, *ASKED)),
    "output schema": ChatRequest(ASKED, output=OutputSpec("answer", SCHEMA)),
    "tool": ChatRequest(ASKED, (ToolSpec("t", "", SCHEMA),)),
    "extra tool": ChatRequest(ASKED, settings=ModelSettings(extra={"tools": [{"name": "t", "description": BLOB}]})),
    "extra instructions": ChatRequest(ASKED, settings=ModelSettings(extra={"instructions": BLOB})),
}


class Dearest:
    """A model that bills a token for each byte it was sent and writes as much as it may."""

    def __init__(self) -> None:
        self.asked: list[Call[ChatRequest]] = []

    def stream(self, call):
        self.asked.append(call)
        used = Usage(len(BLOB), call.request.settings.max_tokens)
        return ScriptedModel([Reply("x", usage=used)]).stream(call)


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_everything_that_is_sent_counts_under_a_strict_ceiling(request_):
    """Whatever part of a request is large: the least and the most that fits are known before, and never crossed."""
    for ceiling in ("0.0225", "0.025"):
        model, budget = Dearest(), Budget(ceiling, strict=True, on_exceeded="stop")
        async with CallRuntime() as calls:
            ctx = calls.context(budget=budget)
            route = calls.services.models.route(Binding(model, price="1/1"))
            await ctx.services.invoker.chat(request_, ctx, route=route)
        assert len(model.asked) == 1
        assert Decimal("0.02") < budget.spent() <= Decimal(ceiling)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "prompt", "previous_response_id"])
async def test_a_strict_budget_refuses_what_nobody_can_bound(name):
    """A field that lifts the cap, or stands for a prompt kept elsewhere, is refused by name before anything is sent."""
    model = ScriptedModel(["Hi."], repeat_last=True)
    settings = ModelSettings(extra={name: 8})
    async with CallRuntime() as calls:
        with pytest.raises(ConfigurationError, match=name):
            await calls.ask(Binding(model), "Hi", settings=settings, budget=Budget("1", strict=True))
        assert not model.requests
        assert (await calls.ask(Binding(model), "Hi", settings=settings, budget=Budget("1"))).text == "Hi."


@pytest.mark.parametrize("per", [1, 1000, 1_000_000])
def test_a_bound_knows_modalities_however_their_rate_is_written(per):
    """A token of a modality costs at most what the bound says, whether its rate is for one, a thousand or a million."""
    for unit, used in (
        ("input_audio_tokens", Usage(10, 0, units=(("input_audio_tokens", 10),))),
        ("output_audio_tokens", Usage(0, 10, units=(("output_audio_tokens", 10),))),
    ):
        rates = Rates(Decimal(1), Decimal(1), units=(UnitRate(unit, Decimal("0.00006") * per, per=per),))
        bill = cost(rates, used)
        assert bill == Decimal("0.0006")
        assert bound(rates, used.input_tokens, used.output_tokens) == bill


async def test_an_operation_priced_by_tokens_has_to_say_how_many_at_most():
    """Without a bound it is refused under a ceiling; with one, that is reserved, and what does not fit is refused."""
    rates, used = Rates(Decimal(1), Decimal(0)), Usage(20_000, 0)
    budget = Budget("0.03")
    async with CallRuntime() as calls:
        ctx = calls.context(budget=budget)
        with pytest.raises(UnpricedModel, match="at_most="):
            async with metered(ctx, "acme", "embed", price=rates):
                raise AssertionError("it began")
        for error in (None, MeterExceeded):
            with pytest.raises(error) if error else nullcontext():
                async with metered(ctx, "acme", "embed", price=rates, at_most={"input_tokens": 20_000}) as bill:
                    assert budget.held() == Decimal("0.02")
                    bill.used(used)
    assert (budget.spent(), budget.held()) == (Decimal("0.02"), 0)
