"""Trying the binding's other routes when one fails before its first visible event."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import cast

from msgspec.structs import replace

from agentkit.catalog import least_tokens, missing_capability
from agentkit.core.contracts import AttemptEnded, Call, CallNext, ChatEvent, ChatRequest, ChatStart, Route, semconv
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.telemetry.spans import contained
from agentkit.errors import (
    BadRequest,
    CapabilityMissing,
    ConfigurationError,
    ContextOverflow,
    MeterExceeded,
    ProviderError,
    Refused,
)

__all__ = ["Fallback", "fallback"]

_LOG = logging.getLogger("agentkit")
_NO_SUCH_MODEL = frozenset(
    {
        "deploymentnotfound",
        "invalid_model",
        "model_decommissioned",
        "model_not_active",
        "model_not_available",
        "model_not_found",
        "not_found_error",
        "unknown_model",
    }
)


class Fallback:
    """Replaces `call.route` by the next of its fallbacks after a failure that another model may not share.

    A request that is wrong in itself (BadRequest) and a refusal are not tried elsewhere; one that is too long goes to
    a larger window, an unknown model's to the next. Routes whose model is known to lack what the request needs are
    left out; when none is left, CapabilityMissing is raised before anything is sent. A fallback that the budget does
    not allow, or that the conversation cannot be written for, is passed over. The last model's error is raised, with
    all that were tried on it. Each route may bring fallbacks of its own; attempts are numbered on over all of them.
    """

    __slots__ = ()

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there is one route."""
        route = call.route
        if route is not None and route.fallback:
            return self._walk(call, route, call_next)
        missing = None if route is None else missing_capability(route, call.request)
        if missing is not None:
            raise missing
        return call_next(call)

    async def _walk(
        self, call: Call[ChatRequest], route: Route, call_next: CallNext[ChatRequest, ChatEvent]
    ) -> AsyncGenerator[ChatEvent, None]:
        walk = _Walk(call, route)
        trial: Call[ChatRequest] | None = walk.first()
        while trial is not None:
            seen = False
            start: ChatStart | None = None
            events = call_next(trial)
            try:
                async for event in events:
                    if seen:
                        yield event
                    elif type(event) is ChatStart:
                        start = event
                    else:
                        seen = event.visible
                        walk.note(event)
                        if start is not None and (seen or walk.answered):
                            yield start
                            start = None
                        yield event
                return
            except (ProviderError, ConfigurationError, MeterExceeded) as error:
                if not walk.goes_on(error, seen=seen):
                    raise
            finally:
                await events.aclose()
            trial = walk.following()
        raise walk.last_error()

    def __repr__(self) -> str:
        return "fallback()"


class _Walk:
    """The way through a call's routes: which are left, which were tried or passed over, and why."""

    __slots__ = ("_call", "_error", "_known", "_left", "_number", "_route", "_rows", "_tried", "_window", "answered")

    def __init__(self, call: Call[ChatRequest], route: Route) -> None:
        self.answered = False
        self._call = call
        self._route = route
        self._left: tuple[Route, ...] = (route,)
        self._known: set[tuple[int, str]] = set()
        self._number = call.attempt - 1
        self._rows = 0
        self._window: int | None = None  # the largest that was too small
        self._error: ProviderError | None = None
        self._tried: list[Mapping[str, object]] = []

    def first(self) -> Call[ChatRequest]:
        """Return the call with the first route that may serve it; where none fits by size, the first of all."""
        missing = missing_capability(self._route, self._call.request)
        found = self.following()
        if found is not None:
            return found
        if missing is not None:
            raise missing
        return self._call

    def following(self) -> Call[ChatRequest] | None:
        """Return the call with the next route that may serve it, None when none is left."""
        while self._left:
            route, *rest = self._left
            self._left = (*route.fallback, *rest)
            key = (id(route.port), route.model)
            if key in self._known:
                continue
            self._known.add(key)
            reason = self._misfit(route)
            if not reason:
                self._route = route
                if not rest and not self._tried:
                    return self._call
                return replace(self._call, route=replace(route, fallback=self._left), attempt=self._number + 1)
            self._tell(route, skipped=reason)
        return None

    def note(self, event: ChatEvent) -> None:
        """Count an attempt that ended."""
        if isinstance(event, AttemptEnded):
            self._rows += 1
            self._number = max(self._number, event.record.attempt)
            self.answered = event.record.outcome == "ok"

    def goes_on(self, error: ProviderError | ConfigurationError | MeterExceeded, *, seen: bool) -> bool:
        """Return whether another route is tried after this error; what is raised tells of all that were tried."""
        if not isinstance(error, ProviderError):
            if self._error is None or seen:
                return False
            self._tell(self._route, skipped=error.message)
            return True
        self._error = error
        self._tell(self._route, **_as_data(error))
        error.attempts = max(self._rows + seen, error.attempts)
        error.tried = tuple(self._tried)
        if isinstance(error, ContextOverflow):
            self._window = max(self._window or 0, self._route.capabilities.context_window or 0) or None
        return not seen and _another_may_do(error)

    def last_error(self) -> ProviderError:
        """Return the error of the last route that was tried, with all that were tried or passed over."""
        error = self._error or ProviderError("No route was tried.", retryable=False, accepted=False)
        error.tried = tuple(self._tried)
        return error

    def _misfit(self, route: Route) -> str:
        """Return why the route's model surely cannot serve the request, nothing when it may."""
        request, known = self._call.request, route.capabilities
        missing: CapabilityMissing | None = missing_capability(route, request)
        if missing is not None:
            return missing.message
        window = known.context_window
        if window is not None:
            if self._window is not None and window <= self._window:
                return f"its window of {window} tokens is not larger than one the request did not fit"
            likely = cast(RunContext, self._call.ctx).account.estimate_input(request)
            if likely > window and least_tokens(request.messages) > window:
                return f"the conversation does not fit its window of {window} tokens"
        return ""

    def _tell(self, route: Route, **what: object) -> None:
        self._tried.append({"provider": route.provider, "model": route.model, **what})
        why = str(what.get("skipped") or what.get("error"))
        _LOG.info("%s:%s did not serve a call (%s)", route.provider, route.model, why)
        span = cast(RunContext, self._call.ctx).span
        if span is not None:
            attributes = {semconv.PROVIDER: route.provider, semconv.REQUEST_MODEL: route.model, "reason": why}
            contained("event", span.event, semconv.FALLBACK, attributes)


def fallback() -> Fallback:
    """Return the layer; it does something for routes that have fallbacks, and nothing for others."""
    return Fallback()


def _as_data(error: ProviderError) -> dict[str, object]:
    return {
        "error": type(error).__name__,
        "message": error.message,
        "status": error.status,
        "code": error.code,
        "attempts": error.attempts,
    }


def _another_may_do(error: ProviderError) -> bool:
    if isinstance(error, ContextOverflow):
        return True
    if isinstance(error, BadRequest):
        return error.status == 404 or (error.code or "").lower() in _NO_SUCH_MODEL
    return not isinstance(error, Refused)
