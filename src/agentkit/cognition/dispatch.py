"""Running a turn's tool calls: reads together, everything else one after the other, in call order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import DecodeError, Struct, convert
from msgspec.json import decode
from msgspec.structs import replace

from agentkit.cognition.run import Run
from agentkit.core.contracts import (
    TRUNCATIONS,
    CallKey,
    PendingCall,
    RunStopReason,
    ToolCall,
    ToolEnded,
    ToolMessage,
    ToolPort,
    ToolRequest,
    ToolResult,
    ToolUpdate,
)
from agentkit.core.contracts.digest import digest, pending_id
from agentkit.errors import Cancelled, DeadlineExceeded, MeterExceeded, ToolError
from agentkit.tools import fit_batch

__all__ = ["Dispatch", "SuspendedBelow"]

_CUT = (
    "The arguments were cut off at the output limit, so nothing was run. Call again with shorter arguments, or in "
    "several calls."
)
_ENDS = (DeadlineExceeded, Cancelled)


class SuspendedBelow(Struct, frozen=True):
    """What a suspended sub-agent tells its caller, as the detail of a pending tool result."""

    stop_reason: RunStopReason
    reason: str = ""
    pending: tuple[PendingCall, ...] = ()


class Slotted(Struct, frozen=True):
    """One unanswered call with its place and tool; the tool is None when the model made it up."""

    position: int
    call: ToolCall
    tool: ToolPort | None

    @property
    def shares(self) -> bool:
        """Return whether it may run beside others: a read, or a sub-agent, which has a slot of its own."""
        return self.tool is not None and (self.tool.effect == "read" or self.tool.resumable)

    @property
    def acts(self) -> bool:
        """Return whether running it twice may do something twice."""
        tool = self.tool
        return tool is not None and tool.effect != "read" and not tool.resumable and not tool.idempotent


class Watch:
    """Tells a call's events in their place, and remembers that it began."""

    __slots__ = ("begun", "position", "result", "run", "turn")

    def __init__(self, run: Run, turn: int, position: int) -> None:
        self.run = run
        self.turn = turn
        self.position = position
        self.begun = False
        self.result: ToolResult | None = None

    async def __call__(self, event: ToolUpdate, /) -> None:
        """Tell one event."""
        self.begun = True
        if type(event) is ToolEnded:
            self.result = event.result
        await self.run.tell_tool(self.turn, self.position, event)


