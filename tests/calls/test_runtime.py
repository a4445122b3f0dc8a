"""CallRuntime: every parameter has an effect, resources are held and released, and it does not grow."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from decimal import Decimal

import pytest

from agentkit import (
    Agent,
    AppData,
    Binding,
    Budget,
    CallRuntime,
    CancellationToken,
    Invoker,
    Key,
    ModelSettings,
    NativeToolPolicy,
    Quota,
    RetryPolicy,
    RunContext,
    Scope,
    Services,
    ToolCall,
    UnpricedPolicy,
    Usage,
    ask,
    tool,
)
from agentkit.catalog import Capabilities, CapabilityTable, parse_price
from agentkit.core.contracts import CostQuery, Mode
from agentkit.durable.run_slot import _VOLATILE
from agentkit.errors import Cancelled, ConfigurationError, MeterExceeded, Overloaded, StoreError, StreamBroken
from agentkit.observe import OtelTrace
from agentkit.stores import open_store
from agentkit.testing import (
    Hang,
    ManualClock,
    Reply,
    ScriptedModel,
    SubprocessAdapter,
    capture_spans,
)
from agentkit.testing.loopback import LoopbackServer
from agentkit.testing.turns import Turn

USED = Usage(1000, 1000)


def priced(*replies):
    """Return a binding at 1/1 dollars a million."""
    return Binding(ScriptedModel(replies), price="1/1")


@tool(effect="read")
async def echo(text: str) -> str:
    """Say it again."""
    return text


# adapters, native tools, CLI places, acquire


async def test_adapters_answer_and_are_closed():
    """A binding by the adapter's name reaches a real child process; the runtime closes the adapter it was given."""
    adapter = SubprocessAdapter()
    async with CallRuntime(adapters={"mycli": adapter}) as calls:
        answer = await calls.ask(Binding("mycli:v1"), "hello there")
        assert answer.text.strip() == "hello there"
        assert answer.usage.output_tokens == 2
        with pytest.raises(ConfigurationError, match="mycli"):
            await calls.ask(Binding("mycly:v1"), "hello")
    assert adapter.closed
    assert adapter.running == 0


def test_native_tool_policy_deny_refuses_what_cannot_be_switched_off():
    """DENY has to be satisfiable, or construction fails."""
    with pytest.raises(ConfigurationError, match="cli"):
        CallRuntime(
            adapters={"cli": SubprocessAdapter(native_tools="always")}, native_tool_policy=NativeToolPolicy.DENY
        )


@pytest.mark.parametrize("policy", list(NativeToolPolicy))
async def test_native_tool_policy_reaches_the_adapter(policy):
    """The adapter is told the policy with each call; WARN warns once, the others say nothing."""
    adapter = SubprocessAdapter(native_tools="optional")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls = CallRuntime(adapters={"cli": adapter}, native_tool_policy=policy)
        async with calls:
            await calls.ask(Binding("cli:v1"), "hi")
            await calls.ask(Binding("cli:v1"), "hi")
    told = [w for w in caught if "tools of its own" in str(w.message)]
    assert len(told) == (policy is NativeToolPolicy.WARN)
    assert adapter.policies == [policy, policy]


async def test_max_concurrent_cli_bounds_the_children():
    """Six asks at once over two places: never more than two children."""
    adapter = SubprocessAdapter()
    async with CallRuntime(adapters={"cli": adapter}, max_concurrent_cli=2) as calls:
        answers = await asyncio.gather(*(calls.ask(Binding("cli:v1"), f"n{i}") for i in range(6)))
    assert [answer.text.strip() for answer in answers] == [f"n{i}" for i in range(6)]
    assert adapter.peak == 2


@pytest.mark.parametrize("places", [0, -1, True, 2.0])
def test_max_concurrent_cli_below_one_is_refused(places):
    """A permitless pool would hang."""
    with pytest.raises(ConfigurationError, match="max_concurrent_cli"):
        CallRuntime(max_concurrent_cli=places)


