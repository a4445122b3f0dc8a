"""Every snippet of the README and the docs runs as it stands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from agentkit.cli.main import _parser

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)
LANGUAGES = {"python", "bash", "text", "toml", "json", "console"}


def blocks(page: Path) -> list[tuple[int, str, str, str]]:
    """Return each block's line, language, mark and code."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start()) + 1, match["language"], (match["mark"] or "").strip(), match["code"])
        for match in BLOCK.finditer(text)
    ]


def run(page: Path, *, server: bool) -> int:
    """Run a page's Python blocks in one namespace, in order; return how many ran."""
    namespace: dict[str, object] = {"__name__": "__snippet__"}
    ran = 0
    with asyncio.Runner() as runner:
        for line, language, mark, code in blocks(page):
            if language != "python":
                continue
            source = "\n" * line + textwrap.dedent(code)
            compiled = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if mark.startswith("not run:") or (mark == "server") != server:
                continue
            ran += 1
            result = eval(compiled, namespace)  # noqa: S307
            if inspect.iscoroutine(result):
                runner.run(result)
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's snippets run in order in one namespace."""
    monkeypatch.chdir(tmp_path)
    wanted = sum(1 for _, language, mark, _ in blocks(page) if language == "python" and not mark)
    assert run(page, server=False) == wanted


@pytest.mark.server
@pytest.mark.timeout(400)  # the model shares its cores with whatever else runs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_with_the_real_model_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets marked as needing the local model run with it."""
    monkeypatch.chdir(tmp_path)
    wanted = sum(1 for _, language, mark, _ in blocks(page) if language == "python" and mark == "server")
    assert run(page, server=True) == wanted


def commands(page: Path, *, run: bool) -> list[list[str]]:
    """Return the words of each shell command of a page: of the blocks to run, or of the others."""
    found = []
    for _, language, mark, code in blocks(page):
        if language in {"bash", "console"} and (mark == "run") == run:
            lines = code.replace("\\\n", " ").splitlines()
            if language == "console":
                lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            found += [shlex.split(line, comments=True) for line in lines]
    return [words for words in found if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_ones_that_exist(page: Path) -> None:
    """The options of the agentkit command, scripts and extras that a page shows are there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for words in commands(page, run=False):
        if words[0] == "agentkit":
            assert _parser().parse_args(words[1:]).action
        elif words[0] == "bash" and (ROOT / "scripts").is_dir():
            assert (ROOT / words[1]).is_file(), words
        elif words[:2] == ["pip", "install"]:
            for named in re.findall(r"agentkit-core\[([^\]]+)\]", " ".join(words)):
                assert set(named.split(",")) <= set(extras), named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_marked_commands_run(page: Path, tmp_path: Path) -> None:
    """Commands marked `run` end with exit code 0."""
    for words in commands(page, run=True):
        assert words[0] == "agentkit", words
        subprocess.run([sys.executable, "-m", "agentkit.cli", *words[1:]], check=True, cwd=tmp_path, timeout=60)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_marked_right(page: Path) -> None:
    """Every block has a known language, and every mark is one of ours, with a reason where it skips."""
    for line, language, mark, _ in blocks(page):
        assert language in LANGUAGES, f"line {line}: {language}"
        assert not mark or mark in {"server", "run"} or re.fullmatch(r"not run: .+", mark), f"line {line}: {mark}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links point at files that exist."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
