"""The default layers, in the order that the middleware room keeps."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.calls.admission import Admission
from agentkit.core.contracts import (
    BreakerPolicy,
    ChatMiddleware,
    HedgePolicy,
    PriceSource,
    Rates,
    RetryPolicy,
    ToolMiddleware,
    UnpricedPolicy,
)
from agentkit.core.runtime.breaker import Breaker
from agentkit.middleware.fallback import fallback
from agentkit.middleware.hedge import hedge
from agentkit.middleware.meter import meter
from agentkit.middleware.policy import policy
from agentkit.middleware.retry import retry, retry_tools
from agentkit.middleware.timeout import timeout
from agentkit.middleware.trace import trace, trace_tools

__all__ = ["default_chat_stack", "default_tool_stack"]


def default_chat_stack(
    prices: PriceSource,
    *,
    retry_policy: RetryPolicy,
    breaker_policy: BreakerPolicy | None = None,
    hedge_policy: HedgePolicy | None = None,
    unpriced_policy: UnpricedPolicy,
    fallback_price: Rates | None = None,
    capture_text: bool,
    admission: Admission,
    extra: Sequence[ChatMiddleware] = (),
) -> tuple[ChatMiddleware, ...]:
    """Return trace, the host's own layers, fallback, retry, hedge, meter and admission, outermost first.

    Without a hedge policy that layer is left out; without a breaker policy no circuit ever opens.
    """
    breaker = None if breaker_policy is None else Breaker(breaker_policy)
    return (
        trace(capture_text=capture_text),
        *extra,
        fallback(),
        retry(retry_policy, breaker=breaker),
        *(() if hedge_policy is None else (hedge(hedge_policy, breaker=breaker),)),
        meter(prices, unpriced_policy, fallback_price=fallback_price),
        admission,
    )


def default_tool_stack(
    *, retry_policy: RetryPolicy, capture_text: bool, extra: Sequence[ToolMiddleware] = ()
) -> tuple[ToolMiddleware, ...]:
    """Return trace, policy, the host's own layers, retry of harmless calls, and timeout, outermost first."""
    return (trace_tools(capture_text=capture_text), policy(), *extra, retry_tools(retry_policy), timeout())