class Admission:
    """A host's admission that counts who is inside."""

    def __init__(self):
        self.inside = 0
        self.seen = []

    @contextlib.asynccontextmanager
    async def __call__(self, mode):
        self.inside += 1
        self.seen.append(mode)
        try:
            yield
        finally:
            self.inside -= 1


async def test_acquire_is_held_for_the_attempt_and_released_on_success_and_error():
    """It is inside while the child runs, once an attempt, and outside after success, failure and during a back-off."""
    admission, clock = Admission(), ManualClock()
    broken = SubprocessAdapter("import sys; sys.exit(3)")
    calls = CallRuntime(
        adapters={"cli": SubprocessAdapter(), "broken": broken},
        acquire=admission,
        services=Services(clock=clock),
        retry=RetryPolicy(max_attempts=2, base_delay=1.0),
    )
    async with calls:
        await calls.ask(Binding("cli:v1"), "hi")
        assert (admission.inside, admission.seen) == (0, [Mode.CLI])
        asking = asyncio.create_task(calls.ask(Binding("broken:v1"), "hi"))
        while not clock.slept:
            await asyncio.sleep(0)
        assert admission.inside == 0
        clock.advance(60)
        with pytest.raises(StreamBroken):
            await asking
    assert admission.inside == 0
    assert admission.seen == [Mode.CLI] * 3


async def test_acquire_is_released_on_cancel():
    """A cancelled call gives its place back and leaves no child."""
    admission = Admission()
    adapter = SubprocessAdapter("import sys; sys.stdin.read(); sys.stdin.close(); import signal; signal.pause()")
    async with CallRuntime(adapters={"cli": adapter}, acquire=admission, max_concurrent_cli=1) as calls:
        asking = asyncio.create_task(calls.ask(Binding("cli:v1"), "hi"))
        while not adapter.running:
            await asyncio.sleep(0)
        assert admission.inside == 1
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (admission.inside, adapter.running) == (0, 0)


async def test_acquire_holds_api_calls_too():
    """API calls pass the host's admission as Mode.API."""
    admission = Admission()
    async with CallRuntime(acquire=admission) as calls:
        await calls.ask(priced("x"), "q")
    assert admission.seen == [Mode.API]


# prices, capabilities, retry, text, maskers


async def test_pricing_is_asked_for_bindings_without_a_price():
    """A table of the host's own prices what the shipped one does not know."""

    class Mine:
        def find(self, provider, model, **_):
            return parse_price("2/4") if (provider, model) == ("scripted", "m1") else None

    model = ScriptedModel([Reply("x", usage=USED)], name="m1")
    model.free = False
    async with CallRuntime(pricing=Mine()) as calls:
        assert (await calls.ask(Binding(model), "q", budget=Budget("1"))).cost == Decimal("0.006")


async def test_capabilities_give_the_output_cap_a_protocol_requires():
    """The Messages wire's required max_tokens comes from the runtime's capability table."""
    table = CapabilityTable({("anthropic", "my-model"): Capabilities(max_output_tokens=777)})
    async with LoopbackServer([Turn(text="ok")]) as server, CallRuntime(capabilities=table) as calls:
        await calls.ask(Binding("anthropic:my-model", base_url=server.origin, api_key="k"), "q")
        assert server.requests[0].body["max_tokens"] == 777


@pytest.mark.parametrize(("attempts", "asked"), [(1, 1), (2, 2), (3, 3)])
async def test_retry_repeats_as_often_as_it_says(attempts, asked):
    """`retry=` bounds the attempts, each of which is a row of the answer or the error."""
    model = ScriptedModel([Overloaded("busy", accepted=False)], repeat_last=True)
    async with CallRuntime(retry=RetryPolicy(max_attempts=attempts, base_delay=0, max_delay=0)) as calls:
        with pytest.raises(Overloaded):
            await calls.ask(Binding(model), "q")
    assert len(model.requests) == asked


