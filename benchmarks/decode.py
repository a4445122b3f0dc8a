"""`python -m benchmarks.decode`: what decoding alone costs, in process, and that it grows linearly.

Each protocol's decoder is fed the bytes of a recorded stream in pieces of 16 KiB and is compared with splitting the
lines and parsing their JSON (msgspec, into plain data), and with the official SDK's own stream over the same bytes
without a network. CPU time of this process, the best of several interleaved rounds. With `--check` it fails when a
target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from agentkit.core.contracts import ChatEvent, ToolCall, Usage
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.testing.turns import Turn, write_turn

PROTOCOLS = ("chat", "messages", "responses")
DELTAS = 1000
CHUNK = 1 << 14
MEGABYTE = 1 << 20
HALF = 0.5
SIZES = (1, 2, 4)
JSON_LIMIT = 2.0
LINEAR_LIMIT = 2.0  # at four times the size, by unit; quadratic work would be 4
_ASKED = Asked(provider="bench", model="bench", endpoint="bench")


@dataclass(frozen=True)
class Row:
    """One measured cost, in microseconds a unit, and its ratio to a base."""

    name: str
    unit: str
    micros: float
    ratio: float
    limit: float | None = None

    @property
    def ok(self) -> bool:
        """Return whether the ratio is within its limit."""
        return self.limit is None or self.ratio <= self.limit


def cost(job: Callable[[], object], rounds: int) -> float:
    """Return the least CPU seconds of several runs of the job."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def pieces(data: bytes, size: int) -> list[bytes]:
    """Return the bytes in pieces of this size."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def decode(protocol: str, chunks: Sequence[bytes]) -> int:
    """Return how many events the decoder tells of these chunks."""
    decoder = CODECS[protocol].decoder(_ASKED)  # type: ignore[index]
    events: list[ChatEvent] = []
    told = 0
    for chunk in chunks:
        events = decoder.feed(chunk)
        told += len(events)
    return told + len(decoder.end())


def lines_and_json(chunks: Sequence[bytes]) -> int:
    """Split the lines and parse each one's JSON: the least that any reader of the stream has to do."""
    read = msgspec.json.decode
    held, count = b"", 0
    for chunk in chunks:
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                read(line[6:])
                count += 1
    return count


def stream_of(protocol: str, deltas: int) -> bytes:
    """Return a text stream of so many deltas, as the protocol tells it."""
    turn = Turn(text="word " * deltas, usage=Usage(50, deltas), size=5)
    return b"".join(write_turn(turn, protocol))  # type: ignore[arg-type]


def argument_of(protocol: str, size: int) -> bytes:
    """Return a stream with one call whose argument has so many bytes, in deltas of 64 characters."""
    call = ToolCall("call_1", "write", msgspec.json.encode({"content": "x" * size}).decode())
    return b"".join(write_turn(Turn(calls=(call,), size=64), protocol))  # type: ignore[arg-type]


def one_frame(size: int) -> bytes:
    """Return a chat stream that tells an argument of so many bytes in one frame."""
    call = ToolCall("call_1", "write", msgspec.json.encode({"content": "x" * size}).decode())
    return b"".join(write_turn(Turn(calls=(call,), size=2 * size), "chat"))


async def sdk(protocol: str, data: bytes, rounds: int) -> float | None:
    """Return the CPU seconds of the official SDK's stream over these bytes, None where the SDK is missing."""
    try:
        import anthropic
        import httpx2
        import openai
    except ImportError:
        return None

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in pieces(data, CHUNK):
                yield chunk

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    said: list[Any] = [{"role": "user", "content": "hi"}]
    best = float("inf")
    async with http:
        for _ in range(rounds):
            gc.collect()
            start = time.process_time()
            stream: Any
            if protocol == "messages":
                claude: Any = anthropic.AsyncAnthropic(api_key="k", http_client=http, open_telemetry=False)
                stream = await claude.messages.create(model="m", max_tokens=9, messages=said, stream=True)
            elif protocol == "responses":
                client = openai.AsyncOpenAI(api_key="k", http_client=http)
                stream = await client.responses.create(model="m", input="hi", stream=True)
            else:
                client = openai.AsyncOpenAI(api_key="k", http_client=http)
                stream = await client.chat.completions.create(model="m", messages=said, stream=True)
            async for _event in stream:
                pass
            best = min(best, time.process_time() - start)
    return best


