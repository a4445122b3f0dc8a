"""No float takes part in money: whatever in its path could make one is a time, or is named here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentkit

ROOT = Path(agentkit.__file__).parent
PATH = (
    *sorted(ROOT.glob("catalog/*.py")),
    *sorted(ROOT.glob("core/runtime/metering/*.py")),
    *sorted(ROOT.glob("stores/ledger*.py")),
    *(ROOT / f"core/contracts/{name}.py" for name in ("pricing", "money", "usage", "ledger")),
    ROOT / "durable/ledger.py",
    ROOT / "middleware/meter.py",
)
TIMES = frozenset(
    "at began clock closed_until duration elapsed lease max_duration max_wait max_wall_seconds now patience seconds "
    "timeout tokens_until until window _started".split()
)
ALLOWED = {
    "is shown": {
        "core/runtime/metering/standing.py": {"BudgetStanding.spent_usd", "BudgetStanding.remaining_usd"},
        "core/runtime/metering/actor_budget.py": {"ActorBudget.remaining_cost_usd"},
    },
    "enters by its spelling": {"core/contracts/money.py": {"", "_parse"}},
    "is a share of tokens or a likeness of names": {
        "catalog/prices.py": {"PriceTable.nearest"},
        "core/runtime/metering/account.py": {"RunAccount.likely_output"},
    },
    "is a path": {"catalog/capabilities.py": {""}, "catalog/snapshot.py": {""}},
    "is seconds": {
        "core/runtime/metering/actor_budget.py": {
            "",
            "ActorBudget.max_wall_seconds",
            "ActorBudget.remaining_wall_seconds",
        },
        "core/runtime/metering/standing.py": {
            "BudgetStanding._elapsed",
            "BudgetStanding._crossed",
            "BudgetStanding.__init__",
        },
        "core/runtime/metering/feedback.py": {"Feedback.until", "_Said.until"},
        "core/runtime/metering/ledgered.py": {"", "begin", "_admitted", "_lease"},
        "core/runtime/metering/quota.py": {"Quota.__init__"},
        "core/runtime/metering/local.py": {"LocalWindows._look_again"},
        "core/runtime/metering/remote.py": {"RemoteWindows._opened", "RemoteWindows._wait"},
        "core/runtime/metering/windows.py": {"", "latest"},
    },
}


def floats(tree: ast.AST, scope: tuple[str, ...] = ()) -> Iterator[tuple[str, int, str]]:
    """Yield where, in which line and how a float may come into being, but for annotations and defaults of times."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in TIMES:
            continue
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.target.attr in TIMES:
            continue
        if isinstance(node, ast.arg) and node.arg in TIMES:
            continue
        if isinstance(node, ast.arguments):
            node = _without_times(node)
        inside = scope
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = (*scope, node.name)
        if (how := _float(node)) is not None:
            yield ".".join(inside), node.lineno, how  # type: ignore[attr-defined]
        yield from floats(node, inside)


def _without_times(given: ast.arguments) -> ast.arguments:
    """Return the parameters without the defaults of times."""
    named = [*given.posonlyargs, *given.args]
    defaults = zip(named[len(named) - len(given.defaults) :], given.defaults, strict=True)
    return ast.arguments(
        posonlyargs=given.posonlyargs,
        args=given.args,
        vararg=given.vararg,
        kwonlyargs=given.kwonlyargs,
        kw_defaults=[
            None if name.arg in TIMES else default
            for name, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ],
        kwarg=given.kwarg,
        defaults=[default for name, default in defaults if name.arg not in TIMES],
    )


def _float(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (float, complex)):
        return f"the literal {node.value}"
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
        return "a true division"
    if isinstance(node, ast.Name) and node.id in ("float", "round"):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("math", "statistics"):
        return f"{node.value.id}.{node.attr}"
    return None


@pytest.mark.parametrize("file", PATH, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_float_in_the_path_of_money(file: Path) -> None:
    """Literals, `float`, true divisions and `math` appear only where the list says why they are no money."""
    name = str(file.relative_to(ROOT))
    allowed = {scope for files in ALLOWED.values() for scope in files.get(name, ())}
    found = list(floats(ast.parse(file.read_text("utf-8"))))
    assert [place for place in found if place[0] not in allowed] == []


@pytest.mark.parametrize("line", ["x = 0.5", "x = a / b", "x = float(a)", "x /= 2", "def f(price: float): ...", "math.ceil(x)", "round(x)"])  # fmt: skip
def test_the_reader_sees_every_kind(line: str) -> None:
    """What the test above looks for is found; times are left alone."""
    assert list(floats(ast.parse(line)))
    assert not list(floats(ast.parse("def f(lease: float = 600.0, *, until: float = 0.5): ...\nnow: float = 0.0")))
