"""Ending work in flight when a deadline passes or a token trips: one loop timer, one callback, no scope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentkit.core.contracts import CancelSignal
from agentkit.core.runtime.clock import Timer
from agentkit.core.runtime.deadline import Deadline
from agentkit.errors import AgentkitError, Cancelled, DeadlineExceeded

__all__ = ["Abort", "abort_reason"]


def abort_reason(deadline: Deadline | None, cancel: CancelSignal | None) -> AgentkitError | None:
    """Return the error a run has to end with now, None while it may go on."""
    if cancel is not None and cancel.cancelled:
        reason = getattr(cancel, "reason", "")
        return Cancelled(f"The run was cancelled: {reason}" if reason else "The run was cancelled.")
    if deadline is not None and deadline.passed:
        return DeadlineExceeded("The deadline of the run has passed; what was in flight was aborted and settled.")
    return None


class Abort:
    """Watches a deadline and a token while armed, and interrupts the task that is inside `with`.

    The CancelledError it causes leaves the block as DeadlineExceeded or Cancelled; a cancellation from elsewhere
    stays what it is. `idle` is called instead when nobody is inside.
    """

    __slots__ = (
        "_cancel",
        "_cancelling",
        "_deadline",
        "_forget",
        "_idle",
        "_loop",
        "_sent",
        "_task",
        "_timer",
        "fired",
    )

    def __init__(
        self, deadline: Deadline | None, cancel: CancelSignal | None, idle: Callable[[], None] | None = None
    ) -> None:
        self._deadline = deadline
        self._cancel = cancel
        self._idle = idle
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._sent = False
        self._timer: Timer | None = None
        self._forget: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.fired: BaseException | None = None

    @property
    def inside(self) -> asyncio.Task[object] | None:
        """Return the task that is inside the block now."""
        return self._task

    def arm(self) -> None:
        """Start watching; raises at once when the run has to end already."""
        reason = abort_reason(self._deadline, self._cancel)
        if reason is not None:
            raise reason
        self._loop = asyncio.get_running_loop()
        if self._deadline is not None:
            self._timer = self._deadline.clock.call_at(self._deadline.at, self._fire)
        if self._cancel is not None:
            self._forget = self._cancel.on_cancel(self._tripped)

    def disarm(self) -> None:
        """Stop watching; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._forget is not None:
            self._forget()
            self._forget = None
        self._loop = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        self._task = task
        self._cancelling = task.cancelling() if task is not None else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if not self._sent or task is None or self.fired is None:
            return
        self._sent = False
        ours = task.uncancel() <= self._cancelling
        if kind is not None and issubclass(kind, asyncio.CancelledError) and ours:
            raise self.fired from error

    def _tripped(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._fire)

    def _fire(self) -> None:
        if self._loop is None or self.fired is not None:
            return
        reason = abort_reason(self._deadline, self._cancel)
        if reason is not None:
            self.interrupt(reason)
        elif self._deadline is not None:  # the timer was a little ahead of the clock
            self._timer = self._deadline.clock.call_at(self._deadline.at, self._fire)

    def interrupt(self, reason: BaseException) -> None:
        """Make the block end with this error, or call `idle` when nobody is inside; the first reason stays."""
        if self.fired is not None:
            return
        self.fired = reason
        if self._task is None:
            if self._idle is not None:
                self._idle()
        elif self._task is _current():
            asyncio.get_running_loop().call_soon(self._send, self._task)
        else:
            self._send(self._task)

    def _send(self, task: asyncio.Task[object]) -> None:
        if self._task is task and not self._sent:
            self._sent = True
            task.cancel()


def _current() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
