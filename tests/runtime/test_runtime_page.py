"""Every name of the runtime page is there with its parameters, and every parameter has an effect."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import agentkit.core.runtime as page
from agentkit.core.contracts import Charge, Meter, Scope, Usage
from agentkit.core.runtime.invoker import Invoker
from agentkit.core.runtime.null_context import NullCtx
from agentkit.core.runtime.services import AppData, Services
from agentkit.core.runtime.telemetry.masking import MASK_FAILED, Masker
from agentkit.core.runtime.telemetry.observation import (
    AlwaysOnSampler,
    NoopMetrics,
    NoopObserver,
    NoopReplayStore,
    NoopSpan,
    NoopTrace,
    ReplayRecord,
)
from agentkit.errors import AgentkitError, ConfigurationError, MeterExceeded, MoneyPrecisionError
from agentkit.testing import ScriptedModel

PAGE = {
    "RunContext": [
        "correlation_id",
        "scope",
        "budget",
        "services",
        "meters",
        "depth",
        "cancel",
        "autonomy",
        "actor_budget",
        "signal_channel",
        "*mode",
        "*deadline",
    ],
    "RunContext.child": ["*name", "*actor_budget", "*signal_channel"],
    "RunContext.semaphore": [],
    "RunContext.check_cancelled": [],
    "RunContext.emit": ["kind", "render", "*payload", "*agent", "*parent_id"],
    "Services": [
        "invoker",
        "store",
        "checkpointer",
        "vector",
        "trace",
        "observer",
        "replay",
        "metrics",
        "sampler",
        "asker",
    ],
    "Invoker": ["*llm", "*chat_middleware", "*tool_middleware"],
    "Invoker.stream": ["request", "ctx"],
    "Invoker.chat": ["request", "ctx"],
    "Invoker.invoke_tool": ["request", "ctx"],
    "Budget": [
        "max_cost_usd",
        "max_calls",
        "max_depth",
        "max_concurrency",
        "spent_usd",
        "calls",
        "on_exceeded",
        "usage",
    ],
    "Budget.spent": [],
    "Budget.spent_cents": [],
    "Budget.remaining_usd": [],
    "Budget.remaining": [],
    "Budget.ceiling": [],
    "Budget.exhausted": [],
    "Budget.verdict": [],
    "Budget.guard": ["call"],
    "Budget.charge": ["call", "usage"],
    "Budget.semaphore": ["depth"],
    "Charge": ["ok", "reason", "spent", "remaining", "calls", "cost_complete", "usage"],
    "Charge.raise_if_exceeded": [],
    "Quota": ["max_rpm", "max_tpm", "max_usd", "window", "clock", "on_exceeded"],
    "Quota.ceiling": [],
    "Quota.spent_in_window": ["key"],
    "Quota.guard": ["call"],
    "Quota.charge": ["call", "usage"],
    "NullCtx": ["scope"],
    "NullCtx.check_cancelled": [],
    "NullCtx.semaphore": [],
    "NullCtx.emit": ["kind", "render", "*payload", "*agent", "*parent_id"],
    "ActorBudget": ["max_tokens", "max_cost_usd", "max_steps", "max_wall_seconds", "clock"],
    "EventBus": ["ring_size", "queue_size"],
    "EventBus.subscribe": ["stream_id", "name", "from_version", "replay"],
    "gather_bounded": ["coros", "*sem"],
    "gather_best_effort": ["coros", "*sem"],
    "run_agents": ["pairs", "ctx", "best_effort"],
    "run_sync": ["coro"],
    "to_money": ["value", "*strict"],
    "CallRuntime": [
        "*adapters",
        "*pricing",
        "*capabilities",
        "*retry",
        "*capture_text",
        "*native_tool_policy",
        "*unpriced_policy",
        "*max_concurrent_cli",
        "*acquire",
        "*argument_masker",
        "*result_masker",
        "*budget",
        "*quota",
    ],
    "CallRuntime.ask": ["binding", "prompt", "output"],
    "ask": ["binding", "prompt", "output"],
    "run": ["binding", "prompt", "tools"],
}
DEFAULTS = {
    "RunContext": {"depth": 0, "cancel": None, "autonomy": "auto", "mode": "act", "deadline": None},
    "Budget": {"max_depth": 4, "max_concurrency": 8, "calls": 0, "on_exceeded": "raise", "usage": Usage()},
    "Charge": {"reason": "", "spent": Decimal(0), "remaining": None, "calls": 0, "cost_complete": True},
    "Quota": {"max_rpm": None, "max_tpm": None, "max_usd": None, "window": 60.0, "on_exceeded": "raise"},
    "EventBus": {"ring_size": 1024, "queue_size": 256},
    "to_money": {"strict": False},
}


def named(dotted):
    """Return the object of a name on the page."""
    thing = page
    for part in dotted.split("."):
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("dotted", sorted(PAGE))
def test_the_names_have_their_parameters(dotted):
    """The page's parameters come first, in its order and kind; more keyword parameters may follow."""
    parameters = list(inspect.signature(named(dotted)).parameters.values())
    if parameters and parameters[0].name == "self":
        del parameters[0]
    shown = [f"*{one.name}" if one.kind is one.KEYWORD_ONLY else one.name for one in parameters]
    wanted = PAGE[dotted]
    positional = [name for name in wanted if not name.startswith("*")]
    assert shown[: len(positional)] == positional
    assert set(wanted) <= set(shown)
    for extra in parameters[len(positional) :]:
        assert extra.kind is not extra.POSITIONAL_OR_KEYWORD or extra.default is not extra.empty
    defaults = {one.name: one.default for one in parameters}
    for name, value in DEFAULTS.get(dotted, {}).items():
        assert defaults[name] == value


