"""A small model in this process: llama.cpp's server on a loopback port, started when first asked."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from agentkit.core.contracts import Call, ChatEvent, ChatRequest, WireProtocol
from agentkit.errors import ConfigurationError
from agentkit.providers import weights
from agentkit.providers.model import HttpModel, build_model
from agentkit.providers.profiles import find_profile, speaking

__all__ = ["LocalModel"]

_MOST_THREADS = 8
_ONE_REQUEST = ("connection", "close")  # it closes a streamed answer's connection while announcing keep-alive
_PROFILE = replace(
    find_profile("llamacpp+schema"),
    name="local",
    reports_model=True,
    headers=(_ONE_REQUEST,),
    protocols=("chat", "responses"),  # in Messages it enforces no schema, which tools need
)


class LocalModel:
    """A model port over weights on this machine; nothing leaves it and nothing is charged.

    `model` is a known name (`smollm2`) or the path of a .gguf file. The first call loads the weights, in a worker
    thread; `progress` gets a line before and after. llama.cpp holds Python's interpreter lock while it loads (half
    a second for smollm2), so other tasks of the process stand still for that time, and only then. Models of one
    file and size share one server, from any thread and event loop. `context_tokens` is the window of each of the
    `parallel` calls that run at once; further calls wait in the server. `protocol` is "chat" or "responses". Tools are
    called through an enforced schema, because small models' templates do not enforce native calls.

    Raises ConfigurationError at once for an unknown name, and when a call starts without the weights or without
    xllamacpp. `aclose` releases the server; the last user's stops it, as do the end of the process and of the
    object. A closed model starts again when it is asked again.
    """

    provider = "local"
    free = True

    def __init__(
        self,
        model: str = "smollm2",
        *,
        context_tokens: int = 4096,
        parallel: int = 2,
        threads: int | None = None,
        protocol: WireProtocol | None = None,
        progress: weights.Progress | None = None,
    ) -> None:
        for name, number in (("context_tokens", context_tokens), ("parallel", parallel), ("threads", threads)):
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} is {number}: give at least 1")
        weights.locate(model)
        self._profile = speaking(_PROFILE, protocol)
        self.name = Path(model).stem if model.endswith(".gguf") else model
        self._model = model
        self._size = (context_tokens, parallel, threads or _usable_threads())
        self._progress = progress
        self._lock = threading.Lock()
        self._port: HttpModel | None = None
        self._server: _Running | None = None

    async def stream(self, call: Call[ChatRequest], /) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of one call, loading the model first if nobody has."""
        port = self._port or await self._start()
        async with aclosing(port.stream(call)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections of this loop and let go of the server; twice does no harm."""
        port, self._port = self._port, None
        try:
            if port is not None:
                await port.aclose()
        finally:
            with self._lock:
                self._server = None

    async def _start(self) -> HttpModel:
        if self._progress is not None:
            self._progress(f"loading {self.name}")
        before = time.monotonic()
        port = await asyncio.to_thread(self._connect)
        if self._progress is not None:
            self._progress(f"{self.name} is ready after {time.monotonic() - before:.1f} s")
        return port

    def _connect(self) -> HttpModel:
        with self._lock:
            if self._port is None:
                path = str(weights.require(self._model).resolve())
                self._server = server = _shared(_Key(path, self.name, *self._size))
                self._port = build_model(
                    self._profile, base_url=f"{server.url}/v1", api_key=server.key, provider="local"
                )
            return self._port


class _Key(Struct, frozen=True):
    path: str
    alias: str
    context_tokens: int
    parallel: int
    threads: int


class _Running:
    """A server that answers at `url`; llama.cpp stops it when nobody holds it any more."""

    def __init__(self, server: object, url: str, key: str) -> None:
        self.server, self.url, self.key = server, url, key


_running: weakref.WeakValueDictionary[_Key, _Running] = weakref.WeakValueDictionary()
_starting = threading.Lock()


def _shared(key: _Key) -> _Running:
    with _starting:
        found = _running.get(key)
        if found is None:
            found = _running[key] = _serve(key)
        return found


def _serve(key: _Key) -> _Running:
    try:
        xllamacpp = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise ConfigurationError(
            "a local model needs xllamacpp: run pip install 'agentkit-core[local]' (or pip install --no-deps xllamacpp)"
        ) from error
    secret = secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = key.path, {key.alias}
    params.n_ctx, params.n_parallel = key.context_tokens * key.parallel, key.parallel
    params.cpuparams.n_threads = key.threads
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secret]
    params.cors_origins, params.ui, params.endpoint_slots = "http://127.0.0.1", False, False
    params.verbosity, params.warmup, params.fit_params, params.offline = 0, False, False, True
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise ConfigurationError(
            f"llama.cpp could not load {key.path}: check that it is a whole GGUF file and that a context of "
            f"{key.context_tokens} tokens times {key.parallel} fits into memory"
        ) from error
    return _Running(server, server.listening_address, secret)


def _usable_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)
