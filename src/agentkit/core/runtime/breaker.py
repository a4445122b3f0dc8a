"""Which servers are left alone because they fail: a circuit for each that is closed, open, or tried by one call."""

from __future__ import annotations

import logging
import threading
from typing import Final, TypeAlias, cast
from weakref import ReferenceType, ref

from agentkit.core.contracts import BreakerPolicy, Call, ChatRequest, LLMPort, semconv
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.telemetry.spans import Attributes, contained, measured
from agentkit.errors import Overloaded, ProviderError, StreamBroken

__all__ = ["CIRCUIT_OPEN", "Breaker", "Probe"]

CIRCUIT_OPEN: Final = "circuit_open"

_LOG = logging.getLogger("agentkit")
_MOST = 1024  # circuits kept: only servers that fail have one
_Key: TypeAlias = tuple[int, str | None]


class Probe:
    """The one call that is let through to see whether a server is back; forgotten, its place is free again."""

    __slots__ = ("__weakref__", "circuits")

    def __init__(self, circuits: list[_Circuit]) -> None:
        self.circuits = circuits


class _Circuit:
    """The failures of one server in a row, or of one of its models; open while `opened` has a time."""

    __slots__ = ("failures", "opened", "port", "probe")

    def __init__(self, port: LLMPort | None) -> None:
        self.port = port  # keeps the id that the circuit is found by
        self.failures = 0
        self.opened: float | None = None
        self.probe: ReferenceType[Probe] | None = None

    @property
    def probed(self) -> bool:
        return self.probe is not None and self.probe() is not None


class Breaker:
    """Opens the circuit of a server after failures in a row; calls fail at once until its cool-down is over.

    A server that cannot be reached counts as a whole; one that answers with a failure counts for that model alone,
    since others of it may work. Any other answer, a refusal of the request too, shows that it works. `enter` comes
    before an attempt; after it, one of `succeeded`, `failed` and `left`; while `circuits` is empty, `enter` and
    `succeeded` have nothing to do. Safe over threads and event loops; times are those of each call's own clock.
    """

    __slots__ = ("_lock", "circuits", "policy")

    def __init__(self, policy: BreakerPolicy = BreakerPolicy()) -> None:  # noqa: B008
        self.policy = policy
        self.circuits: dict[_Key, _Circuit] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Breaker(failures={self.policy.failures}, cooldown={self.policy.cooldown:g})"

    def enter(self, call: Call[ChatRequest]) -> Probe | None:
        """Let an attempt through; a Probe when it is the one that tries a server again.

        Raises Overloaded with the code "circuit_open" and the time left as `retry_after`.
        """
        if not self.circuits:
            return None
        now = _now(call)
        with self._lock:
            opened: list[_Circuit] = []
            for key in _keys(call):
                circuit = self.circuits.get(key)
                if circuit is None or circuit.opened is None:
                    continue
                left = circuit.opened + self.policy.cooldown - now
                if left > 0 or circuit.probed:
                    raise _refusal(call, max(left, 0.0))
                opened.append(circuit)
            if not opened:
                return None
            probe = Probe(opened)
            for circuit in opened:
                circuit.probe = ref(probe)
            return probe

    def succeeded(self, call: Call[ChatRequest]) -> None:
        """Close the circuits of the call's model: it answered."""
        if not self.circuits:
            return
        with self._lock:
            gone = [self.circuits.pop(key, None) for key in _keys(call)]
        if any(circuit is not None and circuit.opened is not None for circuit in gone):
            _LOG.info("The circuit of %s is closed: it answers again.", _name(call))

    def failed(self, call: Call[ChatRequest], error: ProviderError, probe: Probe | None = None) -> bool:
        """Count the failure where the error is one of the server; returns whether its circuit is open now."""
        if not isinstance(error, (Overloaded, StreamBroken)):
            self.succeeded(call)
            return False
        now = _now(call)
        with self._lock:
            if probe is not None and self._reopened(probe, now):
                return True
            circuit = self._circuit(call, error)
            circuit.failures += 1
            if circuit.opened is not None:
                return True
            if circuit.failures < self.policy.failures:
                return False
            circuit.opened = now
        self._tell(call, circuit.failures)
        return True

    def left(self, probe: Probe) -> None:
        """Give the place of a probe that ended without an answer to the next call."""
        with self._lock:
            for circuit in probe.circuits:
                if circuit.probe is not None and circuit.probe() is probe:
                    circuit.probe = None

    def _reopened(self, probe: Probe, now: float) -> bool:
        mine = [one for one in probe.circuits if one.probe is not None and one.probe() is probe]
        for circuit in mine:
            circuit.opened, circuit.probe = now, None
        known = self.circuits.values()
        return any(one is circuit for one in known for circuit in mine)

    def _circuit(self, call: Call[ChatRequest], error: ProviderError) -> _Circuit:
        server, model = _keys(call)
        key = server if error.status is None else model
        circuit = self.circuits.get(key)
        if circuit is None:
            if len(self.circuits) >= _MOST:
                del self.circuits[next(iter(self.circuits))]
            circuit = self.circuits[key] = _Circuit(_port(call))
        return circuit

    def _tell(self, call: Call[ChatRequest], failures: int) -> None:
        ctx = cast(RunContext, call.ctx)
        name, seconds = _name(call), self.policy.cooldown
        _LOG.warning(
            "The circuit of %s is open after %d failures in a row; it is tried again in %g s.", name, failures, seconds
        )
        attributes: Attributes = {"failures": failures, "cooldown": seconds}
        if call.route is not None:
            attributes |= {semconv.PROVIDER: call.route.provider, semconv.REQUEST_MODEL: call.route.model}
        if ctx.span is not None:
            contained("event", ctx.span.event, semconv.CIRCUIT_OPENED, attributes)
        if measured(ctx.services):
            tags = {key: value for key, value in attributes.items() if key not in ("failures", "cooldown")}
            contained("metrics", ctx.services.metrics.add_counter, semconv.CIRCUITS, 1, tags)


def _refusal(call: Call[ChatRequest], left: float) -> Overloaded:
    route = call.route
    return Overloaded(
        f"{_name(call)} failed again and again and is left alone; it is tried again in {left:.1f} s.",
        provider="" if route is None else route.provider,
        model="" if route is None else route.model,
        code=CIRCUIT_OPEN,
        retry_after=left,
        accepted=False,
    )


def _keys(call: Call[ChatRequest]) -> tuple[_Key, _Key]:
    """Return the keys of the call's server and of the model there."""
    server = id(_port(call))
    return (server, None), (server, "" if call.route is None else call.route.model)


def _port(call: Call[ChatRequest]) -> LLMPort | None:
    return None if call.route is None else call.route.port


def _name(call: Call[ChatRequest]) -> str:
    return "The Invoker's own model" if call.route is None else f"{call.route.provider}:{call.route.model}"


def _now(call: Call[ChatRequest]) -> float:
    return cast(RunContext, call.ctx).services.clock.now()
