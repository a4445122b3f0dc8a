"""Folding layers around a terminal, once, when an Invoker is built."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Generic, TypeVar

from agentkit.core.contracts import Call, CallNext, ChatEnd, ChatRequest, Middleware, ToolEnded, ToolRequest
from agentkit.core.runtime.context import RunContext

__all__ = ["SimpleMiddleware", "chain", "run_context"]

Req = TypeVar("Req")
Ev = TypeVar("Ev")

run_context: Callable[[Call[ChatRequest] | Call[ToolRequest]], RunContext] = attrgetter("ctx")
"""Return the context of a call as what it is: layers are only called with those of this runtime."""


def chain(layers: Sequence[Middleware[Req, Ev]], terminal: CallNext[Req, Ev]) -> CallNext[Req, Ev]:
    """Return the stream function of all layers around the terminal; index 0 is outermost.

    Raises TypeError naming the index of anything that is not a middleware.
    """
    following = terminal
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        problem = _problem(layer)
        if problem:
            raise TypeError(
                f"middleware[{index}] is {layer!r}: {problem}. A middleware is an async generator function "
                "(call, call_next), or an object with such a __call__."
            )
        following = _bind(layer, following)
    return following


def _bind(layer: Middleware[Req, Ev], following: CallNext[Req, Ev]) -> CallNext[Req, Ev]:
    function = layer if inspect.isroutine(layer) else layer.__call__  # looked up once, not for each call

    def bound(call: Call[Req]) -> AsyncGenerator[Ev, None]:
        return function(call, following)

    return bound


def _problem(layer: object) -> str:
    if not callable(layer):
        return "not callable"
    if inspect.isclass(layer):
        return "a class; pass an instance of it"
    routine: bool = inspect.isroutine(layer)
    function: object = layer if routine else type(layer).__call__
    if inspect.iscoroutinefunction(function):
        return "a coroutine function; it has to yield events"
    try:
        inspect.signature(layer).bind(None, None)
    except TypeError:
        return "it does not take (call, call_next)"
    except ValueError:
        return ""
    return ""


class SimpleMiddleware(Generic[Req, Ev]):
    """The class form for layers that only observe or transform: override any of the four methods.

    `on_event` returning None drops the event. `on_error` returning an event ends the stream with it instead of the
    error; returning None lets the error go on.
    """

    async def on_request(self, call: Call[Req]) -> Call[Req]:
        """Return the call to pass down; raise to refuse it."""
        return call

    def on_event(self, call: Call[Req], event: Ev) -> Ev | None:
        """Return the event to pass up; not called for the last one."""
        return event

    async def on_response(self, call: Call[Req], event: Ev) -> Ev:
        """Return the last event (ChatEnd, ToolEnded) to pass up."""
        return event

    async def on_error(self, call: Call[Req], error: Exception) -> Ev | None:
        """Return an event that ends the stream instead of the error, None to let the error go on."""
        return None

    async def __call__(self, call: Call[Req], call_next: CallNext[Req, Ev], /) -> AsyncGenerator[Ev, None]:
        """Run the four methods around the rest of the chain."""
        call = await self.on_request(call)
        try:
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    if isinstance(event, (ChatEnd, ToolEnded)):
                        yield await self.on_response(call, event)
                    elif (passed := self.on_event(call, event)) is not None:
                        yield passed
        except Exception as error:
            substitute = await self.on_error(call, error)
            if substitute is None:
                raise
            yield substitute