def decoding(rounds: int) -> list[Row]:
    """Compare the decoders with lines and JSON alone, and with the SDKs."""
    rows: list[Row] = []
    for protocol in PROTOCOLS:
        data = stream_of(protocol, DELTAS)
        chunks = pieces(data, CHUNK)
        least = ours = float("inf")
        for _ in range(rounds):
            least = min(least, cost(partial(lines_and_json, chunks), 8))
            ours = min(ours, cost(partial(decode, protocol, chunks), 8))
        scale = 1e6 / DELTAS
        rows.append(Row(f"{protocol}: lines and JSON alone", "delta", least * scale, 1.0))
        rows.append(Row(f"{protocol}: agentkit's decoder", "delta", ours * scale, ours / least, JSON_LIMIT))
        theirs = asyncio.run(sdk(protocol, data, rounds))
        if theirs is not None:
            rows.append(Row(f"{protocol}: the official SDK's stream", "delta", theirs * scale, theirs / least))
    return rows


def growth(rounds: int, megabytes: int) -> list[Row]:
    """Measure sizes of 1, 2 and 4 times; the ratio is that of the cost for its size to the cost of once."""
    rows: list[Row] = []
    for name, unit, job in _jobs(megabytes):
        seconds = {times: cost(partial(job, times), rounds) for times in SIZES}
        for times in SIZES:
            limit = LINEAR_LIMIT if times == SIZES[-1] else None
            ratio = seconds[times] / times / seconds[1]
            rows.append(Row(f"{name.format(unit * times)}", "run", seconds[times] * 1e6, ratio, limit))
    return rows


def _jobs(megabytes: int) -> Iterator[tuple[str, float, Callable[[int], object]]]:
    for protocol in PROTOCOLS:
        deltas = megabytes * MEGABYTE * 100 // len(stream_of(protocol, 100))
        yield (
            f"{protocol}: {{:g}} MB of deltas",
            megabytes,
            partial(_sized, protocol, CHUNK, {n: stream_of(protocol, n * deltas) for n in SIZES}),
        )
        yield (
            f"{protocol}: an argument of {{:g}} MB in small deltas",
            HALF,
            partial(_sized, protocol, CHUNK, {n: argument_of(protocol, int(n * HALF * MEGABYTE)) for n in SIZES}),
        )
    yield (
        "chat: an argument of {:g} MB in one frame, byte by byte",
        HALF,
        partial(_sized, "chat", 1, {n: one_frame(int(n * HALF * MEGABYTE)) for n in SIZES}),
    )


def _sized(protocol: str, size: int, streams: dict[int, bytes], times: int) -> int:
    return decode(protocol, pieces(streams[times], size))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | microseconds | ratio | limit |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:g}{'' if row.ok else ' MISSED'}"
        lines.append(f"| {row.name} | {row.micros:,.2f} a {row.unit} | {row.ratio:.2f} | {limit} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and with --check return 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=10, help="size of the deltas, x1 (default 10)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    arguments = parser.parse_args()
    rows = decoding(arguments.rounds)
    print("Ratio to splitting the lines and parsing the JSON:\n\n" + table(rows) + "\n")
    grown = growth(max(2, arguments.rounds // 3), arguments.megabytes)
    print("Ratio of the cost for its size to the cost of the smallest:\n\n" + table(grown))
    return int(arguments.check and not all(row.ok for row in (*rows, *grown)))


if __name__ == "__main__":
    sys.exit(main())
