"""What providers said of their own limits, for as long as it holds."""

from __future__ import annotations

import threading

from msgspec import Struct

from agentkit.core.contracts import Quote, RateLimit, Route
from agentkit.core.runtime.metering.limits import Refusal

__all__ = ["Feedback"]

_FEW = 64


class _Said(Struct):
    closed_until: float = 0.0
    tokens_left: int = 0
    tokens_until: float = 0.0

    @property
    def until(self) -> float:
        """Return when all of it has run out."""
        return max(self.closed_until, self.tokens_until)


class Feedback:
    """The latest word of a provider for each key and model. What has run out takes no memory. Thread-safe."""

    __slots__ = ("_lock", "_said", "_sweep_at")

    def __init__(self) -> None:
        self._said: dict[tuple[str, str, str], _Said] = {}
        self._sweep_at = _FEW
        self._lock = threading.Lock()

    def learn(self, key: str, route: Route | None, limit: RateLimit, now: float) -> None:
        """Remember what was said at the moment `now`, in seconds of the meter's clock."""
        with self._lock:
            said = self._said.get(_name(key, route)) or _Said()
            if limit.retry_after is not None:
                said.closed_until = max(said.closed_until, now + limit.retry_after)
            if limit.requests_left == 0 and limit.requests_reset is not None:
                said.closed_until = max(said.closed_until, now + limit.requests_reset)
            if limit.tokens_left is not None and limit.tokens_reset is not None:
                said.tokens_left, said.tokens_until = limit.tokens_left, now + limit.tokens_reset
            if said.until > now:
                self._said[_name(key, route)] = said
                if len(self._said) >= self._sweep_at:
                    self._said = {name: each for name, each in self._said.items() if each.until > now}
                    self._sweep_at = max(_FEW, 2 * len(self._said))

    def lacks(self, key: str, route: Route | None, quote: Quote, in_flight: int, now: float) -> Refusal | None:
        """Return why a bound beside so many tokens in flight would only be turned away, None when it may go."""
        if not self._said:
            return None
        with self._lock:
            said = self._said.get(_name(key, route))
            if said is None:
                return None
            if said.closed_until > now:
                return Refusal("provider", f"the provider takes nothing for {said.closed_until - now:.1f} s more")
            tokens = in_flight + quote.input_tokens + quote.output_tokens
            if said.tokens_until > now and tokens > said.tokens_left:
                wait = said.tokens_until - now
                return Refusal("provider", f"tokens up to {tokens} > {said.tokens_left} left for {wait:.1f} s more")
            if said.tokens_until <= now:
                del self._said[_name(key, route)]
            return None

    def until(self, key: str, route: Route | None, now: float) -> float | None:
        """Return when the next of a key's words runs out, None when there is none."""
        with self._lock:
            said = self._said.get(_name(key, route))
            if said is None:
                return None
            return min((moment for moment in (said.closed_until, said.tokens_until) if moment > now), default=None)


def _name(key: str, route: Route | None) -> tuple[str, str, str]:
    return (key, "", "") if route is None else (key, route.provider, route.model)
