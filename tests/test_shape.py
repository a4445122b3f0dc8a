"""How the source is written: sizes, and no yield where a scope would be left open."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "agentkit"
FILES = sorted(SRC.rglob("*.py"))
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_COMMENT_LINES = 5
ASSEMBLING_CONTEXTS = {"asynccontextmanager", "contextmanager"}
SAFE = {"aclosing", "closing", "suppress"}


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def named(node: ast.expr) -> str:
    """Return the last name of a call or attribute."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def yields_under(node: ast.AST, held: list[str]) -> list[tuple[int, list[str]]]:
    """Return each yield of one function with the scopes that are open around it."""
    found: list[tuple[int, list[str]]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, (ast.With, ast.AsyncWith)):
            inner = held + [named(item.context_expr) for item in child.items]
            for statement in child.body:
                found += yields_under(statement, inner)
                if isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Yield, ast.YieldFrom)):
                    found.append((statement.lineno, inner))
        else:
            if isinstance(child, (ast.Yield, ast.YieldFrom)):
                found.append((child.lineno, held))
            found += yields_under(child, held)
    return found


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
        if {named(decorator) for decorator in function.decorator_list} & ASSEMBLING_CONTEXTS:
            continue
        for line, held in yields_under(function, []):
            if set(held) - SAFE:
                problems.append(f"line {line}: yield inside {', '.join(held)}")
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
    assert not re.search(r"/work/|/tmp/|/root/|\bTODO\b|\bFIXME\b", text)
    if "cli" not in path.relative_to(SRC).parts:
        calls = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and named(node.func) == "print"
        ]
        assert not calls, f"print on line {calls[0].lineno}"
