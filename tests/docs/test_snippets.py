"""Every snippet of the README and the docs runs as it stands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path

import pytest

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
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_with_the_real_model_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets marked as needing the local model run with it."""
    monkeypatch.chdir(tmp_path)
    wanted = sum(1 for _, language, mark, _ in blocks(page) if language == "python" and mark == "server")
    assert run(page, server=True) == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_marked_right(page: Path) -> None:
    """Every block has a known language, and every mark is one of ours, with a reason where it skips."""
    for line, language, mark, _ in blocks(page):
        assert language in LANGUAGES, f"line {line}: {language}"
        assert not mark or mark == "server" or re.fullmatch(r"not run: .+", mark), f"line {line}: {mark}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links point at files that exist."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
