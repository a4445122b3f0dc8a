"""An agent: who it is, which model it uses, what it may call; immutable, shared by concurrent runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast, overload

from agentkit.agents.agent_tool import AgentTool
from agentkit.calls import Binding, entered, job_for, opening
from agentkit.cognition import Cognition, Job, ReAct, RunStream, execute, resume
from agentkit.core.contracts import AgentResult, Decision, EventSink, ModelSettings, Prompt, ToolPort
from agentkit.core.runtime.context import RunContext
from agentkit.core.runtime.deadline import DeadlineLike
from agentkit.core.runtime.metering.budget import Budget
from agentkit.errors import ConfigurationError, RunConflict
from agentkit.tools import Toolbox

__all__ = ["Agent"]

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Agent(Generic[T]):
    """A model with instructions, tools and a loop.

    `output` is a type or JSON Schema the answer has to fit, None for text. `description` is what a calling model
    reads when the agent is used as a tool. Nothing changes on an agent while it runs, so one object serves any number
    of tenants. Raises ConfigurationError for a bad name, two tools of one name, or an output that is no schema.
    """

    __slots__ = (
        "_toolbox",
        "binding",
        "cognition",
        "corrections",
        "description",
        "instructions",
        "name",
        "output",
        "settings",
    )

    @overload
    def __init__(
        self: Agent[str],
        name: str,
        binding: Binding,
        *,
        instructions: str = "",
        tools: Sequence[ToolPort | Callable[..., object]] = (),
        output: None = None,
        cognition: Cognition | None = None,
        settings: ModelSettings | None = None,
        description: str = "",
        corrections: int = 1,
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[T],
        name: str,
        binding: Binding,
        *,
        instructions: str = "",
        tools: Sequence[ToolPort | Callable[..., object]] = (),
        output: type[T],
        cognition: Cognition | None = None,
        settings: ModelSettings | None = None,
        description: str = "",
        corrections: int = 1,
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[object],
        name: str,
        binding: Binding,
        *,
        instructions: str = "",
        tools: Sequence[ToolPort | Callable[..., object]] = (),
        output: object,
        cognition: Cognition | None = None,
        settings: ModelSettings | None = None,
        description: str = "",
        corrections: int = 1,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        binding: Binding,
        *,
        instructions: str = "",
        tools: Sequence[ToolPort | Callable[..., object]] = (),
        output: object = None,
        cognition: Cognition | None = None,
        settings: ModelSettings | None = None,
        description: str = "",
        corrections: int = 1,
    ) -> None:
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise ConfigurationError(f"Agent(name={name!r}): pass 1 to 64 letters, digits, '_' or '-'.")
        if not isinstance(binding, Binding):
            raise ConfigurationError(f"Agent(binding={binding!r}): pass a Binding, such as Binding('openai:gpt-5.2').")
        self.name = name
        self.binding = binding
        self.instructions = instructions
        self.description = description
        self.output = output
        self.cognition: Cognition = ReAct() if cognition is None else cognition
        self.settings = settings
        self.corrections = corrections
        self._toolbox = Toolbox(tools)

    async def run(
        self,
        task: Prompt,
        ctx: RunContext | None = None,
        *,
        budget: Budget | None = None,
        deadline: DeadlineLike = None,
    ) -> AgentResult[T]:
        """Do the task and return what it came to; a suspended run is a result too.

        Without a context it runs as tenant "local" on a runtime of its own. Raises RunConflict when the context's run
        id is taken by an unfinished run.
        """
        messages = opening(task)
        async with entered(ctx, budget=budget, deadline=deadline) as place:
            result = await execute(self._job(place), self.cognition, messages, place)
            return cast("AgentResult[T]", result)

    def stream(
        self,
        task: Prompt,
        ctx: RunContext | None = None,
        *,
        budget: Budget | None = None,
        deadline: DeadlineLike = None,
    ) -> RunStream[T]:
        """Do the task while telling its events: `async with agent.stream(...) as events`."""
        messages = opening(task)

        async def begin(sink: EventSink) -> AgentResult[T]:
            async with entered(ctx, budget=budget, deadline=deadline, sink=sink) as place:
                result = await execute(self._job(place), self.cognition, messages, place)
                return cast("AgentResult[T]", result)

        return RunStream(begin)

    async def resume(
        self, run_id: str, ctx: RunContext, decisions: Mapping[str, Decision | str | bool] | None = None
    ) -> AgentResult[T]:
        """Go on with a suspended run; `decisions` answer its pending calls by their id.

        A call without a decision stays pending. A finished run gives its result again at no cost. Raises RunConflict
        when there is no such run of this tenant, or another holder; EffectUnknown when a process died inside a tool
        that is not a read.
        """
        if ctx.correlation_id != run_id:
            raise ConfigurationError(
                f"resume({run_id!r}) on the context of run {ctx.correlation_id!r}: make the context with that run id."
            )
        async with entered(ctx) as place:
            result = await resume(self._job(place), self.cognition, place, decisions)
        if result is None:
            raise RunConflict(
                f"Tenant {ctx.scope.tenant!r} has no run {run_id!r} that could be resumed; a finished one is kept by "
                "durable stores only."
            )
        return cast("AgentResult[T]", result)

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, requires_approval: bool = False
    ) -> AgentTool:
        """Return a tool that runs this agent on a child of the caller's context."""
        said = description or self.description or self.instructions.strip().partition("\n")[0]
        return AgentTool(
            name or self.name,
            said or f"Ask the agent {self.name}.",
            self._as_child,
            requires_approval=requires_approval,
        )

    async def _as_child(self, task: str, ctx: RunContext, resuming: bool) -> AgentResult[object]:
        job = self._job(ctx)
        if resuming and ctx.checkpointer is not None:
            result = await resume(job, self.cognition, ctx)
            if result is not None:
                return result
        return await execute(job, self.cognition, opening(task), ctx, owned=True)

    def _job(self, ctx: RunContext) -> Job:
        return job_for(
            ctx,
            self.binding,
            name=self.name,
            instructions=self.instructions,
            toolbox=self._toolbox,
            output=self.output,
            settings=self.settings,
            corrections=self.corrections,
        )

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, {self.binding!r}, tools={[spec.name for spec in self._toolbox.specs]})"
