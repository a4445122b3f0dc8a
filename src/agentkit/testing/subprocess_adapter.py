"""A model behind a child process: the prompt goes in on stdin, one JSON line comes back an event."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from agentkit.core.contracts import (
    AssistantMessage,
    Call,
    ChatEnd,
    ChatEvent,
    ChatRequest,
    ChatResponse,
    ChatStart,
    Mode,
    NativeToolPolicy,
    TextDelta,
    Usage,
    UserMessage,
    text_of,
)
from agentkit.errors import StreamBroken

__all__ = ["ECHO", "SubprocessAdapter"]

ECHO = """
import json, sys
prompt = sys.stdin.read()
for word in prompt.split():
    print(json.dumps({"text": word + " "}), flush=True)
print(json.dumps({"done": True, "input_tokens": len(prompt), "output_tokens": len(prompt.split())}), flush=True)
"""
_LINE_LIMIT = 8 * 1024 * 1024
_GRACE = 2.0


class _Line(msgspec.Struct):
    text: str = ""
    done: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None


class SubprocessAdapter:
    """A command-line mode in small: runs `python -c script`, writes the prompt to its stdin and reads JSON lines.

    A line {"text": ...} is a delta, {"done": true, "input_tokens": n, "output_tokens": n} ends the answer; ending
    without it raises StreamBroken. The child has a process group of its own, which is killed when the stream is
    closed or cancelled. `native_tools` says what it claims to do past our tool chain; `policies` keeps what it was
    told. `running` counts children, `peak` the most at once.
    """

    mode = Mode.CLI

    def __init__(
        self,
        script: str = ECHO,
        *,
        native_tools: Literal["none", "optional", "always"] = "none",
        arguments: Sequence[str] = (),
    ) -> None:
        self._command = (sys.executable, "-c", script, *arguments)
        self.native_tools = native_tools
        self.policies: list[NativeToolPolicy] = []
        self.running = 0
        self.peak = 0
        self.pids: list[int] = []
        self.closed = False

    async def stream(
        self, call: Call[ChatRequest], /, *, native_tool_policy: NativeToolPolicy = NativeToolPolicy.WARN
    ) -> AsyncGenerator[ChatEvent, None]:
        """Run one child and yield its events."""
        self.policies.append(native_tool_policy)
        model = "" if call.route is None else call.route.model
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_LINE_LIMIT, start_new_session=True
        )
        self.pids.append(child.pid)
        self.running += 1
        self.peak = max(self.peak, self.running)
        feeding = asyncio.ensure_future(_feed(child, _prompt(call.request)))
        try:
            yield ChatStart(model, "subprocess")
            text: list[str] = []
            while True:
                line = await _next_line(child)
                if line.done:
                    break
                text.append(line.text)
                yield TextDelta(line.text)
            usage = Usage(line.input_tokens, line.output_tokens)
            yield ChatEnd(ChatResponse(AssistantMessage("".join(text)), usage, model=model, provider="subprocess"))
        finally:
            self.running -= 1
            feeding.cancel()
            await _end(child)

    async def aclose(self) -> None:
        """Remember that it was closed; every child belongs to its own stream."""
        self.closed = True


def _prompt(request: ChatRequest) -> bytes:
    texts = [text_of(message.content) for message in request.messages if isinstance(message, UserMessage)]
    return "\n".join(texts).encode()


async def _feed(child: Process, prompt: bytes) -> None:
    stdin = child.stdin
    if stdin is not None:
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(prompt)
            await stdin.drain()
        stdin.close()


async def _next_line(child: Process) -> _Line:
    raw = b"" if child.stdout is None else await child.stdout.readline()
    if not raw:
        raise StreamBroken(
            f"The child ended without a done line, exit code {await child.wait()}.", provider="subprocess"
        )
    try:
        return msgspec.json.decode(raw, type=_Line)
    except msgspec.DecodeError as error:
        raise StreamBroken(f"The child wrote a line that is not ours: {raw[:80]!r}.", provider="subprocess") from error


async def _end(child: Process) -> None:
    """Kill the child's whole group and reap it, also while this task is being cancelled."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    reaping = asyncio.ensure_future(asyncio.wait_for(child.wait(), _GRACE))
    try:
        await asyncio.shield(reaping)
    except asyncio.CancelledError:
        await asyncio.wait((reaping,))
        raise
