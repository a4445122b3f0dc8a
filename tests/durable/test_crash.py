"""A real process on a real SQLite file, killed: what was begun is never done twice."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import agentkit
from agentkit import Agent, Binding, Budget, CallRuntime, Scope, ToolCall, ToolMessage, Usage, tool
from agentkit.core.runtime.clock import SYSTEM_CLOCK
from agentkit.errors import EffectUnknown, RunConflict
from agentkit.stores import open_store
from agentkit.testing import Hang, Reply, ScriptedModel

SOURCE = Path(agentkit.__file__).parent.parent
USED = Usage(500, 500)  # costs 0.001 at 1/1


class Later:
    """The system's clock a minute ahead: leases of the dead have run out."""

    def now(self):
        return SYSTEM_CLOCK.now() + 60

    def wall(self):
        return SYSTEM_CLOCK.wall() + timedelta(seconds=60)

    async def sleep(self, seconds, /):
        await SYSTEM_CLOCK.sleep(seconds)

    def call_at(self, when, callback, /):
        return SYSTEM_CLOCK.call_at(when - 60, callback)


def make_agent(folder, where, replies):
    """Return the agent both processes run; `where` is the step that never ends in the first one."""
    notes = folder / "notes"

    def note(word):
        with notes.open("a") as file:
            file.write(f"{word}\n")

    async def stop(here):
        if where == here:
            print("inside", flush=True)
            await asyncio.get_running_loop().create_future()

    @tool(effect="write")
    async def save() -> str:
        """Save."""
        note("save")
        await stop("write")
        return "saved"

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        note("look")
        await stop("read")
        return "seen"

    @tool(effect="external", idempotent=True)
    async def put() -> str:
        """Put."""
        note("put")
        await stop("idempotent")
        return "put"

    child = Agent("child", Binding(ScriptedModel(replies["child"]), price="1/1"), tools=[save, look])
    return Agent("lead", Binding(ScriptedModel(replies["lead"]), price="1/1"), tools=[save, look, put, child.as_tool()])


def wish(*names):
    """Return a turn that calls these tools."""
    calls = tuple(
        ToolCall(f"{name}{i}", name, '{"task": "t"}' if name == "child" else "{}") for i, name in enumerate(names)
    )
    return Reply("", calls, usage=USED)


def say(text):
    """Return an answer."""
    return Reply(text, usage=USED)


def stuck(request):
    """Say that the model was asked, and never answer."""
    print("inside", flush=True)
    return Hang(0)


# For each place to die in: what the models say before it, and what they say afterwards.
SCRIPTS = {
    "write": ({"lead": [wish("look"), wish("save")], "child": []}, {"lead": [], "child": []}),
    "read": (
        {"lead": [wish("save"), wish("look")], "child": []},
        {"lead": [say("done")], "child": []},
    ),
    "idempotent": (
        {"lead": [wish("save"), wish("put")], "child": []},
        {"lead": [say("done")], "child": []},
    ),
    "model": (
        {"lead": [wish("save"), stuck], "child": []},
        {"lead": [say("done")], "child": []},
    ),
    "child's model": (
        {"lead": [wish("child")], "child": [wish("save"), stuck]},
        {"lead": [say("done")], "child": [say("child done")]},
    ),
    "child's write": ({"lead": [wish("child")], "child": [wish("save")]}, {"lead": [], "child": []}),
}


async def first_sitting(folder, where):
    """Run until the step that never ends; this is the process that is killed."""
    agent = make_agent(folder, where.removeprefix("child's "), SCRIPTS[where][0])
    async with CallRuntime(store=f"sqlite:{folder / 'runs.db'}") as calls:
        await agent.run("go", calls.context("req-1", Scope(tenant="acme")))


async def kill_inside(folder, where):
    """Start a process, wait until it is inside that step, and kill it with SIGKILL."""
    script = f"import asyncio, pathlib; import test_crash; asyncio.run(test_crash.first_sitting(pathlib.Path({str(folder)!r}), {where!r}))"
    paths = os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    line = await child.stdout.readline()
    child.kill()
    await child.stdout.read()
    assert await child.wait() == -9
    assert line == b"inside\n"


def notes(folder):
    """Return what the tools did, in both processes."""
    return (folder / "notes").read_text().split()


async def resume(folder, where, *, clock=None):
    """Resume in this process, as after a restart, and return the result and the budget."""
    budget = Budget("1.00")
    store = open_store(folder / "runs.db", clock=clock or Later())
    agent = make_agent(folder, "", SCRIPTS[where][1])
    try:
        async with CallRuntime(store=store) as calls:
            ctx = calls.context("req-1", Scope(tenant="acme"), budget=budget)
            return await agent.resume("req-1", ctx), budget
    finally:
        await store.aclose()


@pytest.mark.parametrize("where", ["write", "child's write"])
async def test_killed_inside_a_write_the_run_is_refused_by_name(tmp_path, where):
    """Whether the write happened is unknown: resuming names the tool and does nothing, as often as it is tried."""
    await kill_inside(tmp_path, where)
    before = notes(tmp_path)
    for _ in range(2):
        with pytest.raises(EffectUnknown, match="save"):
            await resume(tmp_path, where)
    assert notes(tmp_path) == before
    assert before.count("save") == 1


@pytest.mark.parametrize(
    ("where", "done", "cost"),
    [
        ("read", ["save", "look", "look"], "0.003"),
        ("idempotent", ["save", "put", "put"], "0.003"),
        ("model", ["save"], "0.002"),
        ("child's model", ["save"], "0.004"),
    ],
)
async def test_killed_elsewhere_the_run_resumes_and_repeats_no_write(tmp_path, where, done, cost):
    """Reads and idempotent calls are made again, writes are not; known costs are not paid twice."""
    await kill_inside(tmp_path, where)
    result, budget = await resume(tmp_path, where)
    assert result.output == "done"
    assert notes(tmp_path) == done
    assert result.cost == budget.spent() == Decimal(cost)
    calls = [call.id for message in result.messages for call in getattr(message, "tool_calls", ())]
    assert [message.call_id for message in result.messages if isinstance(message, ToolMessage)] == calls


async def test_the_lease_of_the_dead_is_waited_for(tmp_path):
    """Before the lease has run out the run is somebody's, so resuming is a conflict, not a second holder."""
    await kill_inside(tmp_path, "read")
    with pytest.raises(RunConflict):
        await resume(tmp_path, "read", clock=SYSTEM_CLOCK)
    assert (await resume(tmp_path, "read"))[0].output == "done"
