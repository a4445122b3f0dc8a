"""The one context of a run: for whom, what it may spend, until when, how wide, and with what."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from agentkit.core.contracts import (
    Autonomy,
    CostRecord,
    Decision,
    EventSink,
    InvokerPort,
    JsonValue,
    KeyValueStore,
    Meter,
    Observed,
    RunLog,
    RunMode,
    Scope,
)
from agentkit.core.runtime.abort import abort_reason
from agentkit.core.runtime.cancel import CancellationToken
from agentkit.core.runtime.checks import choice, text, whole
from agentkit.core.runtime.deadline import Deadline, DeadlineLike, to_deadline
from agentkit.core.runtime.metering.account import NOTHING_YET, AccountState, RunAccount
from agentkit.core.runtime.metering.actor_budget import ActorBudget
from agentkit.core.runtime.metering.budget import Budget
from agentkit.core.runtime.services import AskerPort, Services, VectorPort
from agentkit.core.runtime.signals import SignalChannel
from agentkit.core.runtime.telemetry.observation import (
    MetricsPort,
    Observation,
    ObserverPort,
    ReplayStore,
    SamplerPort,
    SpanPort,
    TracePort,
)
from agentkit.errors import AgentkitError, ConfigurationError, MeterExceeded

__all__ = ["UNSET", "RunContext", "Unset"]

AUTONOMIES: Final[tuple[Autonomy, ...]] = ("auto", "gated", "manual")
MODES: Final[tuple[RunMode, ...]] = ("act", "plan")
CRITICAL_KINDS = frozenset({"result", "error"})
C = TypeVar("C", bound=str)


class Unset:
    """The type of UNSET: keep what the parent has."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


