"""agentkit over an httpx client handed in."""

from __future__ import annotations

import httpx

from benchmarks.peers.agentkit_default import AgentkitDefault


class AgentkitHttpx(AgentkitDefault):
    """agentkit with `client=httpx.AsyncClient`."""

    async def __aenter__(self) -> AgentkitHttpx:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = self._http = httpx.AsyncClient(limits=limits, timeout=60)
        await super().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        await self._http.aclose()
