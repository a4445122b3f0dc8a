"""One run's place in the run log: opening it, writing its steps, ending it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

from agentkit.core.contracts import Decision, Lease, LogRecord, RunLog, RunStatus, Slot
from agentkit.core.contracts.codec import decode_data, encode_data
from agentkit.core.runtime.clock import Timer
from agentkit.core.runtime.context import RunContext
from agentkit.durable.checkpoint import RunState, Step
from agentkit.errors import ConfigurationError, EffectUnknown, RunConflict, StoreError

__all__ = ["CHECKPOINT_KIND", "LEASE_SECONDS", "RunSlot", "to_decisions"]

CHECKPOINT_KIND = "checkpoint"
LEASE_SECONDS = 30.0

_ELSEWHERE = "start on ctx.child(name=...) of its context, or under another correlation_id."


class _Volatile:
    """What is known of a log that ends with the process: slots held (a lease is not needed), runs that wrote."""

    __slots__ = ("held", "wrote")

    def __init__(self) -> None:
        self.held: set[Slot] = set()
        self.wrote: set[tuple[str, str]] = set()


_VOLATILE: WeakKeyDictionary[RunLog, _Volatile] = WeakKeyDictionary()


class RunSlot:
    """The writer of one slot, holding its lease from `start` or `resume` until `end`.

    Without a run log, or not `durable`, it writes nothing; over a volatile one (memory) it writes only where a run
    stops, since whatever would lose its steps loses the log too. Raises RunConflict while somebody else holds the slot.
    """

    __slots__ = ("_ctx", "_holds", "_lease", "_log", "_memory", "_renewal", "_slot", "_task", "revision", "volatile")

    def __init__(self, ctx: RunContext, *, durable: bool = True) -> None:
        self._ctx = ctx
        self._log = ctx.checkpointer if durable else None
        self._slot = Slot(ctx.scope.tenant, ctx.correlation_id, ctx.path)
        self._lease: Lease | None = None
        self._holds = False
        self._renewal: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self.revision = 0
        self.volatile = self._log is None or bool(getattr(self._log, "volatile", False))
        self._memory = _volatile(self._log) if self._log is not None and self.volatile else None

    @property
    def log(self) -> RunLog | None:
        """Return the run log, None when the run leaves no trace."""
        return self._log

    @property
    def called(self) -> bool:
        """Return whether a run that is under way here called this one, and may be resumed with it."""
        if self._log is None or not self._slot.path:
            return False
        tenant, run_id, parts = self._slot.tenant, self._slot.run_id, self._slot.path.split("/")
        held = _volatile(self._log).held
        return any(Slot(tenant, run_id, "/".join(parts[:depth])) in held for depth in range(len(parts)))

    async def start(self, *, owned: bool = False) -> None:
        """Take the slot for a new run, which becomes a new generation after a finished one.

        Raises RunConflict when an unfinished run is there, unless it is `owned` by the caller's own run.
        """
        if self._log is None:
            return
        summary, _ = await self._log.read(self._slot, kinds=())
        if summary is not None:
            if summary.status in ("running", "suspended") and not owned:
                raise RunConflict(f"Run {self._slot.run_id!r} is {summary.status}; resume it, or {_ELSEWHERE}")
            self.revision = summary.revision
        await self._take(self._log)

    async def load(self) -> RunState | None:
        """Return the stored state, None when there is none; takes the slot when the run can go on.

        Raises RunConflict while another process runs it, and EffectUnknown when that process died with a tool open
        that is not a read.
        """
        if self._log is None:
            return None
        summary, records = await self._log.read(self._slot, kinds=("checkpoint",))
        if summary is None:
            return None
        state = RunState.fold(decode_data(record.data, CHECKPOINT_KIND, Step) for record in records)
        self.revision = summary.revision
        if summary.status == "done":
            return state
        await self._take(self._log)
        await self._check_unmoved(self._log)
        if summary.status == "running" and state.open_effects:
            await self.end()
            raise EffectUnknown(
                f"Run {self._slot.run_id!r} died while {', '.join(state.open_effects)} was running, which is not a "
                "read: it may or may not have happened. Find out, then start a new run."
            )
        return state

    async def _check_unmoved(self, log: RunLog) -> None:
        """Refuse to go on from a state that another holder has moved on from before the slot was taken."""
        if self.volatile:
            return
        try:
            summary, _ = await log.read(self._slot, kinds=())
            if summary is None or summary.revision != self.revision:
                raise RunConflict(f"Run {self._slot.run_id!r} was carried on elsewhere meanwhile; resume it again.")
        except BaseException:
            await self.end()
            raise

    def attach(self, ctx: RunContext) -> None:
        """Go on under this context's clock."""
        self._ctx = ctx

    async def write(self, step: Step, status: RunStatus) -> None:
        """Append one step; it is durable when this returns."""
        if self._log is None:
            return
        if self._memory is not None:
            self._memory.wrote.add((self._slot.tenant, self._slot.run_id))
        record = LogRecord("checkpoint", str(self.revision + 1), encode_data(CHECKPOINT_KIND, step))
        fence = None if self._lease is None else self._lease.fence
        writing = asyncio.ensure_future(
            self._log.append(self._slot, self.revision, (record,), status=status, fence=fence)
        )
        try:
            self.revision = await asyncio.shield(writing)
        except asyncio.CancelledError:  # what was begun is written all the same, and the next write has to know
            with suppress(RunConflict, StoreError):
                self.revision = await writing
            raise

    async def discard(self) -> None:
        """Forget a finished run of a volatile log, so that a long-lived process does not grow."""
        run, memory = (self._slot.tenant, self._slot.run_id), self._memory
        if self._log is not None and memory is not None and run in memory.wrote:
            await self._log.delete(*run)
            memory.wrote.discard(run)

    async def end(self) -> None:
        """Give the slot back; may be called twice."""
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._holds and self._memory is not None:
            self._holds = False
            self._memory.held.discard(self._slot)
        lease, self._lease = self._lease, None
        if lease is not None and self._log is not None:
            await self._log.release(lease)

    async def _take(self, log: RunLog) -> None:
        if self._memory is not None:
            held = self._memory.held
            if self._slot in held:
                raise RunConflict(f"Run {self._slot.run_id!r} is running here; {_ELSEWHERE}")
            held.add(self._slot)
            self._holds = True
            return
        owner = f"{id(self):x}-{id(asyncio.get_running_loop()):x}"
        taking = asyncio.ensure_future(log.acquire(self._slot, owner, ttl=LEASE_SECONDS))
        try:
            self._lease = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await log.release(await taking)
            raise
        self._plan_renewal()

    def _plan_renewal(self) -> None:
        clock = self._ctx.services.clock
        self._renewal = clock.call_at(clock.now() + LEASE_SECONDS / 3, self._renew_soon)

    def _renew_soon(self) -> None:
        self._task = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        if self._lease is None or self._log is None:
            return
        with suppress(RunConflict, StoreError):  # a lost lease is reported by the next write, which its fence refuses
            self._lease = await self._log.renew(self._lease, ttl=LEASE_SECONDS)
            self._plan_renewal()


def _volatile(log: RunLog) -> _Volatile:
    known = _VOLATILE.get(log)
    if known is None:
        known = _VOLATILE[log] = _Volatile()
    return known


def to_decisions(given: Mapping[str, Decision | str | bool] | None) -> dict[str, Decision]:
    """Return decisions by pending id; raises ConfigurationError for what is neither allow nor deny."""
    decisions: dict[str, Decision] = {}
    for key, value in (given or {}).items():
        decision = value
        if value is True or value == "allow":
            decision = Decision.allow()
        elif value is False or value == "deny":
            decision = Decision.deny()
        if not isinstance(decision, Decision) or decision.verdict == "ask":
            raise ConfigurationError(f"decisions[{key!r}]={value!r}: pass 'allow', 'deny', True, False or a Decision.")
        decisions[key] = decision
    return decisions
