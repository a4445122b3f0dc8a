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


def imports(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Yield each import of ours: module, line, and whether it stands inside a function."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside.update(ast.walk(node))
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            modules = [base] if node.level or room_of(base) else [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            if module.startswith(".") or module.split(".")[0] == "agentkit":
                yield module, node.lineno, node in inside


def wrong_imports(source: str, own: str) -> list[str]:
    """Return what a file of this room imports and may not."""
    wrong = []
    for module, line, hidden in imports(ast.parse(source)):
        other = room_of(module)
        if module.startswith("."):
            wrong.append(f"line {line}: relative import; write the whole name")
        elif other is None:
            if module != "agentkit.__version__":
                wrong.append(f"line {line}: {module} comes through the front door, which hides its room")
        elif hidden and own not in LAZY_ROOMS:
            wrong.append(f"line {line}: {module} is imported inside a function; only calls and cli may")
        elif other != own and FLOORS[other] >= FLOORS[own] and (own, other) != ("core.contracts", "errors"):
            wrong.append(f"line {line}: {own} (floor {FLOORS[own]}) imports {module} (floor {FLOORS[other]})")
    return wrong


def room_of_file(path: Path) -> str | None:
    """Return the room a file lies in."""
    return room_of("agentkit." + ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_only_lower_floors(path: Path) -> None:
    """A file imports its own room and lower floors, nothing beside or above."""
    own = room_of_file(path)
    if path in LAZY_FRONTS or own is None:
        return
    wrong = wrong_imports(path.read_text(), own)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted(LAZY_FRONTS), ids=lambda path: str(path.relative_to(SRC)))
def test_lazy_fronts_load_nothing_above_them(path: Path) -> None:
    """The two fronts name higher rooms for type checkers only: at import they load none."""
    tree = ast.parse(path.read_text())
    typed = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    own = room_of_file(path)
    at_import = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) and node not in typed]
    for node in at_import:
        for module, line, _ in imports(ast.Module([node], [])):
            other = room_of(module)
            assert own is not None and other is not None and FLOORS[other] <= FLOORS[own], f"line {line}: {module}"


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ("core.contracts", "from agentkit.core.runtime import Budget"),
        ("middleware", "from agentkit.providers import scripted"),
        ("middleware", "import agentkit.stores.sqlite"),
        ("catalog", "from agentkit.schema import Output"),
        ("errors", "from agentkit.core.contracts import Usage"),
        ("cognition", "if TYPE_CHECKING:\n    from agentkit.calls import Answer"),
        ("durable", "def f():\n    from agentkit.errors import StoreError"),
        ("tools", "from agentkit import ask"),
        ("tools", "from agentkit.core import runtime, nothing"),
        ("tools", "from .tool import tool"),
        ("calls", "def f():\n    from agentkit.agents import Agent"),
    ],
)
def test_a_wrong_import_is_found(own: str, source: str) -> None:
    """Imports beside or above, for types, inside functions, relative or through the front door are found."""
    assert wrong_imports(source, own)


def test_a_right_import_is_let_through() -> None:
    """Own room, lower floors, other packages, and inside functions where the design says so."""
    assert not wrong_imports(
        "import msgspec\nfrom agentkit.errors import ToolError\nfrom agentkit.tools import tool", "tools"
    )
    assert not wrong_imports("def f():\n    from agentkit.providers import scripted", "calls")
    assert not wrong_imports("from agentkit.errors import MoneyPrecisionError", "core.contracts")


def test_every_file_has_a_room() -> None:
    """A new folder needs a floor before it gets code."""
    known = {"__init__.py", "core/__init__.py"}
    homeless = [
        str(path.relative_to(SRC))
        for path in FILES
        if str(path.relative_to(SRC)) not in known and room_of_file(path) is None
    ]
    assert not homeless
