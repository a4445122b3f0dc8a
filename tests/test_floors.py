"""Which room may import which: own room and lower floors, also for types and inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "agentkit"
FLOORS = {
    "errors": 0,
    "core.contracts": 0,
    "catalog": 1,
    "schema": 1,
    "core.runtime": 2,
    "middleware": 3,
    "providers": 3,
    "stores": 3,
    "tools": 3,
    "observe": 3,
    "durable": 3,
    "cognition": 4,
    "calls": 5,
    "agents": 6,
    "runs": 7,
    "integrations": 7,
    "testing": 8,
    "cli": 8,
}
LAZY_FRONTS = {SRC / "__init__.py", SRC / "core" / "runtime" / "__init__.py"}
LAZY_ROOMS = {"calls", "cli"}
FILES = sorted(SRC.rglob("*.py"))


def room_of(module: str) -> str | None:
    """Return the room a module of ours belongs to."""
    rest = module.removeprefix("agentkit").lstrip(".")
    for room in sorted(FLOORS, key=len, reverse=True):
        if rest == room or rest.startswith(room + "."):
            return room
    return None


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Yield each import of ours: module, line, and whether it stands inside a function."""
    tree = ast.parse(path.read_text())
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "agentkit":
            modules = [node.module]
            if room_of(node.module) is None:
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            for module in modules:
                yield module, node.lineno, node in inside
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "agentkit":
                    yield alias.name, node.lineno, node in inside
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}:{node.lineno}: relative import; write the whole name")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_only_lower_floors(path: Path) -> None:
    """A file imports its own room and lower floors, nothing beside or above."""
    own = room_of("agentkit." + ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"))
    wrong = []
    for module, line, hidden in imports(path):
        other = room_of(module)
        if path in LAZY_FRONTS or other is None or own is None:
            continue
        if other == own:
            if hidden and own not in LAZY_ROOMS:
                wrong.append(f"line {line}: {module} is imported inside a function, which hides a ring")
            continue
        if FLOORS[other] >= FLOORS[own] and not (own == "core.contracts" and other == "errors"):
            wrong.append(f"line {line}: {own} (floor {FLOORS[own]}) imports {module} (floor {FLOORS[other]})")
        elif hidden and own not in LAZY_ROOMS:
            wrong.append(f"line {line}: {module} is imported inside a function; only calls and cli may")
    assert not wrong, "\n".join(wrong)


def test_every_file_has_a_room() -> None:
    """A new folder needs a floor before it gets code."""
    known = {"__init__.py", "core/__init__.py"}
    homeless = [
        str(path.relative_to(SRC))
        for path in FILES
        if str(path.relative_to(SRC)) not in known
        and room_of("agentkit." + ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"))
        is None
    ]
    assert not homeless
