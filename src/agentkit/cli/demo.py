"""`agentkit demo`: everything at work, without a key."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentkit.agents import Agent
from agentkit.calls import Binding, CallRuntime
from agentkit.cli.render import Spinner, cost_table, dollars, status_line
from agentkit.cognition import ReAct, RunStream
from agentkit.core.contracts import (
    AgentResult,
    ChatRequest,
    CostRecord,
    LLMPort,
    ModelEvent,
    ModelSettings,
    RunEvent,
    Scope,
    TextDelta,
    ToolCall,
    ToolEnded,
    ToolEvent,
    ToolMessage,
    ToolStarted,
)
from agentkit.core.runtime.metering.budget import Budget
from agentkit.providers.local import LocalModel
from agentkit.providers.scripted import ScriptedModel
from agentkit.tools import tool

__all__ = ["demo_command"]

CALM = ModelSettings(temperature=0.0, seed=1, max_tokens=120)
SMALL = "0.10/0.40"
LARGE = "1.25/10"
CEILING = "0.0012"
RAISED = "0.05"
RUN_ID = "demo-1"
QUESTION = "In one sentence: why do people set budgets?"
EXTRACT = "Extract the city: Oslo, the capital of Norway, has 700000 inhabitants."
TASK = "We cook for 12 people on Friday. Can we afford tomato soup, and what should we know about tomatoes?"


@dataclass
class City:
    """A city named in a text."""

    name: str
    country: str
    inhabitants: int


@tool(effect="read")
async def pantry(item: str) -> str:
    """Say how much of an item is in the pantry."""
    return {"tomatoes": "4 kg", "onions": "1 kg"}.get(item, "none")


@tool(effect="read")
async def price_of(item: str, kilograms: float) -> str:
    """Say what an item costs at the market."""
    return f"{item}: {kilograms * 2.4:.2f} euros"


def plan(request: ChatRequest) -> str | list[ToolCall]:
    """Return what a capable lead model would say next; it is scripted, because a 135M model cannot plan."""
    answered = [message.name for message in request.messages if isinstance(message, ToolMessage)]
    if not answered:
        return [
            ToolCall("call_1", "pantry", '{"item": "tomatoes"}'),
            ToolCall("call_2", "price_of", '{"item": "tomatoes", "kilograms": 2}'),
        ]
    if "cook" not in answered:
        return [ToolCall("call_3", "cook", '{"task": "In one sentence: what are tomatoes good for?"}')]
    return "Yes: 4 kg are in the pantry, 2 kg more cost 4.80 euros, and that makes soup for 12."


class Demo:
    """The steps, and what each of them cost."""

    def __init__(self, local: LLMPort | None, spinner: Callable[[], Spinner]) -> None:
        self.scripted = local is None
        self.spinner = spinner
        self.rows: list[tuple[str, list[CostRecord]]] = []
        self.started = time.monotonic()
        if local is None:
            answers = [
                "People set budgets so that spending stays below what they have.",
                '{"name": "Oslo", "country": "Norway", "inhabitants": 700000}',
            ]
            self.small = [Binding(ScriptedModel([answer]), price=SMALL, settings=CALM) for answer in answers]
            self.cook = Binding(
                ScriptedModel(["Tomatoes are good for soups and sauces."], repeat_last=True), price=SMALL
            )
        else:
            binding = Binding(local, price=SMALL, settings=CALM)
            self.small = [binding, binding]
            self.cook = binding

    async def run(self) -> int:
        """Run every step and print the table; returns the exit code."""
        with tempfile.TemporaryDirectory(prefix="agentkit-demo-") as folder:
            store = f"sqlite:{Path(folder) / 'runs.db'}"
            async with CallRuntime(store=store) as calls:
                await self._question(calls)
                await self._typed(calls)
                await self._agents(calls)
            async with CallRuntime(store=store) as calls:  # as after a restart of the process
                await self._go_on(calls)
        print("\nWho spent what\n")
        print(cost_table(self.rows))
        print(f"\n{time.monotonic() - self.started:.1f} s in all, no key, nothing left this machine.")
        return 0

    async def _question(self, calls: CallRuntime) -> None:
        _title("1. A question, streamed", self._who())
        print(f"> {QUESTION}\n")
        result = await self._shown(calls, self.small[0], QUESTION)
        self.rows.append(("1. question", list(result.records)))

    async def _typed(self, calls: CallRuntime) -> None:
        _title("2. A typed object, its JSON Schema enforced", self._who())
        print(f"> {EXTRACT}\n")
        started = time.monotonic()
        with self.spinner():
            answer = await calls.ask(self.small[1], EXTRACT, output=City)
        print(answer.value)
        print(f"[{answer.model} · {dollars(answer.cost, answer.known_cost)} · {time.monotonic() - started:.1f} s]")
        self.rows.append(("2. typed object", list(answer.records)))

    async def _agents(self, calls: CallRuntime) -> None:
        _title(
            "3. A lead agent, two tools, a sub-agent, one budget",
            f"lead: scripted (a 135M model cannot plan) · cook: {self._who()}",
        )
        print(f"> {TASK}\n")
        ctx = calls.context(RUN_ID, Scope(tenant="demo"), budget=Budget(CEILING, on_exceeded="stop"))
        result = await self._watched(self._lead().stream(TASK, ctx))
        spent = dollars(result.cost, result.known_cost)
        print(f"\nstopped: {result.stop_reason} ({result.reason}), spent {spent} of ${CEILING}")
        log = ctx.checkpointer
        if log is not None:
            print("\nthe checkpoint:")
            for summary in await log.slots("demo", RUN_ID):
                place = summary.slot.path or "(lead)"
                print(f"  {place:<14} {summary.status:<10} revision {summary.revision}")
            print(f"  transcript: {len(result.messages)} messages; account: {spent}, {result.calls} calls")
        self.rows.append(("3. lead", [record for record in result.records if not record.path]))
        self.rows.append(("   cook, below the lead", [record for record in result.records if record.path]))

    async def _go_on(self, calls: CallRuntime) -> None:
        _title("4. The ceiling is raised, and the run goes on", "a new runtime on the same store, as after a restart")
        ctx = calls.context(RUN_ID, Scope(tenant="demo"), budget=Budget(RAISED, on_exceeded="stop"))
        with self.spinner():
            result = await self._lead().resume(RUN_ID, ctx)
        spent = dollars(result.cost, result.known_cost)
        print(f"{result.text}\n")
        print(
            f"{result.stop_reason}: {result.calls} calls in both sittings, {spent} of ${RAISED}; nothing was paid twice"
        )
        self.rows.append(("4. lead, resumed", list(result.records)))

    def _lead(self) -> Agent[str]:
        cook = Agent("cook", self.cook, description="Knows about food.", settings=CALM, cognition=ReAct(max_turns=1))
        planner = Binding(ScriptedModel([plan], repeat_last=True), price=LARGE, settings=ModelSettings(max_tokens=60))
        return Agent("lead", planner, instructions="You plan meals.", tools=[pantry, price_of, cook.as_tool()])

    async def _shown(self, calls: CallRuntime, binding: Binding, question: str) -> AgentResult[object]:
        started = time.monotonic()
        spinner = self.spinner()
        with spinner:
            async with calls.stream(binding, question) as events:
                async for event in events:
                    if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                        spinner.clear()
                        print(event.event.text, end="", flush=True)
        print(f"\n{status_line(events.result, time.monotonic() - started)}")
        return events.result

    async def _watched(self, stream: RunStream[str]) -> AgentResult[str]:
        spinner = self.spinner()
        with spinner:
            async with stream as events:
                async for event in events:
                    line = _told(event)
                    if line:
                        spinner.clear()
                        print(line)
        return events.result

    def _who(self) -> str:
        return "scripted model" if self.scripted else "SmolLM2 135M, in this process"


def _told(event: RunEvent) -> str:
    place = "  " * (event.path.count("/") + 1) if event.path else ""
    if isinstance(event, ToolEvent) and isinstance(event.event, ToolStarted):
        return f"{place}→ {event.event.call.name} {event.event.call.arguments}"
    if isinstance(event, ToolEvent) and isinstance(event.event, ToolEnded):
        content = event.event.result.content
        return f"{place}← {event.event.call.name}: {content if isinstance(content, str) else '(parts)'}"
    return ""


def _title(text: str, who: str) -> None:
    print(f"\n{text}\n({who})\n")


async def demo_command(*, scripted: bool = False) -> int:
    """Show everything at work; with `scripted` no real model is used. Returns the exit code."""
    loading = Spinner(sys.stderr, "loading the model")
    if scripted:
        return await Demo(None, lambda: Spinner(sys.stderr)).run()
    local = LocalModel("smollm2", progress=loading.say)
    try:
        return await Demo(local, lambda: Spinner(sys.stderr)).run()
    finally:
        await local.aclose()