class Dispatch:
    """Answers the open calls of a run's turn, and collects what has to wait for a person or a higher ceiling."""

    __slots__ = ("pending", "run", "stopped")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.pending: list[PendingCall] = []
        self.stopped: SuspendedBelow | None = None

    async def perform(self, calls: Sequence[ToolCall]) -> None:
        """Run every call that has no answer yet; answers go into the run's state by position."""
        run = self.run
        width = run.ctx.budget.limits.width
        if width is not None and len(calls) > width:
            raise MeterExceeded(f"width {len(calls)} > {width}", axis="width")
        answered = run.state.answers
        todo = [
            Slotted(position, call, run.job.toolbox.get(call.name))
            for position, call in enumerate(calls)
            if position not in answered
        ]
        if not run.slot.volatile:
            await self._open(todo)
        if len(calls) == len(todo) == 1:
            await self._answer(todo[0])
            return
        for group in _groups(todo):
            if len(group) == 1:
                await self._answer(group[0])
            else:
                await self._together(group)
            if self.stopped is not None:
                return
        if not self.pending:
            fit_batch(answered)

    async def _open(self, todo: list[Slotted]) -> None:
        effects = tuple(f"{slotted.call.name} (call {slotted.call.id})" for slotted in todo if slotted.acts)
        await self.run.save("running", opened=True, open_effects=effects)

    async def _together(self, group: list[Slotted]) -> None:
        """Answer them side by side; one that meets a ceiling lets the others come to their own end."""
        slots = self.run.ctx.semaphore()
        ceilings: list[MeterExceeded] = []

        async def one(slotted: Slotted) -> None:
            async with slots:
                try:
                    await self._answer(slotted)
                except MeterExceeded as error:
                    ceilings.append(error)

        try:
            async with asyncio.TaskGroup() as tasks:
                for slotted in group:
                    tasks.create_task(one(slotted))
        except BaseExceptionGroup as failures:
            raised = failures.exceptions
            if len(raised) == 1 or all(isinstance(error, _ENDS) for error in raised):
                raise raised[0] from None
            raise
        if ceilings:
            raise ceilings[0]

    async def _answer(self, slotted: Slotted) -> None:
        result = await self._invoke(slotted)
        if result.outcome == "pending":
            self._wait_for(slotted, result)
        else:
            self._note(slotted, result)

    def _note(self, slotted: Slotted, result: ToolResult) -> None:
        call = slotted.call
        answer = ToolMessage(call.id, result.content, call.name, result.outcome != "ok")
        self.run.state.answers[slotted.position] = answer

    async def _invoke(self, slotted: Slotted) -> ToolResult:
        run, call, tool = self.run, slotted.call, slotted.tool
        turn = run.state.turn
        if tool is None:
            result = ToolResult(run.job.toolbox.unknown(call.name), "error")
            await run.tell_tool(turn, slotted.position, ToolEnded(call, result))
            return result
        if run.state.model_stop_reason in TRUNCATIONS and self._was_cut(slotted):
            result = ToolResult(_CUT, "error")
            await run.tell_tool(turn, slotted.position, ToolEnded(call, result))
            return result
        ctx = run.ctx
        request = ToolRequest(tool, call, CallKey(ctx.correlation_id, ctx.path, turn, slotted.position))
        if run.resumed:
            request = self._with_decision(request)
        acts = tool.effect != "read" and slotted.acts
        watch = Watch(run, turn, slotted.position) if acts or ctx.sink is not None else None
        try:
            return await run.invoker.invoke_tool(request, ctx, watch=watch)
        except ToolError as error:
            text = f"{error.message} {error.hint}".strip()
            result = ToolResult(text, "error")
            await run.tell_tool(turn, slotted.position, ToolEnded(call, result))
            return result
        except BaseException:
            if acts and watch is not None and watch.begun:
                self._note_interruption(slotted, watch.result)
            raise

    def _with_decision(self, request: ToolRequest) -> ToolRequest:
        decision = self.run.ctx.decisions.get(pending_id(request.key))
        if decision is None or decision.verdict == "ask":
            return request
        return replace(request, decision=decision.verdict, decision_reason=decision.reason)

    def _note_interruption(self, slotted: Slotted, result: ToolResult | None) -> None:
        """Record what is known of a call that may have acted when the run was ended."""
        if result is None:
            text = f"{slotted.call.name} was interrupted; whether it took effect is unknown."
            result = ToolResult(text, "unknown")
        if result.outcome != "pending":
            self._note(slotted, result)

    def _was_cut(self, slotted: Slotted) -> bool:
        """Return whether the output cap or the window's end cut the answer inside this call's arguments."""
        arguments = slotted.call.arguments.strip()
        if not arguments:
            return slotted.position == len(self.run.state.open_calls) - 1
        try:
            decode(arguments)
        except DecodeError:
            return True
        return False

    def _wait_for(self, slotted: Slotted, result: ToolResult) -> None:
        below = None if result.detail is None else convert(result.detail, SuspendedBelow)
        if below is not None:
            self.pending.extend(below.pending)
            if below.stop_reason == "budget_exhausted":
                self.stopped = below
            return
        ctx, tool = self.run.ctx, slotted.tool
        key = CallKey(ctx.correlation_id, ctx.path, self.run.state.turn, slotted.position)
        reason = result.content if isinstance(result.content, str) else ""
        self.pending.append(
            PendingCall(
                pending_id(key),
                ctx.path,
                key.turn,
                key.position,
                slotted.call,
                digest(slotted.call.name if tool is None else tool.spec.name, slotted.call.arguments),
                reason,
            )
        )


def _groups(todo: list[Slotted]) -> list[list[Slotted]]:
    groups: list[list[Slotted]] = []
    for slotted in todo:
        if slotted.shares and groups and groups[-1][0].shares:
            groups[-1].append(slotted)
        else:
            groups.append([slotted])
    return groups
