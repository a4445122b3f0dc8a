"""Every layer of ours passes the suite that we give to others."""

from __future__ import annotations

import ast
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

import pytest
from msgspec.structs import replace

import agentkit.middleware
from agentkit.core.contracts import ChatEnd, Decision, HedgePolicy, RetryPolicy, Route
from agentkit.core.runtime.breaker import Breaker
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.services import Services
from agentkit.errors import ConfigurationError
from agentkit.middleware.fallback import fallback
from agentkit.middleware.hedge import hedge
from agentkit.middleware.meter import meter
from agentkit.middleware.order import CHAT_ORDER, TOOL_ORDER, in_order
from agentkit.middleware.policy import chat_policy, policy
from agentkit.middleware.retry import retry, retry_tools
from agentkit.middleware.timeout import timeout
from agentkit.middleware.trace import trace, trace_tools
from agentkit.observe import OtelTrace
from agentkit.testing import capture_spans, make_context
from agentkit.testing.middleware_suite import check_chat_middleware, check_tool_middleware


def traced():
    return make_context("x", budget=Budget("1.00"), services=Services(trace=OtelTrace(capture_spans().provider)))


def allow(call):
    return Decision.allow()


class Port:
    """The rest of a chain as a model port."""

    def __init__(self, call_next) -> None:
        self.stream = call_next


class with_fallbacks:  # noqa: N801
    """The fallback layer for a call whose route has a fallback, both leading to the model under test."""

    def __call__(self, call, call_next):
        route = Route(Port(call_next), "first", "p", fallback=(Route(Port(call_next), "second", "p"),))
        return fallback()(replace(call, route=route), lambda trial: trial.route.port.stream(call))

    def __repr__(self) -> str:
        return "fallback() of two routes"


CHAT = [
    meter,
    retry,
    lambda: retry(RetryPolicy(max_attempts=1), breaker=Breaker()),
    fallback,
    with_fallbacks,
    lambda: hedge(HedgePolicy(after=3600)),
    lambda: hedge(HedgePolicy(after=3600), breaker=Breaker()),
    trace,
    lambda: trace(capture_text=True),
    chat_policy,
    lambda: chat_policy([allow]),
]
TOOL = [policy, lambda: policy([allow]), retry_tools, timeout, lambda: timeout(60), trace_tools]


@pytest.mark.parametrize("make", CHAT, ids=lambda make: repr(make()))
async def test_chat_layers_conform(make):
    """Break, close from elsewhere, cancel, error and pass-through hold, with tracing off and on."""
    await check_chat_middleware(make)
    await check_chat_middleware(make, traced)


@pytest.mark.parametrize("make", TOOL, ids=lambda make: repr(make()))
async def test_tool_layers_conform(make):
    """The same rules hold for tool layers, with tracing off and on."""
    await check_tool_middleware(make)
    await check_tool_middleware(make, traced)


async def leaves_open(call, call_next):
    async for event in call_next(call):
        yield event


async def swallows(call, call_next):
    with suppress(Exception):
        async for event in call_next(call):
            yield event


async def drops_the_end(call, call_next):
    async for event in call_next(call):
        if not isinstance(event, ChatEnd):
            yield event


VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=0)


async def leaks_context(call, call_next):
    VARIABLE.set(1)
    async for event in call_next(call):
        yield event


@pytest.mark.parametrize(
    "layer", [leaves_open, swallows, drops_the_end, leaks_context], ids=lambda layer: layer.__name__
)
async def test_the_suite_catches_what_it_is_for(layer):
    """Layers with the usual faults do not pass."""
    with pytest.raises(AssertionError):
        await check_chat_middleware(lambda: layer)


def test_layers_are_sorted_into_the_one_order():
    """Whatever order they are given in, layers come out outermost first, and unknown names are refused."""
    assert in_order({"meter": 3, "trace": 1, "retry": 2}, CHAT_ORDER) == (1, 2, 3)
    assert in_order({"timeout": 2, "policy": 1}, TOOL_ORDER) == (1, 2)
    assert CHAT_ORDER == ("trace", "policy", "guard", "memoize", "fallback", "plan", "retry", "hedge", "meter")
    assert TOOL_ORDER == ("trace", "policy", "egress", "journal", "audit", "retry", "timeout")
    with pytest.raises(ConfigurationError, match="'cache'"):
        in_order({"cache": 1}, CHAT_ORDER)


FILES = sorted(Path(agentkit.middleware.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_layers_know_no_other_layer_and_yield_in_no_scope(file):
    """No file here imports a sibling, and no `yield` stands inside a `with` other than aclosing."""
    tree = ast.parse(file.read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name.startswith("agentkit.middleware")]
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)) and any(
            isinstance(inner, ast.Yield) for inner in ast.walk(node)
        ):
            opened = [ast.unparse(item.context_expr) for item in node.items]
            assert all(text.startswith("aclosing(") for text in opened), f"{file.name}: yield inside {opened}"
