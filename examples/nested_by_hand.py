"""Agents nested by hand, three levels deep, with two slots a level and a quota for the tenant.

With one pool of two slots for the whole tree this would hang: parents would hold the slots their children wait for.
"""

import asyncio

from agentkit import Agent, Binding, Budget, CallRuntime, Quota, RunContext, Scope
from agentkit.core.runtime import gather_bounded

WIDTH = 3


async def explore(topic: str, ctx: RunContext, level: int = 0) -> list[str]:
    """Ask about a topic and, above the last level, about each of its parts."""
    agent = Agent("explorer", Binding(f"scripted:{topic}", price="1/4"))
    result = await agent.run(f"Tell me about {topic}.", ctx.child(name="ask"))
    if level == 2:
        return [result.text]
    parts = (explore(f"{topic}.{part}", ctx.child(name=f"part{part}"), level + 1) for part in range(WIDTH))
    found = await gather_bounded(parts, sem=ctx.semaphore())
    return [result.text, *(text for texts in found for text in texts)]


async def main() -> tuple[int, int]:
    """Explore a topic and return how many answers there are, and how many calls the budget counted."""
    async with CallRuntime(quota=Quota(max_rpm=100)) as calls:
        budget = Budget("1.00", max_concurrency=2, max_depth=4)
        ctx = calls.context("req-1", Scope(tenant="acme"), budget=budget)
        answers = await explore("engines", ctx)
    print(f"{len(answers)} answers, {budget.calls} calls, ${budget.spent().normalize():f}")
    return len(answers), budget.calls


if __name__ == "__main__":
    asyncio.run(main())
