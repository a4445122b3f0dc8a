"""The floor for httpx: a hand-written loop, msgspec, nothing else."""

from __future__ import annotations

from typing import Any

import httpx

from benchmarks.peers import chat
from benchmarks.peers.base import Contender
from benchmarks.task import API_KEY

_HEADERS = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}


class BareHttpx(Contender):
    """httpx and msgspec by hand."""

    async def __aenter__(self) -> BareHttpx:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(headers=_HEADERS, limits=limits, timeout=60)
        self._endpoint = f"{self.url}/chat/completions"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()

    async def _post(self, body: dict[str, Any]) -> chat.Message:
        response = await self._client.post(self._endpoint, content=chat.encode(body))
        response.raise_for_status()
        return chat.decode_completion(response.content).choices[0].message

    async def one_shot(self) -> str:
        return (await self._post(chat.opening(tools=False))).content or ""

    async def tool_loop(self) -> str:
        body = chat.opening(tools=True)
        while (message := await self._post(body)).tool_calls:
            await chat.answer_calls(message, self.lookup, body["messages"])
        return message.content or ""

    async def stream(self) -> int:
        body = chat.opening(tools=False) | {"stream": True, "stream_options": {"include_usage": True}}
        text = chat.StreamText()
        async with self._client.stream("POST", self._endpoint, content=chat.encode(body)) as response:
            response.raise_for_status()
            async for data in response.aiter_raw():
                text.feed(data)
        return text.characters