@pytest.mark.parametrize("capture", [False, True])
async def test_capture_text_puts_words_into_spans_only_when_asked(capture):
    """Prompt, answer, arguments and results stay out of spans by default."""
    with capture_spans() as spans:
        async with CallRuntime(capture_text=capture, services=Services(trace=OtelTrace(spans.provider))) as calls:
            model = ScriptedModel([ToolCall("1", "echo", '{"text": "the-secret"}'), "the-answer"])
            await calls.run(Binding(model), "the-prompt", [echo])
    text = repr([(s.name, dict(s.attributes or {}), [dict(e.attributes or {}) for e in s.events]) for s in spans.spans])
    for word in ("the-secret", "the-answer", "the-prompt"):
        assert (word in text) is capture


async def test_maskers_apply_to_spans_and_never_to_tool_or_model():
    """Masked in what is recorded; the tool gets the arguments and the model the result as they are."""
    got = []

    @tool(effect="read")
    async def lookup(text: str) -> str:
        """Look it up."""
        got.append(text)
        return "result-secret"

    with capture_spans() as spans:
        calls = CallRuntime(
            capture_text=True,
            services=Services(trace=OtelTrace(spans.provider)),
            argument_masker=lambda name, arguments: {"text": "***"},
            result_masker=lambda name, text: "masked",
        )
        async with calls:
            model = ScriptedModel([ToolCall("1", "lookup", '{"text": "argument-secret"}'), "ok"])
            await calls.run(Binding(model), "q", [lookup])
    assert got == ["argument-secret"]
    assert model.requests[1].messages[-1].content == "result-secret"
    tools = [s for s in spans.spans if s.name.startswith("execute_tool")]
    text = repr([dict(s.attributes or {}) for s in tools])
    assert tools
    assert "argument-secret" not in text
    assert "result-secret" not in text


@pytest.mark.parametrize("policy", list(UnpricedPolicy))
async def test_unpriced_policy_refuses_warns_or_allows(policy):
    """REFUSE raises before anything is sent; WARN warns and ALLOW is silent, both with an incomplete cost."""
    model = ScriptedModel(["x"])
    model.free = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with CallRuntime(unpriced_policy=policy, budget=Budget("1.00")) as calls:
            if policy is UnpricedPolicy.REFUSE:
                with pytest.raises(ConfigurationError, match="price="):
                    await calls.ask(Binding(model), "q")
                assert not model.requests
            else:
                answer = await calls.ask(Binding(model), "q")
                assert (answer.cost, answer.cost_complete) == (None, False)
    assert bool([w for w in caught if "no price" in str(w.message)]) is (policy is UnpricedPolicy.WARN)


# budget, quota, store, services, middleware


async def test_the_runtimes_budget_bounds_every_call():
    """`budget=` is one budget for the runtime's life: all contexts, also ones made elsewhere, are charged to it."""
    budget = Budget("0.006")
    binding = Binding(ScriptedModel([Reply("x", usage=USED)], repeat_last=True), price="1/1")
    async with CallRuntime(budget=budget) as calls:
        await calls.ask(binding, "q")
        await ask(binding, "q", ctx=calls.context())
        foreign = RunContext("elsewhere", Scope(tenant="t"), services=calls.services)
        await calls.ask(binding, "q", ctx=foreign)
        assert budget.spent() == Decimal("0.006")
        with pytest.raises(MeterExceeded):
            await calls.ask(binding, "q")
    assert budget.held() == 0


async def test_the_quota_is_each_tenants_own():
    """`quota=` lies in the contexts' meters and refuses a tenant's second request, not another tenant's."""
    quota = Quota(max_rpm=1)
    binding = Binding(ScriptedModel(["x"], repeat_last=True))
    async with CallRuntime(quota=quota) as calls:
        ctx = calls.context("a", Scope(tenant="acme"))
        assert quota in ctx.meters
        await calls.ask(binding, "q", ctx=ctx)
        with pytest.raises(MeterExceeded):
            await calls.ask(binding, "q", ctx=calls.context("b", Scope(tenant="acme")))
        await calls.ask(binding, "q", ctx=calls.context("c", Scope(tenant="other")))