class RunContext:
    """One top-level context per external request; everything below runs on `child()` of it.

    A child shares scope, budget, services, meters, cancel token and deadline by reference, is one deeper, and has a
    path of its own. Build no fresh context inside a tool: it would leave the budget and the cancel token behind.
    `correlation_id` is the run id, unique per tenant. `autonomy` and `mode` are fixed per run and only narrow.
    """

    __agentkit_context__ = True
    __slots__ = (
        "_names",
        "account",
        "actor_budget",
        "agent",
        "autonomy",
        "budget",
        "cancel",
        "correlation_id",
        "deadline",
        "decisions",
        "depth",
        "meters",
        "mode",
        "path",
        "resuming",
        "scope",
        "services",
        "signal_channel",
        "sink",
        "span",
        "turn",
    )

    def __init__(
        self,
        correlation_id: str,
        scope: Scope,
        budget: Budget | None = None,
        services: Services | None = None,
        meters: Sequence[Meter] = (),
        depth: int = 0,
        cancel: CancellationToken | None = None,
        autonomy: Autonomy = "auto",
        actor_budget: ActorBudget | None = None,
        signal_channel: SignalChannel | None = None,
        *,
        mode: RunMode = "act",
        deadline: DeadlineLike = None,
    ) -> None:
        text("RunContext", "correlation_id", correlation_id)
        if not isinstance(scope, Scope):
            raise ConfigurationError(f"RunContext(scope={scope!r}): pass a Scope, such as Scope(tenant='acme').")
        if budget is not None:
            checked_budget("RunContext", budget)
        self.correlation_id = correlation_id
        self.scope = scope
        self.budget = Budget() if budget is None else budget
        self.services = Services() if services is None else services
        self.meters = meters
        self.depth = whole("RunContext", "depth", depth, 0)
        self.cancel = cancel
        self.autonomy: Autonomy = choice("RunContext", "autonomy", autonomy, AUTONOMIES)
        self.actor_budget = actor_budget
        self.signal_channel = signal_channel
        self.mode: RunMode = choice("RunContext", "mode", mode, MODES)
        self.deadline: Deadline | None = to_deadline(deadline, self.services.clock)
        self.path = ""
        self.account = RunAccount()
        self.sink: EventSink | None = None
        self.span: SpanPort | None = None
        self.turn = 0
        self.agent = ""
        self.resuming = False
        self.decisions: Mapping[str, Decision] = {}
        self._names: dict[str, int] | None = None

    def child(
        self,
        *,
        name: str | None = None,
        actor_budget: ActorBudget | Unset | None = UNSET,
        signal_channel: SignalChannel | Unset | None = UNSET,
        autonomy: Autonomy | None = None,
        mode: RunMode | None = None,
    ) -> RunContext:
        """Return the context one level deeper; UNSET keeps the parent's value, None takes it away.

        Only the depth is checked here: a tripped token or an exhausted budget stops the child's first step. Children
        of one name are numbered. Raises MeterExceeded (axis depth) beyond the budget's `max_depth`, and
        ConfigurationError for an `autonomy` or `mode` wider than this one's.
        """
        return self._deeper(self._segment(name or "child"), actor_budget, signal_channel, autonomy, mode)

    def tool_child(self, name: str, turn: int, position: int) -> RunContext:
        """Return the context of a sub-agent called as a tool: its path names turn and position, so resume finds it."""
        return self._deeper(f"{_checked_name(name)}@{turn}.{position}", UNSET, UNSET, None, None)

    def _deeper(
        self,
        segment: str,
        actor_budget: ActorBudget | Unset | None,
        signal_channel: SignalChannel | Unset | None,
        autonomy: Autonomy | None,
        mode: RunMode | None,
    ) -> RunContext:
        depth = self.depth + 1
        if depth > self.budget.max_depth:
            raise MeterExceeded(f"depth {depth} > {self.budget.max_depth}", axis="depth")
        child = self.branch()
        child.depth = depth
        child.path = f"{self.path}/{segment}" if self.path else segment
        child.turn = 0
        child._names = None
        if not isinstance(actor_budget, Unset):
            child.actor_budget = actor_budget
        if not isinstance(signal_channel, Unset):
            child.signal_channel = signal_channel
        if autonomy is not None:
            child.autonomy = _narrowed("autonomy", autonomy, self.autonomy, AUTONOMIES)
        if mode is not None:
            child.mode = _narrowed("mode", mode, self.mode, MODES)
        return child

    def branch(self, *, state: AccountState = NOTHING_YET) -> RunContext:
        """Return a copy in the same place whose account is its own and also counts here."""
        copy = self._copy()
        copy.account = RunAccount(self.account, state)
        return copy

    def under(self, span: SpanPort) -> RunContext:
        """Return a copy whose spans have this parent; everything else, the account too, is shared."""
        copy = self._copy()
        copy.span = span
        return copy

    def limited(
        self, *, budget: Budget | None = None, deadline: DeadlineLike = None, sink: EventSink | None = None
    ) -> RunContext:
        """Return a copy under a further budget, the earlier of both deadlines, and with another event sink."""
        copy = self._copy()
        if budget is not None:
            checked_budget("call", budget)
            copy.meters = [*self.meters, budget]
        limit = to_deadline(deadline, self.services.clock)
        if limit is not None and (self.deadline is None or limit.at < self.deadline.at):
            copy.deadline = limit
        if sink is not None:
            copy.sink = sink
        return copy

    def _copy(self) -> RunContext:
        """Return a copy that numbers its children together with this one, so that a path is used once."""
        if self._names is None:
            self._names = {}
        copy = RunContext.__new__(RunContext)
        copy.correlation_id = self.correlation_id
        copy.scope = self.scope
        copy.budget = self.budget
        copy.services = self.services
        copy.meters = self.meters
        copy.depth = self.depth
        copy.cancel = self.cancel
        copy.autonomy = self.autonomy
        copy.actor_budget = self.actor_budget
        copy.signal_channel = self.signal_channel
        copy.mode = self.mode
        copy.deadline = self.deadline
        copy.path = self.path
        copy.account = self.account
        copy.sink = self.sink
        copy.span = self.span
        copy.turn = self.turn
        copy.agent = self.agent
        copy.resuming = self.resuming
        copy.decisions = self.decisions
        copy._names = self._names
        return copy

    @property
    def all_meters(self) -> Sequence[Meter]:
        """Return the budget and the further meters: all of them apply."""
        return (self.budget, *self.meters) if self.meters else (self.budget,)

    @property
    def invoker(self) -> InvokerPort:
        """Return the way to models and tools; raises ConfigurationError when the services have none."""
        invoker = self.services.invoker
        if invoker is None:
            raise ConfigurationError("This context has no invoker; pass services=Services(invoker=Invoker(llm=...)).")
        return invoker

    @property
    def trace(self) -> TracePort:
        """Return `services.trace`."""
        return self.services.trace

    @property
    def store(self) -> KeyValueStore | None:
        """Return `services.store`."""
        return self.services.store

    @property
    def checkpointer(self) -> RunLog | None:
        """Return `services.checkpointer`."""
        return self.services.checkpointer

    @property
    def vector(self) -> VectorPort | None:
        """Return `services.vector`."""
        return self.services.vector

    @property
    def observer(self) -> ObserverPort:
        """Return `services.observer`."""
        return self.services.observer

    @property
    def replay(self) -> ReplayStore:
        """Return `services.replay`."""
        return self.services.replay

    @property
    def metrics(self) -> MetricsPort:
        """Return `services.metrics`."""
        return self.services.metrics

    @property
    def sampler(self) -> SamplerPort:
        """Return `services.sampler`."""
        return self.services.sampler

    @property
    def asker(self) -> AskerPort | None:
        """Return `services.asker`."""
        return self.services.asker

    def semaphore(self) -> Semaphore:
        """Return the fan-out pool of this depth."""
        return self.budget.semaphore(self.depth)

    def remaining_time(self) -> float | None:
        """Return the seconds left until the deadline, None without one."""
        return None if self.deadline is None else self.deadline.remaining()

    def check_cancelled(self) -> None:
        """Raise Cancelled when the token is tripped, DeadlineExceeded when the deadline has passed."""
        if self.cancel is not None or self.deadline is not None:
            reason = abort_reason(self.deadline, self.cancel)
            if reason is not None:
                self.describe(reason)
                raise reason

    def record(self, record: CostRecord, /) -> None:
        """Add an attempt's priced row to this run's account and every parent's."""
        self.account.add(record)

    def describe(self, error: AgentkitError) -> None:
        """Put the run id and what was spent so far on an error that does not carry them yet."""
        if error.run_id is None:
            tally = self.account.tally
            error.run_id = self.correlation_id
            error.cost = self.account.cost
            error.known_cost = tally.spent
            if not error.usage:
                error.usage = {name: getattr(tally.usage, name) for name in tally.usage.__struct_fields__}

    async def emit(
        self,
        kind: str,
        render: str = "",
        *,
        payload: JsonValue = None,
        agent: str = "",
        parent_id: str | None = None,
    ) -> None:
        """Tell observers and the run's event stream something; never raises into the run.

        `kind` is one of ObservationKind; others are passed on as they are. Results and errors are also noted on the
        open span.
        """
        if self.sink is not None:
            with suppress(Exception):
                await self.sink.put(Observed(self.sink.next_seq(), self.path, self.turn, kind, render, payload))
        span = self.span
        if span is not None and kind in CRITICAL_KINDS:
            with suppress(Exception):
                span.event("observation.emitted", {"kind": kind})
        if self.services.observed:
            with suppress(Exception):
                await self.services.observer.observe(
                    Observation(
                        self.correlation_id,
                        kind,
                        render,
                        self.services.clock.wall(),
                        payload,
                        agent,
                        self.path,
                        parent_id,
                        None if span is None else span.trace_context,
                    )
                )

    def _segment(self, name: str) -> str:
        names = self._names
        if names is None:
            names = self._names = {}
        count = names.get(_checked_name(name), 0) + 1
        names[name] = count
        return name if count == 1 else f"{name}#{count}"

    def __repr__(self) -> str:
        place = f"/{self.path}" if self.path else ""
        return f"RunContext({self.correlation_id}{place}, tenant={self.scope.tenant!r}, depth={self.depth})"


def checked_budget(owner: str, budget: Budget) -> Budget:
    """Return the budget; raises ConfigurationError for an amount where a Budget belongs."""
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"{owner}(budget={budget!r}): pass a Budget, such as Budget('0.05').")
    return budget


def _checked_name(name: str) -> str:
    if not name or any(sign in name for sign in "/@#"):
        raise ConfigurationError(f"child(name={name!r}): pass a non-empty name without '/', '@' and '#'.")
    return name


def _narrowed(what: str, wanted: C, current: C, order: tuple[C, ...]) -> C:
    choice("child", what, wanted, order)
    if order.index(wanted) < order.index(current):
        raise ConfigurationError(f"child({what}={wanted!r}) is wider than the run's {current!r}; it can only narrow.")
    return wanted
