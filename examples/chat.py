"""A chat over several turns: the answer's messages plus a new one continue the conversation."""

import asyncio

from agentkit import Binding, CallRuntime, Scope, UserMessage


async def main(model: str = "scripted:I see.") -> int:
    """Say three things and return how many messages the conversation has."""
    history = []
    async with CallRuntime() as calls:
        ctx = calls.context("chat-1", Scope(tenant="acme", user="ada", session="s1"))
        for said in ("I am Ada.", "I like engines.", "Who am I?"):
            answer = await calls.ask(
                Binding(model), [*history, UserMessage(said)], ctx=ctx, instructions="" if history else "Be brief."
            )
            history = list(answer.messages)
            print(f"> {said}\n{answer.text}")
    return len(history)


if __name__ == "__main__":
    asyncio.run(main())
