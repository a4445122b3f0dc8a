"""pydantic-ai, uninstrumented."""

from __future__ import annotations

from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from benchmarks.peers.base import Contender
from benchmarks.task import ANSWER, API_KEY, ARGUMENTS, INSTRUCTIONS, MODEL, PROMPT, TOOL_NAME


class PydanticAI(Contender):
    """`pydantic_ai.Agent` over `OpenAIChatModel`, and over a `FunctionModel` in process."""

    async def __aenter__(self) -> PydanticAI:
        self._client = AsyncOpenAI(base_url=self.url, api_key=API_KEY, max_retries=0)
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=self._client))
        self._limits = UsageLimits(request_limit=None)
        self._turns = 0
        self._plain = Agent(model)
        self._tools = Agent(model, instructions=INSTRUCTIONS)
        self._tools.tool_plain(self.lookup)
        self._scripted = Agent(FunctionModel(self._play), instructions=INSTRUCTIONS)
        self._scripted.tool_plain(self.lookup)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    async def _play(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2
        usage = RequestUsage(input_tokens=50, output_tokens=12)
        if turn < self._turns:
            return ModelResponse([ToolCallPart(TOOL_NAME, ARGUMENTS, tool_call_id=f"call_{turn}")], usage=usage)
        return ModelResponse([TextPart(ANSWER)], usage=usage)

    async def one_shot(self) -> str:
        return (await self._plain.run(PROMPT)).output

    async def tool_loop(self) -> str:
        return (await self._tools.run(PROMPT, usage_limits=self._limits)).output

    async def stream(self) -> int:
        characters = 0
        async with self._plain.run_stream(PROMPT) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                characters += len(text)
        return characters

    async def in_process(self, turns: int) -> str:
        self._turns = turns
        return (await self._scripted.run(PROMPT, usage_limits=self._limits)).output
