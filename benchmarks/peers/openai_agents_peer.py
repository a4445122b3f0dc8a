"""openai-agents, its tracing disabled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStreamEvent,
)

from benchmarks.peers.base import Contender
from benchmarks.task import ANSWER, API_KEY, ARGUMENTS, INSTRUCTIONS, MODEL, PROMPT, TOOL_NAME


class Played(Model):
    """The scripted model."""

    turns = 0

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        """Call the tool until enough results are in the input."""
        turn = 0 if isinstance(input, str) else (len(input) - 1) // 2
        usage = Usage(requests=1, input_tokens=50, output_tokens=12, total_tokens=62)
        item: Any
        if turn < self.turns:
            call_id = f"call_{turn}"
            item = ResponseFunctionToolCall(
                id=call_id, call_id=call_id, name=TOOL_NAME, arguments=ARGUMENTS, type="function_call"
            )
        else:
            text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[], logprobs=[])
            item = ResponseOutputMessage(id="msg", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[ResponseStreamEvent]:
        """Refuse: the in-process scenario does not stream."""
        raise NotImplementedError


class OpenAIAgents(Contender):
    """`Runner.run` over Chat Completions, and over a `Model` of our own in process."""

    async def __aenter__(self) -> OpenAIAgents:
        set_tracing_disabled(True)
        self._config = RunConfig(tracing_disabled=True)
        self._client = AsyncOpenAI(base_url=self.url, api_key=API_KEY, max_retries=0)
        model = OpenAIChatCompletionsModel(MODEL, self._client)
        lookup = function_tool(self.lookup)
        self._played = Played()
        self._plain = Agent(name="plain", model=model)
        self._tools = Agent(name="tools", instructions=INSTRUCTIONS, model=model, tools=[lookup])
        self._scripted = Agent(name="scripted", instructions=INSTRUCTIONS, model=self._played, tools=[lookup])
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    async def _run(self, agent: Agent[None]) -> str:
        result = await Runner.run(agent, PROMPT, max_turns=self.max_turns, run_config=self._config)
        return str(result.final_output)

    async def one_shot(self) -> str:
        return await self._run(self._plain)

    async def tool_loop(self) -> str:
        return await self._run(self._tools)

    async def stream(self) -> int:
        characters = 0
        result = Runner.run_streamed(self._plain, PROMPT, run_config=self._config)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                characters += len(event.data.delta)
        return characters

    async def in_process(self, turns: int) -> str:
        self._played.turns = turns
        return await self._run(self._scripted)