async def test_store_by_url_keeps_runs_and_is_closed_and_a_given_one_is_not(tmp_path):
    """A URL is opened and closed by the runtime; a Store stays its owner's, and its ledger has the rows."""
    async with CallRuntime(store=f"sqlite:{tmp_path / 'one.db'}") as calls:
        await Agent("clerk", priced("x")).run("q", calls.context("r"))
        log = calls.services.checkpointer
        assert [summary.slot.run_id for summary in await log.slots("local")] == ["r"]
    with pytest.raises(StoreError):
        await log.slots("local")
    store = open_store(tmp_path / "two.db")
    async with CallRuntime(store=store) as calls:
        await calls.ask(priced(Reply("x", usage=USED)), "q", ctx=calls.context("r"))
    (row,) = (await store.ledger.entries(CostQuery(tenant="local", run_id="r"))).entries
    assert row.record.cost == Decimal("0.002")
    await store.aclose()


async def test_any_number_of_calls_share_a_context_over_a_durable_store(tmp_path):
    """`ask` takes no place in the run log: at once, beside an open stream, and after one that was left early."""
    async with CallRuntime(store=f"sqlite:{tmp_path / 'runs.db'}") as calls:
        ctx = calls.context("r", budget=Budget("1"))
        binding = Binding("scripted:one two three", price="1/1")
        answers = await asyncio.gather(*(calls.ask(binding, "q", ctx=ctx) for _ in range(3)))
        assert [answer.text for answer in answers] == ["one two three"] * 3
        async with calls.stream(binding, "q", ctx=ctx) as events:
            async for _ in events:
                assert (await calls.ask(binding, "q", ctx=ctx)).cost > 0, "price= counts for a double too"
                break
        assert (await calls.ask(binding, "q", ctx=ctx)).text == "one two three"
        assert ctx.budget.held() == 0 and ctx.budget.calls >= 5
        assert await calls.services.checkpointer.slots("local") == []


async def test_services_are_kept_and_completed():
    """The app's data reaches tools; what given services lack comes from the runtime, also for one context's own."""
    user = Key("user")
    seen = []

    @tool(effect="read")
    async def who(ctx: RunContext) -> str:
        """Say who."""
        seen.append(ctx.services.app[user])
        return "ok"

    def model():
        return Binding(ScriptedModel([ToolCall("1", "who", "{}"), "ok"]))

    async with CallRuntime(services=Services(app=AppData().put(user, "u1"))) as calls:
        await calls.run(model(), "q", [who])
        mine = calls.context(services=Services(app=AppData().put(user, "u2")))
        assert mine.services.invoker is calls.services.invoker
        await calls.run(model(), "q", [who], ctx=mine)
    assert seen == ["u1", "u2"]


async def test_own_middleware_sees_calls_between_trace_and_meter():
    """`chat_middleware` and `tool_middleware` wrap every call; each is seen once a call."""
    seen = []

    def chat_layer(call, call_next):
        seen.append(type(call.request).__name__)
        return call_next(call)

    async with CallRuntime(chat_middleware=[chat_layer], tool_middleware=[chat_layer]) as calls:
        model = ScriptedModel([ToolCall("1", "echo", '{"text": "a"}'), "ok"])
        await calls.run(Binding(model), "q", [echo])
    assert seen == ["ChatRequest", "ToolRequest", "ChatRequest"]


@pytest.mark.parametrize("parameter", ["chat_middleware", "tool_middleware"])
def test_a_middleware_that_is_none_is_a_type_error_with_its_index(parameter):
    """Wrong wiring is found at construction."""
    with pytest.raises(TypeError, match=r"\[?\d"):
        CallRuntime(**{parameter: [lambda call, call_next: call_next(call), 7]})


