"""What a run may use besides models: stores, telemetry, people, and the app's own objects under typed keys."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from agentkit.core.contracts import InvokerPort, KeyValueStore, LedgerStore, PendingCall, Route, RunLog
from agentkit.core.contracts.policies import Decision
from agentkit.core.runtime.clock import SYSTEM_CLOCK, Clock
from agentkit.core.runtime.telemetry.masking import Masker
from agentkit.core.runtime.telemetry.observation import (
    AlwaysOnSampler,
    MetricsPort,
    NoopMetrics,
    NoopObserver,
    NoopReplayStore,
    NoopTrace,
    ObserverPort,
    ReplayStore,
    SamplerPort,
    TracePort,
)
from agentkit.errors import ConfigurationError

__all__ = ["AppData", "AskerPort", "Key", "ModelSource", "Services", "VectorPort"]

T = TypeVar("T")


class AskerPort(Protocol):
    """Asks a person while the run waits in place; without one, an unanswered ask suspends the run."""

    async def ask(self, pending: PendingCall, /) -> Decision:
        """Return the person's decision."""
        ...


class ModelSource(Protocol):
    """Turns a host's binding into the route of a model, and owns the clients behind it."""

    def route(self, binding: object, /) -> Route:
        """Return the route; raises ConfigurationError for a binding that leads nowhere."""
        ...


class VectorPort(Protocol):
    """A vector index of the host's, scoped by tenant."""

    async def search(self, tenant: str, query: str, /, *, k: int = 5) -> list[tuple[str, float]]:
        """Return the nearest texts with their scores."""
        ...


class Key(Generic[T]):
    """The name and type of one of the app's own objects."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Key({self.name!r})"


class AppData:
    """The app's own objects (a database handle, the user) for its tools; never serialised, never logged."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[Key[object], object] | None = None) -> None:
        self._values: dict[Key[object], object] = dict(values or {})

    def put(self, key: Key[T], value: T) -> AppData:
        """Return a copy that also holds this object."""
        return AppData({**self._values, key: value})  # type: ignore[dict-item]

    def get(self, key: Key[T]) -> T:
        """Return the object under the key; raises ConfigurationError naming the key when it is missing."""
        try:
            return self._values[key]  # type: ignore[index, return-value]
        except KeyError:
            raise ConfigurationError(
                f"Services.app has nothing under {key!r}; pass Services(app=AppData().put(key, value))."
            ) from None

    __getitem__ = get

    def __contains__(self, key: Key[T]) -> bool:
        return key in self._values

    def __repr__(self) -> str:
        return f"AppData({', '.join(key.name for key in self._values)})"


class Services:
    """What every context of a run shares; `replace` makes a changed copy."""

    __slots__ = (
        "app",
        "asker",
        "checkpointer",
        "clock",
        "invoker",
        "ledger",
        "masker",
        "metrics",
        "models",
        "observer",
        "replay",
        "sampler",
        "store",
        "trace",
        "vector",
    )

    def __init__(
        self,
        invoker: InvokerPort | None = None,
        store: KeyValueStore | None = None,
        checkpointer: RunLog | None = None,
        vector: VectorPort | None = None,
        trace: TracePort | None = None,
        observer: ObserverPort | None = None,
        replay: ReplayStore | None = None,
        metrics: MetricsPort | None = None,
        sampler: SamplerPort | None = None,
        asker: AskerPort | None = None,
        *,
        app: AppData | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ledger: LedgerStore | None = None,
        masker: Masker | None = None,
        models: ModelSource | None = None,
    ) -> None:
        self.invoker = invoker
        self.store = store
        self.checkpointer = checkpointer
        self.vector = vector
        self.trace: TracePort = trace or _NOOP_TRACE
        self.observer: ObserverPort = observer or _NOOP_OBSERVER
        self.replay: ReplayStore = replay or _NOOP_REPLAY
        self.metrics: MetricsPort = metrics or _NOOP_METRICS
        self.sampler: SamplerPort = sampler or _ALWAYS_ON
        self.asker = asker
        self.app = app or _NO_APP
        self.clock = clock
        self.ledger = ledger
        self.masker = masker or _NO_MASK
        self.models = models

    def replace(self, **changes: object) -> Services:
        """Return a copy with these fields changed; raises ConfigurationError for an unknown field."""
        unknown = sorted(set(changes) - set(self.__slots__))
        if unknown:
            raise ConfigurationError(f"Services has no field {unknown[0]!r}; it has {', '.join(self.__slots__)}.")
        copy = Services.__new__(Services)
        for name in self.__slots__:
            setattr(copy, name, changes.get(name, getattr(self, name)))
        return copy

    @property
    def traced(self) -> bool:
        """Return whether a tracer was given."""
        return self.trace is not _NOOP_TRACE

    @property
    def observed(self) -> bool:
        """Return whether anybody receives observations."""
        return self.observer is not _NOOP_OBSERVER


_NOOP_TRACE = NoopTrace()
_NOOP_OBSERVER = NoopObserver()
_NOOP_REPLAY = NoopReplayStore()
_NOOP_METRICS = NoopMetrics()
_ALWAYS_ON = AlwaysOnSampler()
_NO_APP = AppData()
_NO_MASK = Masker()
