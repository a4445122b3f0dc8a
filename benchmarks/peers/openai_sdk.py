"""The official SDK and a loop by hand around it."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

from benchmarks.peers.base import Contender
from benchmarks.task import API_KEY, INSTRUCTIONS, MODEL, PROMPT, TOOL_SPEC


class OpenAISDK(Contender):
    """`AsyncOpenAI` as its documentation shows it."""

    async def __aenter__(self) -> OpenAISDK:
        self._client = AsyncOpenAI(base_url=self.url, api_key=API_KEY, max_retries=0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    async def one_shot(self) -> str:
        response = await self._client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": PROMPT}]
        )
        return response.choices[0].message.content or ""

    async def tool_loop(self) -> str:
        tools: Any = [TOOL_SPEC]
        messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": PROMPT}]
        while True:
            response = await self._client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            message = response.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message)
            for call in message.tool_calls:
                assert call.type == "function"
                result = await self.lookup(json.loads(call.function.arguments)["key"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    async def stream(self) -> int:
        characters = 0
        stream = await self._client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PROMPT}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async with stream as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    characters += len(choice.delta.content or "")
        return characters