async def test_an_invoker_of_ones_own_is_used():
    """Services with an invoker keep it: the default layers are not put over it."""
    model = ScriptedModel(["x"])
    async with CallRuntime(services=Services(invoker=Invoker())) as calls:
        answer = await calls.ask(Binding(model, price="1/1"), "q")
    assert answer.records == ()


# context


async def test_every_parameter_of_context_has_an_effect():
    """Run id, scope, budget, meters, cancel, autonomy, mode and deadline are the context's."""
    clock = ManualClock()
    token, budget, further = CancellationToken(), Budget("1"), Budget("2")
    async with CallRuntime(services=Services(clock=clock)) as calls:
        ctx = calls.context(
            "r1",
            Scope(tenant="t"),
            budget=budget,
            meters=[further],
            cancel=token,
            autonomy="gated",
            mode="plan",
            deadline=7,
        )
        assert (ctx.correlation_id, ctx.scope.tenant, ctx.budget, list(ctx.meters)) == ("r1", "t", budget, [further])
        assert (ctx.autonomy, ctx.mode, ctx.remaining_time()) == ("gated", "plan", 7)
        token.cancel()
        with pytest.raises(Cancelled):
            await calls.ask(priced("x"), "q", ctx=ctx)
        one, two = calls.context(), calls.context()
        assert one.correlation_id != two.correlation_id
        assert one.scope == Scope(tenant="local")


# life


async def test_use_after_close_is_a_clear_error():
    """Every entry says that the runtime is closed; closing again does nothing."""
    calls = CallRuntime()
    async with calls:
        pass
    await calls.aclose()
    for attempt in (
        lambda: calls.ask(priced("x"), "q"),
        lambda: calls.run(priced("x"), "q"),
        lambda: calls.__aenter__(),
    ):
        with pytest.raises(ConfigurationError, match="closed"):
            await attempt()
    with pytest.raises(ConfigurationError, match="closed"):
        calls.context()
    with pytest.raises(ConfigurationError, match="closed"):
        async with calls.stream(priced("x"), "q") as events:
            await anext(events)


async def test_outside_the_block_resources_live_as_long_as_the_calls():
    """Two overlapping asks on a runtime that was not entered: the first to end does not close the other's client."""
    adapter = SubprocessAdapter()
    calls = CallRuntime(adapters={"cli": adapter})
    held = asyncio.Event()

    @contextlib.asynccontextmanager
    async def wait_first(mode):
        await held.wait()
        yield

    slow = CallRuntime(adapters={"cli": adapter}, acquire=wait_first)
    waiting = asyncio.create_task(slow.ask(Binding("cli:v1"), "slow"))
    quick = asyncio.create_task(slow.ask(Binding("scripted:x"), "quick"))
    await calls.ask(Binding("cli:v1"), "hi")
    assert adapter.closed
    adapter.closed = False
    quick.cancel()
    with pytest.raises(asyncio.CancelledError):
        await quick
    assert not adapter.closed
    held.set()
    assert (await waiting).text.strip() == "slow"
    assert adapter.closed
    assert (await calls.ask(Binding("scripted:x"), "again")).text == "x"


async def test_connections_are_pooled_inside_the_block():
    """Ten asks one after the other use one connection."""
    async with LoopbackServer([Turn(text="ok")]) as server, CallRuntime() as calls:
        binding = Binding("openai:m", base_url=server.url, api_key="k")
        for _ in range(10):
            assert (await calls.ask(binding, "q")).text == "ok"
        assert server.connections == 1


def test_one_runtime_over_two_event_loops():
    """The same runtime serves a second loop: pooled clients and slots are each loop's own."""
    calls = CallRuntime(acquire=Admission(), adapters={"cli": SubprocessAdapter()}, max_concurrent_cli=1)

    async def use():
        async with LoopbackServer([Turn(text="ok")]) as server:
            binding = Binding("openai:m", base_url=server.url, api_key="k")
            answers = [await calls.ask(binding, "q") for _ in range(2)]
            answers.append(await calls.ask(Binding("cli:v1"), "ok"))
            return [answer.text.strip() for answer in answers]

    assert asyncio.run(use()) == ["ok"] * 3
    assert asyncio.run(use()) == ["ok"] * 3


