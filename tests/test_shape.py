"""How the source is written: sizes, and no yield where a scope would be left open."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "agentkit"
FILES = sorted(SRC.rglob("*.py"))
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_COMMENT_LINES = 5
ASSEMBLING_CONTEXTS = {"asynccontextmanager", "contextmanager"}
SAFE = {"aclosing", "closing", "suppress"}
PLACES = re.compile(r"/work\b|/tmp\b|/root\b|\bshared/|\bTODO\b|\bFIXME\b")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def named(node: ast.expr) -> str:
    """Return the last name of a call or attribute."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def yields_under(node: ast.AST, held: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line of each yield of one function, with the scopes that are open around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(child, (ast.Yield, ast.YieldFrom)):
            yield child.lineno, held
        opened = (
            [named(item.context_expr) for item in child.items] if isinstance(child, (ast.With, ast.AsyncWith)) else []
        )
        yield from yields_under(child, (*held, *opened))


def open_scopes(tree: ast.AST) -> list[str]:
    """Return what yields while a scope is open, but for the functions that are context managers."""
    return [
        f"line {line}: {function.name} yields inside {', '.join(held)}"
        for function in functions(tree)
        if not {named(decorator) for decorator in function.decorator_list} & ASSEMBLING_CONTEXTS
        for line, held in yields_under(function)
        if set(held) - SAFE
    ]


def checking_asserts(tree: ast.AST) -> list[str]:
    """Return the asserts that do more than tell a type checker what a value is; -O would take them away."""
    return [
        f"line {node.lineno}: assert {ast.unparse(node.test)}; raise an error instead"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and not _narrows(node.test)
    ]


def _narrows(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot) and ast.unparse(test.comparators[0]) == "None"
    return isinstance(test, ast.Call) and named(test) == "isinstance"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_shape_of_a_file(path: Path) -> None:
    """Files, functions and comments stay small, and nothing yields inside a scope."""
    text = path.read_text()
    tree = ast.parse(text)
    problems = []
    if len(text.splitlines()) > MOST_LINES:
        problems.append(f"{len(text.splitlines())} lines; look for the missing idea above {MOST_LINES}")
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MOST_FUNCTION_LINES and not _mostly_signature(function):
            problems.append(f"line {function.lineno}: {function.name} has {length} lines")
    problems += open_scopes(tree)
    if path.relative_to(SRC).parts[0] != "testing":
        problems += checking_asserts(tree)
    assert not problems, "\n".join(problems)


def _mostly_signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A constructor of many documented keywords is long without being complicated."""
    first = function.body[0].lineno
    return (function.end_lineno or first) - first + 1 <= MOST_FUNCTION_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_comments_and_places(path: Path) -> None:
    """Comments are short, and nothing of a machine is in the source."""
    text = path.read_text()
    run = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            run += 1
            assert run <= MOST_COMMENT_LINES, (
                f"line {token.start[0]}: a comment of more than {MOST_COMMENT_LINES} lines"
            )
        elif token.type not in (tokenize.NL, tokenize.COMMENT):
            run = 0
    assert not PLACES.search(text)
    if "cli" not in path.relative_to(SRC).parts:
        calls = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and named(node.func) == "print"
        ]
        assert not calls, f"print on line {calls[0].lineno}"


@pytest.mark.parametrize(
    "body",
    [
        "async with timeout(1):\n        yield",
        "async with aclosing(s):\n        async with timeout(1):\n            yield",
        "async with aclosing(s), timeout(1):\n        async for x in s:\n            yield x",
        "with scope():\n        if a:\n            b = yield",
        "try:\n        pass\n    finally:\n        with scope():\n            yield",
    ],
)
def test_an_open_scope_around_a_yield_is_found(body: str) -> None:
    """The reader of syntax trees sees a scope at any depth, and none where only generators are closed."""
    assert len(open_scopes(ast.parse(f"async def f():\n    {body}"))) == 1
    assert not open_scopes(
        ast.parse("async def f():\n    async with aclosing(s):\n        async for x in s:\n            yield x")
    )
    assert not open_scopes(ast.parse("async def f():\n    async with scope():\n        def g():\n            yield"))


def test_an_assert_that_checks_input_is_found() -> None:
    """Asserts may narrow a type, and nothing else."""
    assert len(checking_asserts(ast.parse("assert n > 0\nassert x is None\nassert name"))) == 3
    assert not checking_asserts(ast.parse("assert x is not None\nassert isinstance(x, dict)"))
