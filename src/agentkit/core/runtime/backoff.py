"""When the next attempt of a call begins, if at all."""

from __future__ import annotations

import math
from typing import TypeAlias

from msgspec import Struct

from agentkit.core.contracts import Call, ChatRequest, RetryPolicy, ToolRequest
from agentkit.core.runtime.clock import Clock
from agentkit.core.runtime.layers import run_context

__all__ = ["Backoff"]

AnyCall: TypeAlias = "Call[ChatRequest] | Call[ToolRequest]"

_WITHOUT_DEADLINE = 120.0  # seconds: the longest Retry-After that is waited out when no deadline says otherwise
_LAST_DOUBLING = 60  # the cap is reached long before; larger powers would only overflow


class Backoff(Struct):
    """The waits of one call under a policy; `tries` counts the attempts begun."""

    policy: RetryPolicy
    call: AnyCall
    tries: int = 1
    began: float = 0.0

    def __post_init__(self) -> None:
        if self.policy.max_elapsed is not None:
            self.began = self.clock.now()

    @property
    def clock(self) -> Clock:
        """Return the clock of the call's run."""
        return run_context(self.call).services.clock

    def next_wait(self, hint: float | None, share: float, *, alternative: bool = False) -> float | None:
        """Return the seconds to wait, never under the hint; None when there is no next attempt.

        `share` of 0 to 1 is the jitter; it takes at most half of what a deadline leaves, so that the attempt has time
        of its own. `alternative` says that another model could be asked instead of waiting long.
        """
        policy = self.policy
        if self.tries >= policy.max_attempts:
            return None
        least = hint if hint is not None and math.isfinite(hint) and hint > 0 else 0.0
        ceiling = min(policy.max_delay, policy.base_delay * 2.0 ** min(self.tries - 1, _LAST_DOUBLING))
        left = self.call.ctx.remaining_time()
        if least > self._longest(left, alternative=alternative):
            return None
        if left is not None:
            if least >= left:
                return None
            ceiling = min(ceiling, (left - least) / 2)
        wait = least + share * ceiling
        if policy.max_elapsed is not None and self.clock.now() - self.began + wait > policy.max_elapsed:
            return None
        return wait

    def _longest(self, left: float | None, *, alternative: bool) -> float:
        if self.policy.max_retry_after is not None:
            return self.policy.max_retry_after
        if alternative:
            return self.policy.max_delay
        return _WITHOUT_DEADLINE if left is None else math.inf
