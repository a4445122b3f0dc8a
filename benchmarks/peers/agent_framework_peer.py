"""agent-framework-core, its instrumentation disabled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from agent_framework.observability import ChatTelemetryLayer, disable_instrumentation
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from benchmarks.peers.base import Contender
from benchmarks.task import ANSWER, API_KEY, ARGUMENTS, INSTRUCTIONS, MODEL, PROMPT, TOOL_NAME


class Played(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    """The scripted model, layered as the framework's own clients are."""

    turns = 0

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, **kwargs: Any) -> Any:
        turn = (len(messages) - 1) // 2
        return self._reply(turn)

    async def _reply(self, turn: int) -> ChatResponse:
        if turn < self.turns:
            content = Content.from_function_call(f"call_{turn}", TOOL_NAME, arguments=ARGUMENTS)
        else:
            content = Content.from_text(ANSWER)
        return ChatResponse(
            messages=Message("assistant", [content]),
            finish_reason="tool_calls" if turn < self.turns else "stop",
            usage_details={"input_token_count": 50, "output_token_count": 12, "total_token_count": 62},
        )


class AgentFramework(Contender):
    """`Agent` over `OpenAIChatCompletionClient`, and over a chat client of our own in process."""

    async def __aenter__(self) -> AgentFramework:
        disable_instrumentation()
        limits: Any = {"max_iterations": self.max_turns}
        self._sdk = AsyncOpenAI(base_url=self.url, api_key=API_KEY, max_retries=0)
        client = OpenAIChatCompletionClient(
            model=MODEL, async_client=self._sdk, function_invocation_configuration=limits
        )
        self._played = Played(function_invocation_configuration=limits)
        self._plain = Agent(client)
        self._tools = Agent(client, INSTRUCTIONS, tools=[self.lookup])
        self._scripted = Agent(self._played, INSTRUCTIONS, tools=[self.lookup])
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._sdk.close()

    async def one_shot(self) -> str:
        return (await self._plain.run(PROMPT)).text

    async def tool_loop(self) -> str:
        return (await self._tools.run(PROMPT)).text

    async def stream(self) -> int:
        characters = 0
        async for update in self._plain.run(PROMPT, stream=True):
            characters += len(update.text)
        return characters

    async def in_process(self, turns: int) -> str:
        self._played.turns = turns
        return (await self._scripted.run(PROMPT)).text
