"""The floor for aiohttp: a hand-written loop, msgspec, nothing else."""

from __future__ import annotations

from typing import Any

import aiohttp

from benchmarks.peers import chat
from benchmarks.peers.base import Contender
from benchmarks.task import API_KEY

_HEADERS = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}


class BareAiohttp(Contender):
    """aiohttp and msgspec by hand."""

    async def __aenter__(self) -> BareAiohttp:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=_HEADERS)
        self._endpoint = f"{self.url}/chat/completions"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def _post(self, body: dict[str, Any]) -> chat.Message:
        async with self._session.post(self._endpoint, data=chat.encode(body)) as response:
            response.raise_for_status()
            return chat.decode_completion(await response.read()).choices[0].message

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
        async with self._session.post(self._endpoint, data=chat.encode(body)) as response:
            response.raise_for_status()
            async for data in response.content.iter_any():
                text.feed(data)
        return text.characters
