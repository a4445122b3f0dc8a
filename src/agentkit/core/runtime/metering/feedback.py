"""What providers said of their own limits, for as long as it holds."""

from __future__ import annotations

from msgspec import Struct

from agentkit.core.contracts import Quote, RateLimit
from agentkit.core.runtime.metering.limits import Refusal

__all__ = ["Feedback"]


_MANY = 128


class _Said(Struct):
    closed_until: float = 0.0
    tokens_left: int = 0
    tokens_until: float = 0.0


class Feedback:
    """The latest word of a provider for each key; not thread-safe by itself. What has run out takes no memory."""

    __slots__ = ("_many", "_said")

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}
        self._many = _MANY

    def learn(self, key: str, limit: RateLimit, now: float) -> None:
        """Remember what was said at the moment `now`, in seconds of the meter's clock."""
        said = self._said.get(key) or _Said()
        if limit.retry_after is not None:
            said.closed_until = max(said.closed_until, now + limit.retry_after)
        if limit.requests_left == 0 and limit.requests_reset is not None:
            said.closed_until = max(said.closed_until, now + limit.requests_reset)
        if limit.tokens_left is not None and limit.tokens_reset is not None:
            said.tokens_left, said.tokens_until = limit.tokens_left, now + limit.tokens_reset
        if max(said.closed_until, said.tokens_until) > now:
            self._said[key] = said
            if len(self._said) > self._many:
                self._forget(now)

    def lacks(self, key: str, quote: Quote, in_flight: int, now: float) -> Refusal | None:
        """Return why a bound beside so many tokens in flight would only be turned away, None when it may go."""
        said = self._said.get(key)
        if said is None:
            return None
        if said.closed_until > now:
            return Refusal("provider", f"the provider takes nothing for {said.closed_until - now:.1f} s more")
        tokens = in_flight + quote.input_tokens + quote.output_tokens
        if said.tokens_until > now and tokens > said.tokens_left:
            wait = said.tokens_until - now
            return Refusal("provider", f"tokens up to {tokens} > {said.tokens_left} left for {wait:.1f} s more")
        if said.tokens_until <= now:
            del self._said[key]
        return None

    def _forget(self, now: float) -> None:
        """Drop what has run out of keys that nobody asks for any more; look again at twice as many."""
        self._said = {key: said for key, said in self._said.items() if max(said.closed_until, said.tokens_until) > now}
        self._many = max(_MANY, 2 * len(self._said))

    def until(self, key: str, now: float) -> float | None:
        """Return when the next of a key's words runs out, None when there is none."""
        said = self._said.get(key)
        if said is None:
            return None
        moments = [moment for moment in (said.closed_until, said.tokens_until) if moment > now]
        return min(moments, default=None)
