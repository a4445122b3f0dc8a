"""One tripwire for a tree of calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentkit.errors import Cancelled

__all__ = ["CancellationToken"]


class CancellationToken:
    """Ends a run from outside: trips once, from any thread, for everybody who shares it.

    A model call in flight is aborted and its meter settled; the next step of a run raises Cancelled.
    """

    __slots__ = ("_callbacks", "_cancelled", "_lock", "reason")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._cancelled = False
        self.reason = ""

    @property
    def cancelled(self) -> bool:
        """Return whether the token was tripped."""
        return self._cancelled

    def cancel(self, reason: str = "") -> None:
        """Trip the token; a second call does nothing. What a callback raises leaves after all of them were called."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            self.reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        failures: list[Exception] = []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def on_cancel(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back once when tripped, in the tripping thread (at once when it already is); returns the undo."""
        with self._lock:
            if not self._cancelled:
                key = id(callback)
                while key in self._callbacks:
                    key += 1
                self._callbacks[key] = callback
                return lambda: self._forget(key)
        callback()
        return _nothing

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled when tripped."""
        if self._cancelled:
            raise Cancelled(f"The run was cancelled: {self.reason}" if self.reason else "The run was cancelled.")

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _nothing() -> None:
    return None