def test_an_entered_runtime_used_on_a_second_loop():
    """Entered on one loop and used on another, it works, and closing it there leaves no open client."""
    calls = CallRuntime()

    async def use(server_turn):
        async with LoopbackServer([Turn(text=server_turn)]) as server:
            return (await calls.ask(Binding("openai:m", base_url=server.url, api_key="k"), "q")).text

    async def first():
        await calls.__aenter__()
        return await use("one")

    async def second():
        try:
            return await use("two")
        finally:
            await calls.aclose()

    assert asyncio.run(first()) == "one"
    assert asyncio.run(second()) == "two"
    gc.collect()


async def test_two_thousand_runs_leave_nothing_behind():
    """Accounts, places, slots, routes and tasks of a runtime are the same size after 2,000 runs as before."""
    budget, quota = Budget("1000"), Quota(max_rpm=10_000_000)

    def reply(request):
        said = request.messages[-1]
        if said.__class__.__name__ == "ToolMessage" or said.content == "plain":
            return Reply("ok", usage=Usage(1, 1))
        if said.content == "fail":
            return Overloaded("down", retryable=False)
        if said.content == "sub":
            return ToolCall("1", "helper", '{"task": "plain"}')
        return ToolCall("1", "echo", '{"text": "a"}')

    model = ScriptedModel(reply)
    binding = Binding(model, price="1/1")
    helper = Agent("helper", binding)
    agent = Agent("lead", binding, tools=[echo, helper.as_tool()])
    async with CallRuntime(budget=budget, quota=quota) as calls:

        async def some(number, runs):
            for index in range(runs):
                task = ("go", "plain", "sub", "fail")[index % 4]
                ctx = calls.context(f"run-{number}-{index}", Scope(tenant="acme"))
                try:
                    await agent.run(task, ctx)
                except Overloaded:
                    assert task == "fail"
            model.requests.clear()
            model.calls.clear()

        await some(0, 40)
        before = sizes(calls, budget)
        tasks = len(asyncio.all_tasks())
        await some(1, 2000)
        assert sizes(calls, budget) == before
        assert len(asyncio.all_tasks()) == tasks
        assert budget.held() == 0


def sizes(calls, budget):
    """Return how many contexts live, and the size of every container in the runtime's log, budget, pool and slots."""
    gc.collect()
    found = {"contexts": sum(isinstance(thing, RunContext) for thing in gc.get_objects())}
    log = calls.services.checkpointer
    for name, owner in (("log", log), ("budget", budget), ("pool", calls._pool), ("volatile", _VOLATILE[log])):
        names = [*getattr(owner, "__dict__", ()), *getattr(type(owner), "__slots__", ())]
        for field in names:
            value = getattr(owner, field, None)
            if hasattr(value, "__len__"):
                found[f"{name}.{field}"] = len(value)
    return found


async def test_settings_reach_the_wire_merged():
    """Binding's and call's settings are one body on the wire."""
    async with LoopbackServer([Turn(text="ok")]) as server, CallRuntime() as calls:
        binding = Binding(
            "openai:m", base_url=server.url, api_key="k", settings=ModelSettings(temperature=0.5, max_tokens=9)
        )
        await calls.ask(binding, "q", settings=ModelSettings(max_tokens=11))
        body = server.requests[0].body
    assert body["temperature"] == 0.5
    assert 11 in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_cancelling_an_ask_closes_its_stream():
    """A cancelled task leaves no stream open and nothing held."""
    model, budget = ScriptedModel([Hang(2)]), Budget("1")
    async with CallRuntime(budget=budget) as calls:
        asking = asyncio.create_task(calls.ask(Binding(model, price="1/1"), "q"))
        while not model.open_streams:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (model.open_streams, budget.held()) == (0, 0)
