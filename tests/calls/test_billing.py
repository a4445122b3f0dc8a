"""From the wire to the record: what was billed, at which rates, and what providers say of their own limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentkit import Binding, Budget, CallRuntime, ModelSettings, Quota, RetryPolicy, Scope, UnpricedPolicy, UserMessage
from agentkit.catalog import PriceRow, PriceTable, parse_price, reconcile
from agentkit.core.contracts import (
    Call,
    ChatEvent,
    ChatRequest,
    CostQuery,
    CostRecord,
    JsonObject,
    Rates,
    Route,
    UnitRate,
    Usage,
)
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.errors import ConfigurationError, MeterExceeded, RateLimited, StreamBroken, UnpricedModel
from agentkit.middleware.meter import meter
from agentkit.providers.model import build_model
from agentkit.providers.profiles import find_profile
from agentkit.testing import ManualClock, Reply, ScriptedModel
from agentkit.testing.loopback import Given, HttpAnswer, LoopbackServer
from agentkit.testing.subprocess_adapter import SubprocessAdapter
from agentkit.testing.turns import Turn, sse

D = Decimal
SONNET = "claude-sonnet-4-5"
TABLE = PriceTable()  # the shipped list


def event(kind: str, **fields: Any) -> bytes:
    """Return one event of the Messages protocol."""
    return sse({"type": kind, **fields}, kind)


def claude(usage: JsonObject, *, model: str = SONNET, pieces: int = 1, then: Any = "end") -> HttpAnswer:
    """Return a streamed answer with this usage, told at its start and again at its end unless it breaks off."""
    message = {"id": "m1", "type": "message", "role": "assistant", "model": model, "content": []}
    start = {name: value for name, value in usage.items() if name != "server_tool_use"}
    said = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": "words "})] * pieces
    events = [
        event("message_start", message={**message, "usage": {**start, "output_tokens": 1}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *said,
    ]
    if then == "end":
        events.append(event("content_block_stop", index=0))
        events.append(event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage))
        events.append(event("message_stop"))
    return HttpAnswer(headers={"content-type": "text/event-stream"}, pieces=tuple(events), then=then)


def chat(usage: JsonObject | None = None, tier: str | None = None, model: str = "m", **headers: str) -> HttpAnswer:
    """Return a streamed Chat Completions answer."""
    base: JsonObject = {"id": "c1", "model": model, **({"service_tier": tier} if tier else {})}
    told = usage or {"prompt_tokens": 1_000, "completion_tokens": 1_000}
    chunks: list[JsonObject] = [
        {**base, "choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}]},
        {**base, "choices": [], "usage": told},
    ]
    kind = {"content-type": "text/event-stream"}
    return HttpAnswer(headers={**kind, **headers}, pieces=(*map(sse, chunks), b"data: [DONE]\n\n"))


def listed(model: str, *rows: PriceRow, provider: str = "openai") -> PriceTable:
    """Return a table with a standard rule and these."""
    return PriceTable([PriceRow(provider=provider, model=model, rates=Rates(D(10), D(10), rule="standard")), *rows])


def rule(price: int, provider: str = "openai", **fields: Any) -> PriceRow:
    """Return a rule of model m at so many dollars a million."""
    return PriceRow(provider=provider, model="m", rates=Rates(D(price), D(price), rule=str(fields)), **fields)


async def priced(
    server: LoopbackServer,
    pricing: Any,
    name: str,
    *,
    settings: ModelSettings | None = None,
    budget: Budget | None = None,
    **more: Any,
) -> CostRecord:
    """Return the record of one call at the prices of the provider itself, whose server this is."""
    provider, _, model = name.partition(":")
    url = server.origin if provider == "anthropic" else server.url
    port = build_model(find_profile(provider), base_url=url, api_key="k")
    invoker = Invoker(llm=port, chat_middleware=(meter(pricing, UnpricedPolicy.ALLOW),))
    ctx = RunContext("r", Scope(tenant="acme"), budget=budget or Budget(), services=Services(invoker=invoker))
    request = ChatRequest((UserMessage("q"),), settings=settings or ModelSettings())
    try:
        await invoker.chat(request, ctx, route=Route(port, model, provider, **more))
    finally:
        await port.aclose()
    return ctx.account.records[-1]


def bind(server: LoopbackServer, model: str, **more: Any) -> Binding:
    """Return a binding of a provider's model to the server."""
    url = server.origin if model.startswith("anthropic") else server.url
    return Binding(model, base_url=url, api_key="k", **more)