def test_every_exported_name_loads_and_none_is_shadowed_by_a_module():
    """All names of __all__ load, are no modules, and dir() shows them (fault 61)."""
    for name in page.__all__:
        value = getattr(page, name)
        assert not inspect.ismodule(value), name
        assert name in dir(page)
    for module in Path(page.__file__).parent.glob("*.py"):
        assert module.stem not in page.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = page.Nothing


def test_the_lazy_table_and_the_typed_imports_agree():
    """What type checkers see under TYPE_CHECKING is what loads, and it is __all__."""
    tree = ast.parse(Path(page.__file__).read_text())
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {alias.name: node.module for node in guarded.body for alias in node.names}
    assert typed == page._HOMES
    assert sorted(page.__all__) == sorted(typed)


def test_importing_the_page_loads_nothing_heavy():
    """The page and its budget load no pydantic, structlog, OpenTelemetry or HTTP library."""
    code = (
        "import sys; from agentkit.core.runtime import Budget, Invoker, Quota, RunContext; "
        "heavy = {'pydantic', 'structlog', 'opentelemetry', 'aiohttp', 'httpx', 'openai', 'anthropic'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_bases_of_errors_are_part_of_the_contract():
    """MeterExceeded is a RuntimeError, MoneyPrecisionError a ValueError; both are ours."""
    assert issubclass(MeterExceeded, RuntimeError) and issubclass(MeterExceeded, AgentkitError)
    assert issubclass(MoneyPrecisionError, ValueError) and issubclass(MoneyPrecisionError, AgentkitError)


async def test_a_foreign_meter_with_guard_and_charge_only_still_works():
    """Two methods make a meter, and None is no verdict."""

    class Old:
        def __init__(self):
            self.booked = []

        async def guard(self, call=None):
            return None

        async def charge(self, call, usage):
            self.booked.append(usage)

    from agentkit.core.contracts import ChatRequest, UserMessage
    from agentkit.middleware.meter import meter
    from agentkit.testing import make_context

    old: Meter = Old()
    ctx = make_context(["hi"], middleware=[meter()], meters=[old])
    await ctx.invoker.chat(ChatRequest((UserMessage("x"),)), ctx)
    assert len(old.booked) == 1 and old.booked[0].output_tokens == 1


def test_services_hand_on_each_part():
    """Each parameter of Services is what the context's reader of that name returns; replace changes one of them."""
    names = [
        "invoker",
        "store",
        "checkpointer",
        "vector",
        "trace",
        "observer",
        "replay",
        "metrics",
        "sampler",
        "asker",
    ]
    parts = {name: object() for name in names}
    ctx = page.RunContext("r", Scope("t"), services=Services(**parts))
    for name, part in parts.items():
        assert getattr(ctx, name) is part
    keywords = {name: object() for name in ("app", "clock", "ledger", "masker", "models")}
    services = Services(**keywords)
    for name, part in keywords.items():
        assert getattr(services, name) is part
    other = services.replace(asker=parts["asker"])
    assert other.asker is parts["asker"] and other.app is services.app and services.asker is None
    assert not Services().observed and Services(observer=object()).observed
    with pytest.raises(ConfigurationError, match="no field 'colour'"):
        services.replace(colour=1)


async def test_the_defaults_of_services_do_nothing():
    """Without parts every port is a real one that does nothing, and a span may be opened."""
    services = Services()
    ctx = page.RunContext("r", Scope("t"), services=services)
    assert isinstance(services.trace, NoopTrace) and isinstance(services.metrics, NoopMetrics)
    assert isinstance(services.observer, NoopObserver) and isinstance(services.replay, NoopReplayStore)
    assert isinstance(services.sampler, AlwaysOnSampler) and services.sampler.should_sample("chat", "r", {})
    with ctx.trace.span("work", kind="client", attributes={"a": 1}) as span:
        span.set({"b": 2})
        span.event("e")
        span.end()
    services.metrics.add_counter("n", 1, {})
    services.metrics.record_histogram("h", 1.5, {})
    await services.replay.put(ReplayRecord("c", "r", "", "chat", None, None))
    assert await services.observer.observe(None) is None
    assert isinstance(services.app, AppData) and services.models is None


async def test_a_null_context_does_nothing_and_reaches_no_model():
    """It is itself its child, has room for everybody, a span, and an invoker that says what to pass."""
    ctx = NullCtx()
    assert ctx.scope == Scope("local") and NullCtx(Scope("acme")).scope == Scope("acme")
    assert ctx.child(name="a", actor_budget=None) is ctx
    ctx.check_cancelled()
    ctx.record(None)
    ctx.describe(AgentkitError("x"))
    assert ctx.remaining_time() is None and list(ctx.all_meters) == []
    assert await ctx.emit("result", "x", payload=1) is None
    async with ctx.semaphore():
        pass
    with ctx.trace.span("work") as span:
        assert isinstance(span, NoopSpan)
    with pytest.raises(ConfigurationError, match="RunContext"):
        _ = ctx.invoker


def test_an_invoker_shows_its_wiring():
    """Each parameter of the Invoker reads back."""
    model = ScriptedModel([])

    async def layer(call, call_next):
        yield

    invoker = Invoker(llm=model, chat_middleware=[layer], tool_middleware=[layer, layer])
    assert invoker.llm is model
    assert invoker.chat_middleware == (layer,) and invoker.tool_middleware == (layer, layer)


def test_maskers_apply_or_yield_a_marker():
    """Arguments and results pass through the host's maskers; one that raises yields the marker and is counted."""
    plain = Masker()
    data = {"key": "secret"}
    assert plain.arguments("t", data) == data and plain.arguments("t", data) is not data
    assert plain.result("t", "text") == "text"
    masking = Masker(lambda tool, arguments: {**arguments, "key": "***"}, lambda tool, text: text.replace("s", "*"))
    assert masking.arguments("t", data) == {"key": "***"} and masking.result("t", "mess") == "me**"
    assert data == {"key": "secret"}

    def broken(*_):
        raise KeyError("secret")

    failing = Masker(broken, broken)
    assert failing.arguments("t", data) == MASK_FAILED == failing.result("t", "secret")
    assert failing.failures == 2
    assert Masker(None, lambda tool, text: None).result("t", "secret") == MASK_FAILED


def test_a_verdict_is_frozen():
    """A Charge cannot be changed after the fact."""
    with pytest.raises(AttributeError):
        Charge(True).ok = False
