"""The fallback layer: which errors go on to which route, what is passed over, and what the last error tells."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from msgspec.structs import replace

from agentkit import Binding, Budget, CallRuntime, ModelSettings
from agentkit.catalog import FREE, Capabilities, CapabilityTable, parse_price
from agentkit.core.contracts import (
    AssistantMessage,
    AttemptEnded,
    ChatEnd,
    ChatRequest,
    ChatStart,
    OpaqueItem,
    RetryPolicy,
    Route,
    TextDelta,
    UserMessage,
)
from agentkit.core.runtime.services import Services
from agentkit.errors import (
    AuthFailed,
    BadRequest,
    ConfigurationError,
    ContextOverflow,
    MeterExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    StreamBroken,
    UnpricedModel,
)
from agentkit.middleware.fallback import fallback
from agentkit.middleware.meter import meter
from agentkit.middleware.retry import retry
from agentkit.observe import OtelTrace
from agentkit.testing import Fault, LoopbackServer, ManualClock, ScriptedModel, Turn, capture_spans, make_context
from agentkit.testing.loopback import HttpAnswer

REQUEST = ChatRequest((UserMessage("hi"),))
LONG = ChatRequest((UserMessage("word " * 3000),))
DOWN = Overloaded("down", retryable=False, status=503)


def a_route(name, *script, rates=FREE, then=(), **known):
    """Return a route to a model of its own."""
    model = ScriptedModel(list(script), name=name)
    return Route(model, name, "p", rates, fallback=tuple(then), capabilities=Capabilities(**known))


def a_context(attempts=1, **fields):
    layers = [fallback(), retry(RetryPolicy(max_attempts=attempts, base_delay=0)), meter()]
    return make_context("unused", middleware=layers, **fields)


async def asked(route, request=REQUEST, ctx=None):
    """Return the answer's text and the names of the models that got a request."""
    ctx = ctx or a_context()
    response = await ctx.invoker.chat(request, ctx, route=route)
    return response.message.content, [record.model for record in response.attempts]


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        RateLimited("slow down", retryable=False),
        RateLimited("no credit", retryable=False, accepted=False),
        AuthFailed("revoked"),
        StreamBroken("reset", retryable=False),
        ProviderError("malformed", code="malformed_turn", retryable=False),
        BadRequest("no such model", status=404),
        BadRequest("retired", status=400, code="model_decommissioned"),
        BadRequest("no such deployment", status=400, code="DeploymentNotFound"),
        ContextOverflow("too long"),
    ],
    ids=lambda error: f"{type(error).__name__} {error.status or error.code or ''}",
)
async def test_what_another_model_may_not_share_goes_on(error):
    """Failures of one server, account, key or model are answered by the next route."""
    assert await asked(a_route("one", error, then=[a_route("two", "second")])) == ("second", ["one", "two"])


@pytest.mark.parametrize("error", [BadRequest("no such field", status=400), Refused("no")])
async def test_what_is_wrong_or_refused_everywhere_does_not(error):
    """A bad request stays bad, and a refusal is no reason to shop for another opinion."""
    other = a_route("two", "second")
    with pytest.raises(type(error)):
        await asked(a_route("one", error, then=[other]))
    assert not other.port.requests


async def test_nothing_goes_on_after_the_first_visible_event():
    """A word that was shown is never followed by another model's answer."""
    other = a_route("two", "second")
    with pytest.raises(StreamBroken) as raised:
        await asked(a_route("one", Fault(StreamBroken("reset"), after=2), then=[other]))
    assert not other.port.requests and raised.value.attempts == 1


