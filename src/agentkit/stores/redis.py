"""Quota windows in Redis: one script, the server's clock, atomic over all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from decimal import Decimal
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agentkit.core.contracts import ZERO, QuotaLimits, QuotaStanding, Quote, multiply_money
from agentkit.core.contracts.money import to_nano
from agentkit.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

__all__ = ["RedisQuotaStore"]

_SLICES = 60
_NANO = Decimal("1e-9")
_NANOS = 10**9
_ANSWER_SECONDS = 2.0

# A key is a hash: r, t, n are the sums of requests, tokens and nano-dollars, o the oldest slice, and "i" a slice's own
# "requests tokens nano". A slice counts until all of it is older than the window. Sums stay below 2^53.
_SCRIPT = """
local key, op, width = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local index = math.floor(ms / width)
local got = redis.call('HMGET', key, 'r', 't', 'n', 'o')
local r, t, n, oldest = tonumber(got[1] or 0), tonumber(got[2] or 0), tonumber(got[3] or 0), tonumber(got[4] or index)
local last = index - 61
while oldest <= last do
  local slice = redis.call('HGET', key, oldest)
  if slice then
    local a, b, c = slice:match('(%S+) (%S+) (%S+)')
    r, t, n = r - a, t - b, n - c
    if op ~= 'read' then redis.call('HDEL', key, oldest) end
  end
  oldest = oldest + 1
end
local function add(place, a, b, c)
  local slice = redis.call('HGET', key, place) or '0 0 0'
  local x, y, z = slice:match('(%S+) (%S+) (%S+)')
  local text = string.format('%.0f %.0f %.0f', x + a, y + b, z + c)
  redis.call('HSET', key, place, text)
  r, t, n = r + a, t + b, n + c
end
local axis = ''
if op == 'reserve' then
  local tokens, nano = tonumber(ARGV[3]), tonumber(ARGV[4]) or 0
  if ARGV[5] ~= '' and r + 1 > tonumber(ARGV[5]) then axis = 'requests'
  elseif ARGV[6] ~= '' and t + tokens > tonumber(ARGV[6]) then axis = 'tokens'
  elseif ARGV[7] ~= '' and (n + nano > tonumber(ARGV[7]) or (ARGV[4] == '' and n >= tonumber(ARGV[7]))) then
    axis = 'cost'
  else add(index, 1, tokens, nano) end
elseif op == 'settle' then
  local place = tonumber(ARGV[3])
  if place >= oldest and redis.call('HEXISTS', key, place) == 1 then
    add(place, 0, -tonumber(ARGV[4]), -tonumber(ARGV[5]))
  end
  add(index, 0, tonumber(ARGV[6]), tonumber(ARGV[7]))
end
if op ~= 'read' then
  redis.call('HSET', key, 'r', string.format('%.0f', r), 't', string.format('%.0f', t), 'n', string.format('%.0f', n),
    'o', oldest)
  redis.call('PEXPIRE', key, width * 62)
end
local first = oldest
while first < index and redis.call('HEXISTS', key, first) == 0 do first = first + 1 end
local wait = math.max(1, (first + 61) * width - ms)
return {axis, index, string.format('%.0f', r), string.format('%.0f', t), string.format('%.0f', n), wait}
"""


class RedisQuotaStore:
    """Sliding windows in Redis for `Quota(store=...)`: connected on first use, one round trip a call.

    `url` is "redis://USER:PASSWORD@HOST:PORT/DATABASE" (rediss:// for TLS); its password is in no error. A key takes a
    hash of at most 64 fields, and none once its window has passed. Money counts in whole nano-dollars, reservations
    rounded up and ceilings down; a window holds up to nine million dollars. Connections belong to their event loop and
    close with it, or with `aclose`. Errors are StoreError. Needs the extra `redis`.
    """

    def __init__(self, url: str, *, prefix: str = "agentkit:quota:") -> None:
        if not url.startswith(("redis://", "rediss://", "unix://")):
            raise ConfigurationError("RedisQuotaStore(url=...): pass a URL that starts with redis:// or rediss://.")
        self._url = url
        self._prefix = prefix
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()
        parts = urlsplit(url)
        self._name = f"Redis at {parts.hostname or parts.path}"

    def __repr__(self) -> str:
        return f"RedisQuotaStore({self._name!r})"

    async def reserve(self, key: str, quote: Quote, limits: QuotaLimits) -> QuotaStanding:
        """Count a request with its bound in tokens and dollars when it fits, and say where the key stands."""
        found = await self._run(
            key,
            limits.window,
            "reserve",
            quote.input_tokens + quote.output_tokens,
            "" if quote.cost is None else to_nano(quote.cost),
            _limit(limits.requests),
            _limit(limits.tokens),
            "" if limits.dollars is None else int(multiply_money(limits.dollars, _NANOS)),
        )
        return _standing(found)

    async def standing(self, key: str, window: float) -> QuotaStanding:
        """Say what counts for the key now, attempts in flight at their bound; nothing is counted."""
        return _standing(await self._run(key, window, "read"))

    async def settle(self, key: str, slice_: int, bound: Quote, tokens: int, dollars: Decimal, window: float) -> None:
        """Take a bound back from its slice, unless that has left the window, and count what was used now."""
        held = bound.input_tokens + bound.output_tokens
        await self._run(key, window, "settle", slice_, held, to_nano(bound.cost or ZERO), tokens, to_nano(dollars))

    async def aclose(self) -> None:
        """Close the connections of this event loop; a later call opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.keeper.aclose()

    async def _run(self, key: str, window: float, op: str, *arguments: object) -> list[str]:
        import redis.exceptions

        client = self._clients.get(asyncio.get_running_loop()) or await self._open()
        width = max(1, round(window * 1000 / _SLICES))
        answer = cast("Awaitable[list[str]]", client.script(keys=[self._prefix + key], args=[op, width, *arguments]))
        failure: str
        try:
            return await answer
        except (redis.exceptions.RedisError, OSError, TimeoutError) as error:
            failure = f"{self._name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise StoreError(failure)

    async def _open(self) -> _Client:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise ConfigurationError("A quota in Redis needs redis: pip install 'agentkit-core[redis]'.") from None
        connected = Redis.from_url(
            self._url,
            decode_responses=True,
            socket_timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_ANSWER_SECONDS,
        )
        keeper = _keep(connected)
        await anext(keeper)
        client = _Client(connected.register_script(_SCRIPT), keeper)
        self._clients[asyncio.get_running_loop()] = client
        return client


class _Client:
    __slots__ = ("keeper", "script")

    def __init__(self, script: AsyncScript, keeper: AsyncGenerator[None, None]) -> None:
        self.script = script
        self.keeper = keeper


async def _keep(client: Redis) -> AsyncGenerator[None, None]:
    """Hold the connections; a loop that ends closes its asynchronous generators, and so these."""
    try:
        yield
    finally:
        await client.aclose()


def _limit(value: int | None) -> int | str:
    return "" if value is None else value


def _standing(found: list[str]) -> QuotaStanding:
    axis, index, requests, tokens, nano, wait = found
    dollars = multiply_money(Decimal(nano), _NANO)
    return QuotaStanding(axis, int(wait) / 1000, int(index), int(requests), int(tokens), dollars)