async def test_searches_of_a_streamed_answer_cost_what_the_list_says() -> None:
    """Two searches of a streamed answer of Claude are on its bill, with the tokens, to the last digit."""
    usage: JsonObject = {
        "input_tokens": 1_000,
        "cache_read_input_tokens": 10_000,
        "output_tokens": 200,
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
    }
    async with LoopbackServer([claude(usage)]) as server:
        record = await priced(server, TABLE, f"anthropic:{SONNET}")
    assert record.usage.units == (("web_searches", 2),)
    assert record.cost == D("0.003") + D("0.003") + D("0.003") + D("0.02")  # 3, 0.30 and 15 a million, 10 a thousand
    assert record.raw_usage == usage


async def test_the_raw_usage_survives_the_ledger(tmp_path: Path) -> None:
    """What the provider said is in the settled row, word for word."""
    told: JsonObject = {"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.00035, "is_byok": False}
    async with LoopbackServer([chat(told)]) as server:
        async with CallRuntime(store=f"sqlite:{tmp_path}/money.db") as calls:
            await calls.ask(bind(server, "openai:m", price="20/70"), "q")
            (entry,) = (await calls.services.ledger.entries(CostQuery(tenant=None))).entries
    assert entry.record.raw_usage == told
    assert reconcile(entry.record).disposition == "equal"


async def test_b65_an_early_close_counts_what_was_reported_at_the_start(tmp_path: Path) -> None:
    """B65: input as message_start told it, output estimated from 40 delivered pieces, flagged, and the tier's price."""
    answer = claude({"input_tokens": 25, "service_tier": "standard"}, pieces=40, then="hang")
    async with LoopbackServer([answer]) as server, CallRuntime(store=f"sqlite:{tmp_path}/money.db") as calls:
        async with calls.stream(bind(server, f"anthropic:{SONNET}", price="3/15"), "q" * 4_000) as events:
            heard = 0
            async for each in events:
                heard += "words" in str(getattr(getattr(each, "event", None), "text", ""))
                if heard == 40:
                    break
        (entry,) = (await calls.services.ledger.entries(CostQuery(tenant=None))).entries
    record = entry.record
    assert record.outcome in ("closed", "cancelled")
    assert (record.usage.input_tokens, record.usage.estimated) == (25, True)
    assert record.usage.output_tokens == 60
    assert record.cost == D(25 * 3 + 60 * 15) / 1_000_000
    assert record.raw_usage is not None and record.raw_usage["input_tokens"] == 25


async def test_a_stream_that_breaks_keeps_its_raw_usage(tmp_path: Path) -> None:
    """The attempt that failed has the usage that was reported before, and what the provider said."""
    answer = claude({"input_tokens": 25, "speed": "fast"}, pieces=4, then="close")
    policy = RetryPolicy(max_attempts=1)
    async with (
        LoopbackServer([answer]) as server,
        CallRuntime(store=f"sqlite:{tmp_path}/money.db", retry=policy) as calls,
    ):
        with pytest.raises(StreamBroken) as caught:
            await calls.ask(bind(server, f"anthropic:{SONNET}", price="3/15"), "q")
        (entry,) = (await calls.services.ledger.entries(CostQuery(tenant=None))).entries
    assert entry.record.raw_usage == caught.value.raw_usage == {"input_tokens": 25, "speed": "fast", "output_tokens": 1}
    assert (entry.record.usage.input_tokens, entry.record.billing) == (25, {"speed": "fast"})


@pytest.mark.parametrize(
    ("asked", "served", "price"),
    [
        ("flex", "default", 10),
        ("flex", None, 5),
        ("flex", "flex", 5),
        (None, "priority", 20),
        (None, None, 10),
        ("priority", "default", 10),
        ("auto", "flex", 5),
    ],
)
async def test_b58_the_tier_that_served_sets_the_price(asked: str | None, served: str | None, price: int) -> None:
    """B58: the response's tier, else the one that was asked for, else the standard one."""
    table = listed("m", rule(5, tier="flex"), rule(20, tier="priority"))
    async with LoopbackServer([chat(tier=served)]) as server:
        settings = ModelSettings(service_tier=asked)
        record = await priced(server, table, "openai:m", settings=settings)
    assert record.cost == D(price * 2_000) / 1_000_000


@pytest.mark.parametrize(
    ("asked", "fits"), [("flex", "0.02"), ("default", "0.02"), (None, "0.04"), ("priority", "0.04")]
)
async def test_b58_the_dearest_tier_that_can_serve_is_reserved(asked: str | None, fits: str) -> None:
    """B58: flex may be served as standard, and no tier as the account's own; a ceiling just below is a refusal."""
    table = listed("m", rule(5, tier="flex"), rule(20, tier="priority"), rule(500, tier="batch"))
    settings = ModelSettings(service_tier=asked, max_tokens=1_000)
    for ceiling, admitted in ((D(fits), True), (D(fits) / 2, False)):
        async with LoopbackServer([chat(tier="flex")]) as server:
            budget = Budget(ceiling, max_wait=0)
            call = priced(server, table, "openai:m", settings=settings, budget=budget)
            if admitted:
                await call
            else:
                with pytest.raises(MeterExceeded):
                    await call
            assert len(server.requests) == admitted


async def test_facts_of_a_binding_find_its_rule_and_answers_know_better() -> None:
    """Region and biller pick the rule; an answer that says it ran elsewhere is priced as it says."""
    facts = {"inference_geo": "eu", "biller": "azure"}
    table = listed(
        "m",
        rule(12, "anthropic", facts=facts),
        rule(11, "anthropic", facts={"inference_geo": "us"}),
        provider="anthropic",
    )
    usage: JsonObject = {"input_tokens": 1_000, "output_tokens": 1_000}
    for told, price in (({}, 12), ({"inference_geo": "us"}, 11), ({"inference_geo": "not_available"}, 12)):
        async with LoopbackServer([claude({**usage, **told})]) as server:
            record = await priced(server, table, "anthropic:m", billing=facts)
        assert record.cost == D(price * 2_000) / 1_000_000
    assert record.billing == facts
    async with LoopbackServer([claude(usage)]) as server:
        record = await priced(server, table, "anthropic:m")
    assert record.cost == D("0.02")


async def test_what_costs_extra_is_never_priced_as_standard() -> None:
    """Fast answers have their own list price or none; those that stay in a region cost a tenth more, searches not."""
    usage: JsonObject = {"input_tokens": 1_000, "output_tokens": 0, "server_tool_use": {"web_search_requests": 1}}
    found = {}
    for told in ({}, {"inference_geo": "us"}, {"speed": "standard"}, {"speed": "fast"}):
        async with LoopbackServer([claude({**usage, **told})]) as server:
            found[str(told)] = (await priced(server, TABLE, f"anthropic:{SONNET}")).cost
    plain = D("0.003") + D("0.01")
    assert list(found.values()) == [plain, D("0.0033") + D("0.01"), plain, None]
    fast = TABLE.find("anthropic", "claude-opus-4-8", facts={"speed": "fast"})
    assert fast is not None and fast.input == D(10)
    both = TABLE.find("anthropic", "claude-opus-4-8", facts={"speed": "fast", "inference_geo": "us"})
    assert both is not None and both.input == D(11)


@pytest.mark.parametrize(
    "billing", [{"region": ""}, {"region": 1}, {" ": "eu"}, {"region": "*"}, {"tier": "flex"}, "eu"]
)
def test_billing_facts_are_checked(billing: Any) -> None:
    """What can match no rule is refused where it is written."""
    with pytest.raises(ConfigurationError, match="billing"):
        Binding("openai:m", billing=billing)
    with pytest.raises(ConfigurationError, match="leave one out"):
        Binding("openai:m", billing={"region": "eu"}, price="1/2")


async def test_a_rule_that_needs_a_fact_makes_its_model_known() -> None:
    """A model that has a price for one region only is no typing mistake there, and is one elsewhere."""
    table = PriceTable().with_rule(rule(5, "anthropic", facts={"region": "eu"}))
    async with CallRuntime(pricing=table) as calls:
        assert calls.services.models is not None
        assert calls.services.models.route(Binding("anthropic:m", api_key="k", billing={"region": "eu"})).listed
    assert table.find("anthropic", "m", facts={"region": "us"}) is None


class OldSource:
    """A price source of before facts."""

    def find(self, provider: str, model: str, *, at: datetime | None = None, tier: str | None = None) -> Rates | None:
        return Rates(D(1), D(1), rule="old")


async def test_price_sources_without_facts_keep_working() -> None:
    """They are asked as before; a binding with facts that such a source would not see is told so, before sending."""
    async with LoopbackServer(
        [chat(), claude({"input_tokens": 1_000, "output_tokens": 1_000, "speed": "fast"})]
    ) as server:
        assert (await priced(server, OldSource(), "openai:m")).cost == D("0.002")
        assert (await priced(server, OldSource(), "anthropic:m")).cost == D("0.002")
        with pytest.raises(ConfigurationError, match="takes no facts"):
            await priced(server, OldSource(), "openai:m", billing={"region": "eu"})
        assert len(server.requests) == 2


class TieredSource:
    """A price source that knows tiers, and no more than `find`."""

    def find(self, provider: str, model: str, *, at: Any = None, tier: str | None = None, facts: Any = None) -> Rates:
        return Rates(D(0), D(5) if tier == "flex" else D(10), rule=str(tier))


async def test_b58_a_source_of_ones_own_is_asked_for_the_standard_tier_too() -> None:
    """B58: flex is reserved at the standard price, which may be the one served, also without `possible`."""
    settings = ModelSettings(service_tier="flex", max_tokens=1_000)
    async with LoopbackServer([chat(tier="flex")]) as server:
        with pytest.raises(MeterExceeded):
            await priced(server, TieredSource(), "openai:m", settings=settings, budget=Budget("0.0099", max_wait=0))
        record = await priced(server, TieredSource(), "openai:m", settings=settings, budget=Budget("0.01", max_wait=0))
    assert (record.cost, len(server.requests)) == (D("0.005"), 1)


async def test_a_unit_without_a_rate_makes_its_call_unknown_and_no_other() -> None:
    """Code that ran and has no price leaves a lower bound and a warning; an ordinary call of that rule is priced."""
    usage: JsonObject = {"input_tokens": 1_000, "output_tokens": 0}
    ran: JsonObject = {**usage, "server_tool_use": {"code_execution_requests": 1}}
    async with LoopbackServer([claude(ran), claude(usage)]) as server:
        unknown = await priced(server, TABLE, f"anthropic:{SONNET}")
        ordinary = await priced(server, TABLE, f"anthropic:{SONNET}")
    assert (unknown.cost, unknown.known_cost) == (None, D("0.003"))
    assert ordinary.cost == D("0.003")


async def test_modality_and_cache_that_nobody_splits_is_unknown() -> None:
    """Audio beside cache reads of which nobody says how many were audio: no cost, and a lower bound."""
    units = (UnitRate("input_audio_tokens", D(40), 1_000_000), UnitRate("cache_audio_read_tokens", D(2), 1_000_000))
    rates = Rates(D(4), D(16), D(1), rule="audio", units=units)
    details: JsonObject = {"audio_tokens": 600, "cached_tokens": 300}
    told: JsonObject = {"prompt_tokens": 1_000, "completion_tokens": 0, "prompt_tokens_details": details}
    split: JsonObject = {**told, "prompt_tokens_details": {**details, "cached_tokens_details": {"audio_tokens": 100}}}
    async with LoopbackServer([chat(told), chat(split)]) as server:
        unknown = await priced(server, TABLE, "openai:m", rates=rates)
        known = await priced(server, TABLE, "openai:m", rates=rates)
    assert unknown.cost is None and unknown.known_cost > 0
    assert known.cost == (D(500) * 40 + D(100) * 2 + D(200) * 1 + D(200) * 4) / 1_000_000


def by_provider(call: Call[ChatRequest]) -> str:
    """Return the provider as a quota's key."""
    return "" if call.route is None else call.route.provider


@pytest.mark.parametrize(
    "first",
    [
        HttpAnswer(status=429, headers={"retry-after": "30"}, pieces=(b'{"error":{"message":"slow down"}}',)),
        chat(**{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}),
    ],
)
async def test_a_provider_that_is_full_is_left_alone_by_all_runs(first: Given) -> None:
    """After a 429, or an answer that says nothing is left, nobody's call goes to that model until it opens again."""
    clock = ManualClock()
    quota = Quota(by=by_provider, clock=clock)
    async with LoopbackServer([first, chat()]) as server:
        async with CallRuntime(quota=quota, retry=RetryPolicy(max_attempts=1)) as calls:
            binding, other = bind(server, "openai:m", price="1/1"), bind(server, "openai:another", price="1/1")
            one = calls.context("one", Scope(tenant="acme"))
            two = calls.context("two", Scope(tenant="other"))
            try:
                await calls.ask(binding, "q", ctx=one)
            except RateLimited as error:
                assert error.rate_limit["retry_after"] == 30
            with pytest.raises(MeterExceeded, match="the provider takes nothing"):
                await calls.ask(binding, "q", ctx=two)
            assert len(server.requests) == 1
            await calls.ask(other, "q", ctx=two)  # another model has limits of its own
            clock.advance(30)
            await calls.ask(binding, "q", ctx=two)
    assert len(server.requests) == 3


async def test_a_fallback_is_not_closed_by_the_one_before_it() -> None:
    """A 429 of the first model says nothing of the second, also where one quota counts both for a tenant."""
    busy = HttpAnswer(status=429, headers={"retry-after": "30"}, pieces=(b"{}",))
    async with LoopbackServer([busy, chat()]) as server:
        async with CallRuntime(quota=Quota(max_rpm=10), retry=RetryPolicy(max_attempts=1)) as calls:
            second = bind(server, "openai:second", price="1/1")
            answer = await calls.ask(bind(server, "openai:first", price="1/1", fallback=[second]), "q")
    assert answer.text == "Yes." and len(server.requests) == 2


async def test_a_retry_goes_out_once_its_hint_has_passed() -> None:
    """A quota that heeds a 429 does not refuse the retry that waited as long as the provider asked."""
    busy = HttpAnswer(status=429, headers={"retry-after-ms": "40"}, pieces=(b"{}",))
    async with LoopbackServer([busy, busy, chat()]) as server:
        async with CallRuntime(quota=Quota(max_rpm=10), retry=RetryPolicy(base_delay=0)) as calls:
            answer = await calls.ask(bind(server, "openai:m", price="1/1"), "q")
    assert answer.text == "Yes." and len(server.requests) == 3


async def test_limits_stand_on_the_answer() -> None:
    """What the headers say is on the response, None where they say nothing."""
    seen: list[Any] = []

    class Watching(Quota):
        def learn(self, call: Any, limit: Any, /) -> None:
            seen.append((call.route.model, limit))

    quota = Watching(max_rpm=10)
    limited = chat(**{"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"})
    async with LoopbackServer([limited, chat()]) as server, CallRuntime(quota=quota) as calls:
        await calls.ask(bind(server, "openai:m", price="1/1"), "q")
        await calls.ask(bind(server, "openai:m", price="1/1"), "q")
    ((model, limit),) = seen
    assert (model, limit.tokens_left, limit.tokens_reset) == ("m", 5, 360.0)


async def test_calls_of_a_program_are_not_single_requests() -> None:
    """A command-line program may ask its model several times for one call: its record says so, an API's does not."""
    async with CallRuntime(adapters={"echo": SubprocessAdapter()}) as calls:
        answer = await calls.ask(Binding("echo:m", price=0), "one two")
        assert [record.physical for record in answer.records] == [False]
        answer = await calls.ask(Binding(ScriptedModel(["Yes."])), "q")
        assert [record.physical for record in answer.records] == [True]


async def test_b56_a_dated_snapshot_costs_what_its_family_does() -> None:
    """B56: a real date is stripped, a made-up suffix is unpriced, and under a ceiling refused before it is sent."""
    used: JsonObject = {"input_tokens": 1_000, "output_tokens": 0}
    async with LoopbackServer([claude(used)]) as server:
        dated = await priced(server, TABLE, f"anthropic:{SONNET}-20991231")
        assert dated.cost == D("0.003")
        assert (await priced(server, TABLE, f"anthropic:{SONNET}-20991331")).cost is None
        async with CallRuntime(pricing=TABLE, budget=Budget("1")) as calls:
            with pytest.raises(UnpricedModel):
                await calls.ask(bind(server, f"anthropic:{SONNET}-20991331"), "q")
        assert len(server.requests) == 2


class Unpriced:
    """A model of somebody else's, which nobody gave a price."""

    def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        return ScriptedModel([Reply("b", usage=Usage(1_000, 0))]).stream(call)


async def test_b60_an_unpriced_call_stays_on_the_total() -> None:
    """B60: a priced and an unpriced call make a lower bound, for good; a fallback without a price is refused first."""
    priced_one = Binding(ScriptedModel([Reply("a", usage=Usage(1_000, 0))], repeat_last=True), price="400/1")
    unpriced = Binding(Unpriced())
    async with CallRuntime(unpriced_policy=UnpricedPolicy.ALLOW) as calls:
        ctx = calls.context("r", Scope(tenant="acme"), budget=Budget("5"))
        await calls.ask(priced_one, "q", ctx=ctx)
        await calls.ask(unpriced, "q", ctx=ctx)
        assert ctx.budget is not None and not ctx.budget.verdict().cost_complete
        await calls.ask(priced_one, "q", ctx=ctx)
        verdict = ctx.budget.verdict()
        assert (verdict.spent, verdict.cost_complete) == (D("0.8"), False)
    async with CallRuntime(budget=Budget("0.50")) as calls:
        with pytest.raises(UnpricedModel):
            await calls.ask(Binding(ScriptedModel(["a"]), price="400/1", fallback=[unpriced]), "q")


async def test_b64_an_explicit_zero_is_no_missing_number() -> None:
    """B64: 0 and 0 stay 0 and cost 0; only what is absent is estimated, and flagged."""
    zero = chat({"prompt_tokens": 0, "completion_tokens": 0})
    absent = chat({"prompt_tokens": 0, "completion_tokens": None})
    async with LoopbackServer([zero, absent]) as server:
        first, second = [await priced(server, TABLE, "openai:m", rates=parse_price("1000/1000")) for _ in range(2)]
    assert (first.usage, first.cost) == (Usage(0, 0), D(0))
    assert (second.usage.input_tokens, second.usage.output_tokens, second.usage.estimated) == (0, 1, True)


def test_the_day_of_a_rule_is_a_day_in_utc() -> None:
    """`possible` looks at the rules of the moment only, as `find` does."""
    later = datetime(2031, 1, 2, tzinfo=UTC)
    table = listed("m", rule(50, starts=datetime(2031, 1, 1, tzinfo=UTC).date()))
    assert {rates.input for rates in table.possible("openai", "m", at=later)} == {D(10), D(50)}
    assert {rates.input for rates in table.possible("openai", "m", at=datetime(2030, 1, 1, tzinfo=UTC))} == {D(10)}


async def test_turns_of_the_scripted_server_carry_their_usage() -> None:
    """The doubles tell raw usage as servers do, so that tests of apps see it."""
    async with LoopbackServer([Turn(text="Yes.", usage=Usage(7, 3))]) as server, CallRuntime() as calls:
        answers = await asyncio.gather(*(calls.ask(bind(server, "openai:m", price="1/1"), "q") for _ in range(3)))
    assert all(record.raw_usage is not None for answer in answers for record in answer.records)


@pytest.mark.parametrize("extra", [{"model": "gpt-5-pro"}, {"models": [SONNET, "gpt-5-pro"]}, {"models": "auto"}])
async def test_another_model_named_in_extra_is_not_billed_as_the_bindings(extra):
    """Who lets another model answer gets no price of this one: refused under a ceiling, unknown without one."""
    async with LoopbackServer([claude({"input_tokens": 1000, "output_tokens": 100})]) as server, CallRuntime() as calls:
        binding = Binding(f"anthropic:{SONNET}", base_url=server.origin, api_key="k", price="1/1")
        settings = ModelSettings(extra=extra)
        with pytest.raises(UnpricedModel, match="lets another model answer"):
            await calls.ask(binding, "Hi", settings=settings, budget=Budget("1"))
        assert not server.requests
        answer = await calls.ask(binding, "Hi", settings=settings)
        assert (answer.cost, answer.cost_complete, answer.usage.input_tokens) == (None, False, 1000)
        same = await calls.ask(binding, "Hi", settings=ModelSettings(extra={"model": SONNET}), budget=Budget("1"))
        assert same.cost == D("0.0011")
