"""agentkit with its default stacks on (meter, retry, trace without exporter, policy), every call priced."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentkit import Agent, AssistantMessage, Binding, Budget, CallRuntime, ReAct, ToolCall, Usage, tool
from agentkit.core.contracts import (
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    ModelEvent,
    TextDelta,
    ToolCallReady,
)
from benchmarks.peers.base import Contender
from benchmarks.task import ANSWER, API_KEY, ARGUMENTS, INSTRUCTIONS, MODEL, PROMPT, TOOL_NAME

_PRICE = "1.25/10"
_USAGE = Usage(50, 12)


class Played:
    """The scripted model. It counts messages instead of replies, so that one agent serves every run, as with peers."""

    provider = "scripted"
    name = MODEL
    turns = 0

    async def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Call the tool until enough results are in the conversation."""
        turn = len(call.request.messages) // 2 - 1
        yield ChatStart(MODEL, self.provider)
        if turn < self.turns:
            wish = ToolCall(f"call_{turn}", TOOL_NAME, ARGUMENTS)
            yield ToolCallReady(0, wish)
            yield ChatEnd(ChatResponse(AssistantMessage(tool_calls=(wish,)), _USAGE, "tool_calls"))
        else:
            yield TextDelta(ANSWER)
            yield ChatEnd(ChatResponse(AssistantMessage(ANSWER), _USAGE))


class AgentkitDefault(Contender):
    """agentkit on its default transport."""

    client: object | None = None
    budget: Budget | None = None

    async def __aenter__(self) -> AgentkitDefault:
        self._calls = await CallRuntime(budget=self.budget).__aenter__()
        self._binding = Binding(f"openai:{MODEL}", base_url=self.url, api_key=API_KEY, client=self.client, price=_PRICE)
        self._tool = tool(effect="read")(self.lookup)
        self._played = Played()
        self._agent = Agent(
            "bench",
            Binding(self._played, price=_PRICE),
            instructions=INSTRUCTIONS,
            tools=[self._tool],
            cognition=ReAct(max_turns=self.max_turns),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._calls.aclose()

    async def one_shot(self) -> str:
        return (await self._calls.ask(self._binding, PROMPT)).text

    async def tool_loop(self) -> str:
        answer = await self._calls.run(
            self._binding, PROMPT, [self._tool], instructions=INSTRUCTIONS, max_turns=self.max_turns
        )
        return answer.text

    async def stream(self) -> int:
        characters = 0
        async with self._calls.stream(self._binding, PROMPT) as events:
            async for event in events:
                if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                    characters += len(event.event.text)
        return characters

    async def in_process(self, turns: int) -> str:
        self._played.turns = turns
        return (await self._agent.run(PROMPT, self._calls.context())).text


class AgentkitBudgeted(AgentkitDefault):
    """The same under a money ceiling: every attempt is estimated, reserved and settled."""

    budget = Budget("1000000")
