"""A tool that uses the app's own database handle: it travels under a typed key and is never serialised."""

import asyncio
import sqlite3

from agentkit import Agent, AppData, Binding, CallRuntime, Key, RunContext, Scope, Services, ToolCall, tool
from agentkit.testing import ScriptedModel

DATABASE: Key[sqlite3.Connection] = Key("database")


@tool(effect="read")
async def orders_of(customer: str, ctx: RunContext) -> list[str]:
    """List the orders of a customer of this tenant."""
    rows = ctx.services.app[DATABASE].execute(
        "SELECT item FROM orders WHERE tenant = ? AND customer = ?", (ctx.scope.tenant, customer)
    )
    return [item for (item,) in rows]


async def main() -> str:
    """Ask for Ada's orders and return what the model was told."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (tenant TEXT, customer TEXT, item TEXT)")
    database.executemany(
        "INSERT INTO orders VALUES (?, ?, ?)",
        [("acme", "ada", "an engine"), ("acme", "ada", "a loom"), ("other", "ada", "not for acme")],
    )
    model = ScriptedModel([ToolCall("c1", "orders_of", '{"customer": "ada"}'), "Ada ordered an engine and a loom."])
    clerk = Agent("clerk", Binding(model), tools=[orders_of])
    async with CallRuntime(services=Services(app=AppData().put(DATABASE, database))) as calls:
        result = await clerk.run("What did Ada order?", calls.context("req-1", Scope(tenant="acme")))
    database.close()
    told = result.messages[-2]
    print(told, result.text, sep="\n")
    return str(told.content)


if __name__ == "__main__":
    asyncio.run(main())
