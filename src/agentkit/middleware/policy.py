"""Whether a call may happen: arguments checked, rules asked, a person asked; in that order, before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from agentkit.core.contracts import (
    Call,
    CallNext,
    ChatEvent,
    ChatRequest,
    Decision,
    PendingCall,
    ToolEnded,
    ToolRequest,
    ToolResult,
    ToolUpdate,
)
from agentkit.core.contracts.digest import digest, pending_id
from agentkit.core.runtime.layers import run_context
from agentkit.errors import Cancelled, ConfigurationError, DeadlineExceeded, MeterExceeded, PolicyDenied, ToolError

__all__ = ["ChatPolicy", "ChatRule", "Policy", "ToolRule", "chat_policy", "policy"]

ToolRule: TypeAlias = Callable[[Call[ToolRequest]], Decision | Awaitable[Decision]]
ChatRule: TypeAlias = Callable[[Call[ChatRequest]], Decision | Awaitable[Decision]]
R = TypeVar("R")


class Policy:
    """Checks a tool call's arguments, then decides: deny, before plan mode, before ask, before allow.

    Bad arguments and denials are answers for the model, never errors. Plan mode denies everything but reads. A rule, a
    tool that requires approval, and the run's autonomy (gated: all but reads, manual: all) make it an ask: put to
    `services.asker` when there is one; else the decision given on resume counts; else the call is left pending and
    nothing runs. What runs after an approval is bound anew from the arguments that were approved.
    """

    __slots__ = ("rules",)

    def __init__(self, rules: Sequence[ToolRule]) -> None:
        self.rules = _checked("policy", rules)

    def __repr__(self) -> str:
        return f"policy({len(self.rules)} rules)"

    def __call__(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate], /
    ) -> AsyncGenerator[ToolUpdate, None]:
        """Return the stream, directly when nobody has to be asked."""
        request = call.request
        try:
            bound = request.tool.bind(request.call.arguments)
        except ToolError as error:
            return _answer(request, ToolResult(f"{error.message} {error.hint}".rstrip(), "error"))
        call = replace(call, request=replace(request, bound=bound))
        ctx = call.ctx
        may_ask = ctx.autonomy != "auto" or request.tool.requires_approval
        if self.rules or request.decision == "deny" or ctx.mode == "plan" or (may_ask and _needs_person(call)):
            return self._decided(call, call_next)
        return call_next(call)

    async def _decided(
        self, call: Call[ToolRequest], call_next: CallNext[ToolRequest, ToolUpdate]
    ) -> AsyncGenerator[ToolUpdate, None]:
        request = call.request
        decision = await _by_rules(self.rules, call)
        if decision.verdict != "deny" and call.ctx.mode == "plan" and request.tool.effect != "read":
            decision = Decision.deny("the run only plans; nothing but reads is done")
        if decision.verdict == "allow" and (reason := _needs_person(call)):
            decision = Decision.ask(reason)
        if decision.verdict != "deny" and request.decision == "deny":
            decision = Decision.deny(request.decision_reason or "a person denied it")
        if decision.verdict == "ask":
            decision = await _by_person(call, decision.reason)
            if decision.verdict == "allow":
                bound = request.tool.bind(request.call.arguments)
                call = replace(call, request=replace(request, bound=bound))
        if decision.verdict == "allow":
            async with aclosing(call_next(call)) as events:
                async for event in events:
                    yield event
        elif decision.verdict == "deny":
            yield ToolEnded(request.call, ToolResult(f"Denied: {decision.reason or 'not allowed'}", "denied"))
        else:
            yield ToolEnded(request.call, ToolResult(decision.reason, "pending"))


class ChatPolicy:
    """Decides whether a model call may be sent; a denial raises PolicyDenied before anything is.

    Nobody is asked about a model call: a rule that asks denies it.
    """

    __slots__ = ("rules",)

    def __init__(self, rules: Sequence[ChatRule]) -> None:
        self.rules = _checked("chat_policy", rules)

    def __repr__(self) -> str:
        return f"chat_policy({len(self.rules)} rules)"

    def __call__(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent], /
    ) -> AsyncGenerator[ChatEvent, None]:
        """Return the stream, directly when there are no rules."""
        return self._decided(call, call_next) if self.rules else call_next(call)

    async def _decided(
        self, call: Call[ChatRequest], call_next: CallNext[ChatRequest, ChatEvent]
    ) -> AsyncGenerator[ChatEvent, None]:
        decision = await _by_rules(self.rules, call)
        if decision.verdict != "allow":
            asked = " (it asks for a person, and nobody is asked about a model call)"
            reason = f"{decision.reason or 'not allowed'}{asked if decision.verdict == 'ask' else ''}"
            raise PolicyDenied(f"A policy refused the model call: {reason}", reason=reason)
        async with aclosing(call_next(call)) as events:
            async for event in events:
                yield event


def policy(rules: Sequence[ToolRule] = ()) -> Policy:
    """Return the tool layer; each rule takes the call and returns, or awaits, a Decision.

    A rule that raises or returns anything else denies. Raises ConfigurationError for a rule that is not callable.
    """
    return Policy(rules)


def chat_policy(rules: Sequence[ChatRule] = ()) -> ChatPolicy:
    """Return the chat layer; each rule takes the call and returns, or awaits, a Decision.

    A rule that raises or returns anything else denies. Raises ConfigurationError for a rule that is not callable.
    """
    return ChatPolicy(rules)


def _checked(name: str, rules: Sequence[R]) -> tuple[R, ...]:
    for index, rule in enumerate(rules):
        if not callable(rule):
            raise ConfigurationError(f"{name}(rules[{index}]={rule!r}): pass a function (call) -> Decision.")
    return tuple(rules)


async def _by_rules(rules: Sequence[Callable[[Call[R]], Decision | Awaitable[Decision]]], call: Call[R]) -> Decision:
    """Return the strictest answer; a deny ends the asking."""
    strictest = Decision.allow()
    for rule in rules:
        decision = await _contained(rule, call)
        if decision.verdict == "deny":
            return decision
        if decision.verdict == "ask" and strictest.verdict == "allow":
            strictest = decision
    return strictest


async def _contained(rule: Callable[[Call[R]], Decision | Awaitable[Decision]], call: Call[R]) -> Decision:
    name = getattr(rule, "__name__", type(rule).__name__)
    try:
        answer = rule(call)
        if inspect.isawaitable(answer):
            answer = await answer
    except (Cancelled, DeadlineExceeded, MeterExceeded):
        raise
    except Exception as error:
        return Decision.deny(f"the rule {name} failed ({type(error).__name__})")
    return _well_formed(answer, f"the rule {name}")


def _well_formed(answer: object, who: str) -> Decision:
    if isinstance(answer, Decision) and answer.verdict in ("allow", "deny", "ask"):
        return answer
    return Decision.deny(f"{who} gave no decision")


def _needs_person(call: Call[ToolRequest]) -> str:
    tool, autonomy = call.request.tool, call.ctx.autonomy
    if tool.requires_approval:
        return f"{tool.spec.name} requires approval"
    if autonomy == "manual" or (autonomy == "gated" and tool.effect != "read"):
        return f"the run is {autonomy}"
    return ""


async def _by_person(call: Call[ToolRequest], reason: str) -> Decision:
    request = call.request
    if request.decision == "allow":
        return Decision.allow()
    asker = run_context(call).services.asker
    if asker is None:
        return Decision.ask(reason)
    key, name = request.key, request.tool.spec.name
    pending = PendingCall(
        id=pending_id(key),
        path=key.path,
        turn=key.turn,
        position=key.position,
        call=request.call,
        digest=digest(name, request.call.arguments),
        reason=reason,
    )
    try:
        answer = await asker.ask(pending)
    except (Cancelled, DeadlineExceeded, MeterExceeded):
        raise
    except Exception as error:
        return Decision.deny(f"asking a person failed ({type(error).__name__})")
    return _well_formed(answer, "the person asked")


async def _answer(request: ToolRequest, result: ToolResult) -> AsyncGenerator[ToolUpdate, None]:
    yield ToolEnded(request.call, result)
