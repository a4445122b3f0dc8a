"""One run: its scope, context, budget, quota, cancellation and deadline, and the Invoker everything goes through.

Names load on first use. CallRuntime, ask and run are handed on from `agentkit.calls`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.calls import CallRuntime, ask, run
    from agentkit.core.contracts import Charge, Meter, Scope, Usage, to_money
    from agentkit.core.runtime.agents_fanout import Runnable, run_agents
    from agentkit.core.runtime.bus import EventBus, Subscription, Versioned
    from agentkit.core.runtime.cancel import CancellationToken
    from agentkit.core.runtime.clock import Clock, SystemClock
    from agentkit.core.runtime.context import UNSET, RunContext
    from agentkit.core.runtime.deadline import Deadline
    from agentkit.core.runtime.fanout import Failure, gather_best_effort, gather_bounded
    from agentkit.core.runtime.invoker import Invoker
    from agentkit.core.runtime.layers import SimpleMiddleware, chain
    from agentkit.core.runtime.metering.account import AccountState, RunAccount
    from agentkit.core.runtime.metering.actor_budget import ActorBudget
    from agentkit.core.runtime.metering.budget import Budget
    from agentkit.core.runtime.metering.forecast import Forecast
    from agentkit.core.runtime.metering.operation import Bill, metered
    from agentkit.core.runtime.metering.quota import Quota
    from agentkit.core.runtime.null_context import NullCtx
    from agentkit.core.runtime.services import AppData, Key, Services
    from agentkit.core.runtime.signals import Signal, SignalChannel
    from agentkit.core.runtime.stream import EventStream
    from agentkit.core.runtime.sync import close_with_loop, run_sync
    from agentkit.core.runtime.telemetry.masking import Masker
    from agentkit.core.runtime.telemetry.observation import (
        AlwaysOnSampler,
        NoopMetrics,
        NoopObserver,
        NoopReplayStore,
        NoopTrace,
        Observation,
    )
    from agentkit.errors import Cancelled, DeadlineExceeded, MeterExceeded, MoneyPrecisionError

_HERE = {
    "metering.account": ("AccountState", "RunAccount"),
    "metering.actor_budget": ("ActorBudget",),
    "agents_fanout": ("Runnable", "run_agents"),
    "metering.budget": ("Budget",),
    "bus": ("EventBus", "Subscription", "Versioned"),
    "cancel": ("CancellationToken",),
    "clock": ("Clock", "SystemClock"),
    "context": ("UNSET", "RunContext"),
    "deadline": ("Deadline",),
    "fanout": ("Failure", "gather_best_effort", "gather_bounded"),
    "invoker": ("Invoker",),
    "layers": ("SimpleMiddleware", "chain"),
    "telemetry.masking": ("Masker",),
    "null_context": ("NullCtx",),
    "telemetry.observation": (
        "AlwaysOnSampler",
        "NoopMetrics",
        "NoopObserver",
        "NoopReplayStore",
        "NoopTrace",
        "Observation",
    ),
    "metering.forecast": ("Forecast",),
    "metering.operation": ("Bill", "metered"),
    "metering.quota": ("Quota",),
    "services": ("AppData", "Key", "Services"),
    "signals": ("Signal", "SignalChannel"),
    "stream": ("EventStream",),
    "sync": ("close_with_loop", "run_sync"),
}
_HOMES = {
    **{name: f"agentkit.core.runtime.{module}" for module, names in _HERE.items() for name in names},
    **dict.fromkeys(("CallRuntime", "ask", "run"), "agentkit.calls"),
    **dict.fromkeys(("Charge", "Meter", "Scope", "Usage", "to_money"), "agentkit.core.contracts"),
    **dict.fromkeys(("Cancelled", "DeadlineExceeded", "MeterExceeded", "MoneyPrecisionError"), "agentkit.errors"),
}

__all__ = [
    "UNSET",
    "AccountState",
    "ActorBudget",
    "AlwaysOnSampler",
    "AppData",
    "Bill",
    "Budget",
    "CallRuntime",
    "CancellationToken",
    "Cancelled",
    "Charge",
    "Clock",
    "Deadline",
    "DeadlineExceeded",
    "EventBus",
    "EventStream",
    "Failure",
    "Forecast",
    "Invoker",
    "Key",
    "Masker",
    "Meter",
    "MeterExceeded",
    "MoneyPrecisionError",
    "NoopMetrics",
    "NoopObserver",
    "NoopReplayStore",
    "NoopTrace",
    "NullCtx",
    "Observation",
    "Quota",
    "RunAccount",
    "RunContext",
    "Runnable",
    "Scope",
    "Services",
    "Signal",
    "SignalChannel",
    "SimpleMiddleware",
    "Subscription",
    "SystemClock",
    "Usage",
    "Versioned",
    "ask",
    "chain",
    "close_with_loop",
    "gather_best_effort",
    "gather_bounded",
    "metered",
    "run",
    "run_agents",
    "run_sync",
    "to_money",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkit.core.runtime' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
