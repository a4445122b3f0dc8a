"""The default layers, in the order that the middleware room keeps."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.calls.admission import Admission
from agentkit.core.contracts import (
    ChatMiddleware,
    PriceSource,
    RetryPolicy,
    ToolMiddleware,
    UnpricedPolicy,
)
from agentkit.middleware.fallback import fallback
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
    unpriced_policy: UnpricedPolicy,
    capture_text: bool,
    admission: Admission,
    extra: Sequence[ChatMiddleware] = (),
) -> tuple[ChatMiddleware, ...]:
    """Return trace, the host's own layers, fallback, retry, meter and admission, outermost first."""
    return (
        trace(capture_text=capture_text),
        *extra,
        fallback(),
        retry(retry_policy),
        meter(prices, unpriced_policy),
        admission,
    )


def default_tool_stack(
    *, retry_policy: RetryPolicy, capture_text: bool, extra: Sequence[ToolMiddleware] = ()
) -> tuple[ToolMiddleware, ...]:
    """Return trace, policy, the host's own layers, retry of harmless calls, and timeout, outermost first."""
    return (trace_tools(capture_text=capture_text), policy(), *extra, retry_tools(retry_policy), timeout())
