"""The official SDK clients as `client=`: their keys, base URLs and cloud variants, our streams and budgets.

The clients stay yours to configure and to close. Their own retries are switched off for our calls, so that one side
alone decides what is tried again.
"""

import asyncio

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from agentkit import Binding, Budget, CallRuntime


async def main(openai_url: str, anthropic_url: str) -> list[str]:
    """Ask two servers through the two SDKs' clients and return their answers."""
    async with (
        AsyncOpenAI(api_key="sk-example", base_url=openai_url) as openai,
        AsyncAnthropic(api_key="sk-example", base_url=anthropic_url) as anthropic,
        CallRuntime() as calls,
    ):
        bindings = [
            Binding("openai:gpt-5.2", client=openai, price="1.25/10"),
            Binding("anthropic:claude-sonnet-4-6", client=anthropic, price="3/15"),
        ]
        answers = [await calls.ask(binding, "Say hello.", budget=Budget("0.50")) for binding in bindings]
    for answer in answers:
        print(f"{answer.provider} {answer.model}: {answer.text} (${answer.cost})")
    return [answer.text for answer in answers]


if __name__ == "__main__":
    asyncio.run(main("https://api.openai.com/v1", "https://api.anthropic.com"))