@pytest.mark.parametrize("attempts", [1, 2])
async def test_b71_one_start_is_seen_over_all_routes(attempts):
    """A route that failed behind its start leaves no start of its own; the attempts are numbered on."""
    broken = Fault(Overloaded("down behind its start"), after=1)
    route = a_route("one", broken, broken, then=[a_route("two", broken, broken), a_route("three", "third")])
    ctx, seen = a_context(attempts), []
    async with ctx.invoker.stream(REQUEST, ctx, route=route) as events:
        async for event in events:
            seen.append(event)
    kinds = [type(event) for event in seen]
    assert kinds == [AttemptEnded] * 2 * attempts + [ChatStart, TextDelta, AttemptEnded, ChatEnd]
    assert seen[2 * attempts].model == "three"
    rows = [event.record for event in seen if isinstance(event, AttemptEnded)]
    assert [row.attempt for row in rows] == list(range(1, 2 * attempts + 2))
    assert rows == ctx.account.records


async def test_the_last_error_tells_of_all_that_were_tried():
    """Class and hint are the last one's; `tried` is plain data of every route in order, and the text names them."""
    last = RateLimited("wait", retryable=False, retry_after=40.0, status=429)
    third = a_route("three", last)
    second = a_route("two", "unused", context_window=100)
    route = a_route("one", Overloaded("down", status=503), Overloaded("down", status=503), then=[second, third])
    with pytest.raises(RateLimited) as raised:
        await asked(route, LONG, a_context(attempts=2))
    error = raised.value
    assert error is last and error.retry_after == 40.0 and error.attempts == 3
    assert [(one["model"], one.get("error"), one.get("attempts")) for one in error.tried] == [
        ("one", "Overloaded", 2),
        ("two", None, None),
        ("three", "RateLimited", 1),
    ]
    assert error.tried[1]["skipped"] == "the conversation does not fit its window of 100 tokens"
    assert str(error) == "wait (after 3 attempts with p:one, p:two, p:three)"


async def test_an_overflow_goes_to_a_larger_window_alone():
    """A window that is known to be no larger is passed over; an unknown one is tried."""
    small, large = a_route("small", context_window=8000), a_route("large", "fits", context_window=9000)
    route = a_route("first", ContextOverflow("too long"), then=[small, large], context_window=8000)
    assert await asked(route) == ("fits", ["first", "large"])
    route = a_route("first", ContextOverflow("too long"), then=[small, a_route("unknown", "fits")], context_window=8000)
    assert await asked(route) == ("fits", ["first", "unknown"])


async def test_a_conversation_that_surely_does_not_fit_is_not_sent_to_a_small_window():
    """The first model too is passed over when another one fits; where none does, it is asked all the same."""
    first = a_route("first", ContextOverflow("too long"), then=[a_route("large", "fits")], context_window=2000)
    assert await asked(first, LONG) == ("fits", ["large"])
    first = a_route(
        "first", ContextOverflow("too long"), then=[a_route("two", context_window=100)], context_window=2000
    )
    with pytest.raises(ContextOverflow) as raised:
        await asked(first, LONG)
    assert len(first.port.requests) == 1 and "window of 100" in str(raised.value.tried)


async def test_a_fallback_the_budget_does_not_allow_is_passed_over():
    """A dear model that does not fit the money left is not sent to; a cheaper one after it is."""
    dear = a_route("dear", "unused", rates=parse_price("1000/1000"))
    cheap = a_route("cheap", "second", rates=parse_price("1/1"))
    ctx = a_context(budget=Budget("0.10"))
    assert await asked(a_route("one", DOWN, then=[dear, cheap]), ctx=ctx) == ("second", ["one", "cheap"])
    ctx = a_context(budget=Budget("0.10"))
    with pytest.raises(Overloaded) as raised:
        await asked(a_route("one", DOWN, then=[dear]), ctx=ctx)
    assert "cost up to" in str(raised.value.tried[1]["skipped"]) and ctx.budget.held() == 0
    with pytest.raises(MeterExceeded):  # of the first model the budget's refusal is the answer
        await asked(replace(dear, fallback=(cheap,)), ctx=a_context(budget=Budget("0.10")))
    assert not dear.port.requests


