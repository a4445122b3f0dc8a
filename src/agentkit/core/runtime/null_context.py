"""The context of code that runs outside any run: nothing is metered, nothing is cancelled, nobody listens."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Sequence
from typing import Final, NoReturn

from agentkit.core.contracts import CostRecord, JsonValue, Meter, Scope
from agentkit.core.runtime.services import Services
from agentkit.core.runtime.telemetry.observation import NoopTrace
from agentkit.errors import AgentkitError, ConfigurationError

__all__ = ["NullCtx"]

_WIDE = 1_000_000
_SERVICES: Final = Services()
_TRACE: Final = NoopTrace()


class NullCtx:
    """Stands in for a RunContext where a tool or layer is called by hand; it never reaches a model.

    Without a scope it is the tenant "local". `invoker` raises ConfigurationError; everything else does nothing.
    """

    __slots__ = ("scope",)

    correlation_id = "null"
    depth = 0
    path = ""
    turn = 0
    autonomy: Final = "auto"
    mode: Final = "act"
    cancel = None
    deadline = None
    actor_budget = None
    signal_channel = None
    span = None
    sink = None
    asker = None
    all_meters: Sequence[Meter] = ()
    trace = _TRACE
    services = _SERVICES

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = Scope(tenant="local") if scope is None else scope

    @property
    def invoker(self) -> NoReturn:
        """Raise ConfigurationError: there is no way to a model from here."""
        raise ConfigurationError(
            "NullCtx reaches no model; pass a RunContext with services=Services(invoker=Invoker(llm=...))."
        )

    def child(self, **changes: object) -> NullCtx:
        """Return itself: nothing is counted, so nothing gets deeper."""
        return self

    def semaphore(self) -> Semaphore:
        """Return slots enough for anybody."""
        return Semaphore(_WIDE)

    def remaining_time(self) -> float | None:
        """Return None: there is no deadline."""
        return None

    def check_cancelled(self) -> None:
        """Do nothing."""

    def record(self, record: CostRecord, /) -> None:
        """Do nothing."""

    def describe(self, error: AgentkitError) -> None:
        """Do nothing."""

    async def emit(
        self,
        kind: str,
        render: str = "",
        *,
        payload: JsonValue = None,
        agent: str = "",
        parent_id: str | None = None,
    ) -> None:
        """Do nothing."""
