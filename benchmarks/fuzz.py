"""`python -m benchmarks.fuzz --seconds 60`: damage streams of every protocol and decode them, until the time is up.

Each input is a turn in one of the protocols, damaged at random from a seed. It has to end as an answer that holds
together or as an error of the tree, the same wherever its bytes are cut. With `atheris` installed and `--coverage` the
inputs that reach new lines are kept and damaged further. Prints how many inputs were tried and exits 1 at the first that fails, whose
seed makes it again: `--seed N --inputs 1`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from agentkit.core.contracts import ChatEnd, ChatEvent, ReasoningDelta, TextDelta, ToolCall, ToolCallReady, Usage
from agentkit.errors import ProviderError
from agentkit.providers.wire.codecs import CODECS
from agentkit.providers.wire.fold import Asked
from agentkit.testing.damage import cut_at_random, damaged
from agentkit.testing.turns import Protocol, Turn, write_turn

PROTOCOLS: tuple[Protocol, ...] = ("chat", "messages", "responses")
ECHOES = ("", "content", "details", "signatures")
CALLS = (ToolCall("a", "find", '{"t":"\u00e9","n":[1,{"x":2}]}'), ToolCall("b", "odd", "{}"))
TURNS = (
    Turn(
        text="Gr\u00f6\u00dfe \U0001f600", reasoning="hm", calls=CALLS, usage=Usage(30, 8, cache_read_tokens=10), size=4
    ),
    Turn(text="plain text"),
    Turn(calls=CALLS[:1], size=3),
)


class Unsound(Exception):
    """An answer does not hold together."""


def decoded(protocol: Protocol, chunks: list[bytes], echo: str, *, whole: bool = False) -> list[ChatEvent] | str:
    """Return the events of a decoder, or the error of the tree it raised."""
    decoder = CODECS[protocol].decoder(Asked(provider="p", model="m", endpoint="e", echo=echo))  # type: ignore[arg-type]
    try:
        if whole:
            return decoder.whole(b"".join(chunks))
        events: list[ChatEvent] = []
        for chunk in chunks:
            events += decoder.feed(chunk)
            if decoder.done:
                break
        return events + decoder.end()
    except ProviderError as error:
        return f"{type(error).__name__}: {error.message}"


def check(events: list[ChatEvent]) -> None:
    """Raise Unsound where deltas, message and calls of one answer contradict each other."""
    last = events[-1]
    if not isinstance(last, ChatEnd):
        raise Unsound("no end")
    message = last.response.message
    for kind, whole in ((TextDelta, message.content), (ReasoningDelta, message.reasoning)):
        if "".join(event.text for event in events if isinstance(event, kind)) != whole:
            raise Unsound(f"{kind.__name__} and message differ")
    if len({call.id for call in message.tool_calls}) != len(message.tool_calls):
        raise Unsound("two calls share an id")
    if any(isinstance(event, ToolCallReady) and event.call not in message.tool_calls for event in events):
        raise Unsound("a call is ready that the message does not hold")
    repr(events).encode()


def attempt(protocol: Protocol, echo: str, stream: bytes, random: Random) -> str:
    """Try one input; return how it ended. Raises Unsound, or whatever a decoder should not have raised."""
    told = decoded(protocol, [stream], echo)
    if decoded(protocol, cut_at_random(stream, random), echo) != told:
        raise Unsound("the cut of the bytes changes the answer")
    for events in (told, decoded(protocol, [stream], echo, whole=True)):
        if not isinstance(events, str):
            check(events)
    return told.partition(":")[0] if isinstance(told, str) else "answer"


def from_seed(seed: int) -> str:
    """Try the input that this seed makes."""
    random = Random(seed)
    protocol, echo, turn = random.choice(PROTOCOLS), random.choice(ECHOES), random.choice(TURNS)
    stream = damaged(b"".join(write_turn(turn, protocol, stream=random.random() < 0.7)), random)
    return attempt(protocol, echo, stream, random)


def at_random(seconds: float, seed: int, inputs: int) -> int:
    """Try inputs until the time or their number is up; return the exit code."""
    ends: Counter[str] = Counter()
    start = time.monotonic()
    first = seed
    while seed - first < inputs and time.monotonic() - start < seconds:
        try:
            ends[from_seed(seed)] += 1
        except Exception as error:
            print(f"seed {seed}: {error!r}")
            raise
        seed += 1
    print(f"{seed - first} inputs in {time.monotonic() - start:.0f} s: {dict(ends.most_common())}")
    return 0


def by_coverage(seconds: float, seed: int) -> None:
    """Let atheris keep the inputs that reach new lines, and damage those further; ends the process."""
    import atheris

    ways = [(protocol, echo) for protocol in PROTOCOLS for echo in ECHOES]

    def one(data: bytes) -> None:
        if data:
            protocol, echo = ways[data[0] % len(ways)]
            attempt(protocol, echo, data[1:], Random(len(data)))

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        return (data[:1] + damaged(data[1:], Random(seed)))[:most]

    atheris.instrument_all()
    with tempfile.TemporaryDirectory() as corpus:
        for number, (protocol, _) in enumerate(ways):
            for place, turn in enumerate(TURNS):
                body = b"".join(write_turn(turn, protocol))
                Path(corpus, f"{number}-{place}").write_bytes(bytes([number]) + body)
        limits = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=16384", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, corpus], one, custom_mutator=mutated)
        atheris.Fuzz()


def main() -> int:
    """Fuzz; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=sys.maxsize)
    parser.add_argument("--coverage", action="store_true", help="let atheris lead the choice of inputs")
    arguments = parser.parse_args()
    if arguments.coverage:
        by_coverage(arguments.seconds, arguments.seed)
    return at_random(arguments.seconds, arguments.seed, arguments.inputs)


if __name__ == "__main__":
    sys.exit(main())