async def test_a_strict_budget_caps_the_model_that_is_tried():
    """The output cap is made for the fallback's own price, not for the first one's."""
    dear = a_route("dear", "second", rates=parse_price("0/100"))
    ctx = a_context(budget=Budget("0.10", strict=True))
    await asked(a_route("one", DOWN, rates=parse_price("0/1"), then=[dear]), ctx=ctx)
    assert dear.port.requests[0].settings.max_tokens == 1000


async def test_every_route_is_priced_before_the_first_is_sent_to():
    """Under a money ceiling an unpriced route is refused, however deep it lies."""
    deep = a_route("two", "x", then=[a_route("three", "x", rates=None)])
    unpriced = replace(deep.fallback[0], port=object())
    first = a_route("one", "x", then=[replace(deep, fallback=(unpriced,))])
    with pytest.raises(UnpricedModel, match="p:three"):
        await asked(first, ctx=a_context(budget=Budget("1.00")))
    assert not first.port.requests


async def test_a_fallbacks_own_fallbacks_come_right_after_it():
    """Routes are walked depth first, each model of a server once."""
    inner = a_route("inner", DOWN)
    second = a_route("two", DOWN, then=[inner])
    route = a_route("one", DOWN, then=[second, inner, a_route("last", "at last")])
    assert await asked(route) == ("at last", ["one", "two", "inner", "last"])


async def test_a_short_wait_is_waited_and_a_long_one_is_spent_on_the_next_model():
    """With another model at hand a Retry-After beyond the policy's longest delay is not waited out."""
    for hint, expected in [(5.0, ("patient", ["one", "one"])), (40.0, ("second", ["one", "two"]))]:
        clock = ManualClock()
        first = ScriptedModel([RateLimited("later", retry_after=hint), "patient"], clock=clock)
        route = Route(first, "one", "p", FREE, fallback=(a_route("two", "second"),))
        ctx = make_context("unused", middleware=[fallback(), retry(), meter()], clock=clock)
        task = asyncio.create_task(asked(route, ctx=ctx))
        await clock.run_for(60)
        assert await task == expected


async def test_what_was_passed_over_is_on_the_span():
    """Each route that did not serve the call leaves an event with its reason."""
    spans = capture_spans()
    small = Binding(ScriptedModel("unused", name="small"))
    large = Binding(ScriptedModel("fits", name="large"))
    first = Binding(ScriptedModel([DOWN], name="first"), fallback=[small, large])
    table = CapabilityTable().with_model("scripted", "small", Capabilities(context_window=100))
    async with CallRuntime(capabilities=table, services=Services(trace=OtelTrace(spans.provider))) as calls:
        answer = await calls.ask(first, "word " * 3000)
    assert (answer.text, answer.model) == ("fits", "large")
    left = [dict(event.attributes) for span in spans.spans for event in span.events if event.name == "fallback.left"]
    assert [(one["gen_ai.request.model"], one["reason"]) for one in left] == [
        ("first", "Overloaded"),
        ("small", "the conversation does not fit its window of 100 tokens"),
    ]


async def test_opaque_items_are_dropped_for_another_model_and_told_or_refused():
    """Over real sockets: the first server fails, the second gets the conversation without the first one's reasoning."""
    item = OpaqueItem(("http://elsewhere/v1", "m"), "reasoning", {"type": "reasoning", "id": "r1"})
    messages = (UserMessage("a"), AssistantMessage("b", opaque=(item,)), UserMessage("c"))
    async with LoopbackServer([HttpAnswer(status=503)]) as down, LoopbackServer([Turn(text="fine")]) as up:
        second = Binding("openai:m2", base_url=up.url, api_key="k", price="0/0")
        binding = Binding("openai:m", base_url=down.url, api_key="k", price="0/0", fallback=[second])
        async with CallRuntime(retry=RetryPolicy(max_attempts=1)) as calls:
            answer = await calls.ask(binding, messages)
            assert answer.text == "fine" and [one.kind for one in answer.adjustments] == ["replay"]
            with pytest.raises(ConfigurationError):
                await calls.ask(binding, messages, settings=ModelSettings(replay="refuse"))
    assert answer.cost == Decimal(0) and len(up.requests) == 1
