"""Trying the binding's other routes when one fails before its first visible event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from agentkit.catalog import serving_routes
from agentkit.core.contracts import Call, CallNext, ChatEvent, ChatRequest, Route
from agentkit.errors import BadRequest, ContextOverflow, ProviderError, Refused

__all__ = ["Fallback", "fallback"]


class Fallback:
    """Replaces `call.route` by the next of its fallbacks after a failure that another model may not share.

    A request that is wrong in itself (BadRequest) and a refusal are not tried elsewhere; one that is too long is.
    The last route's error is raised. Routes whose model is known to lack what the request needs are left out; when
    none is left, CapabilityMissing is raised before anything is sent.
    """

    __slots__ = ()

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there is one route."""
        if call.route is None:
            return call_next(call)
        routes = serving_routes(call.route, call.request)
        if len(routes) == 1:
            return call_next(call if routes[0] is call.route else replace(call, route=routes[0]))
        return self._walk(call, call_next, list(routes))

    async def _walk(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], others: list[Route]
    ) -> AsyncGenerator[ChatEvent, None]:
        route = others.pop(0)
        while True:
            seen = False
            try:
                async with aclosing(call_next(replace(call, route=route))) as events:
                    async for event in events:
                        seen = seen or event.visible
                        yield event
                return
            except ProviderError as error:
                if seen or not others or not _another_may_do(error):
                    raise
                route = others.pop(0)

    def __repr__(self) -> str:
        return "fallback()"


def fallback() -> Fallback:
    """Return the layer; it does something for routes that have fallbacks, and nothing for others."""
    return Fallback()


def _another_may_do(error: ProviderError) -> bool:
    if isinstance(error, ContextOverflow):
        return True
    return not isinstance(error, (BadRequest, Refused))
