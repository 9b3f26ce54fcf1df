"""The house: its rooms, which way imports point, and what is allowed where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hobnob

ROOT = Path(hobnob.__file__).parent
DOCS = ROOT.parents[1] / "docs"

# From the ground up. A room knows the rooms before it and none after it.
ROOMS = [
    "ground",
    "core",
    "algorithms",
    "networks",
    "analysis",
    "problems",
    "metrics",
    "fast",
    "runtimes",
    "run",
    "testing",
    "report",
    "studies",
    "cli",
]

# A notebook asks the result itself for its picture.
EXCEPTIONS = {("run.result", "report.card")}

SLOW = {"matplotlib": {"report", "cli"}, "sklearn": {"problems", "cli"}}
LONGEST = 400  # lines of a module
FULLEST = 15  # files of a room, the catalogue of algorithms aside


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT}


def room_of(module: str) -> int:
    return ROOMS.index(module.split(".")[0])


def at_run_time(node: ast.AST, top_level: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """The import statements, and whether they run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, top_level
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from at_run_time(other, top_level)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from at_run_time(child, top_level and not inside)


def imports(text: str, module: str, is_package: bool) -> Iterator[tuple[str, bool]]:
    """(absolute name, whether at module level), down to the module that holds a name."""
    package = ["hobnob", *module.split(".")][: None if is_package else -1]
    for statement, top_level in at_run_time(ast.parse(text)):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, top_level
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                near = package[: len(package) - statement.level + 1]
                base = ".".join([*near, base] if base else near)
            for alias in statement.names:
                inner = f"{base}.{alias.name}".removeprefix("hobnob.")
                yield (f"{base}.{alias.name}" if inner in MODULES else base), top_level


def imported_by(module: str) -> list[tuple[str, bool]]:
    path = MODULES[module]
    return list(imports(path.read_text(), module, path.name == "__init__.py"))


def faults(module: str, imported: list[str]) -> list[str]:
    """The imports that point the wrong way."""
    found = []
    for name in imported:
        other = name.removeprefix("hobnob.")
        if not name.startswith("hobnob.") or (module, other) in EXCEPTIONS:
            continue
        if room_of(other) > room_of(module):
            found.append(f"hobnob.{module} imports hobnob.{other}, which comes after it.")
        if room_of(module) != room_of(other) and other.startswith("fast."):
            found.append(f"hobnob.{module} imports hobnob.{other} past the door, hobnob.fast.")
    return found


def test_the_list_of_rooms_is_the_list_of_folders() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert sorted(ROOMS) == sorted(folders)
    assert not [path.name for path in ROOT.glob("*.py") if path.name != "__init__.py"]


def test_the_picture_of_the_house_shows_these_rooms() -> None:
    (page,) = DOCS.rglob("design.md")
    picture = re.search(r"^    src/hobnob/\n((?:      .*\n)+)", page.read_text(), re.MULTILINE)
    assert picture, "docs/explanation/design.md has no picture of the house"
    shown = re.findall(r"^      (\w+)/", picture[1], re.MULTILINE)
    assert shown == ROOMS


def test_imports_point_one_way() -> None:
    found = [f for m in MODULES for f in faults(m, [name for name, _ in imported_by(m)])]
    assert not found, "\n".join(found)


def test_exceptions_are_used() -> None:
    for module, other in EXCEPTIONS:
        assert (f"hobnob.{other}", False) in imported_by(module), "strike it from EXCEPTIONS"


def test_slow_imports_stay_where_they_are_needed() -> None:
    for module in MODULES:
        for name, top_level in imported_by(module):
            allowed = SLOW.get(name.split(".")[0])
            if allowed is not None and top_level:
                assert module.split(".")[0] in allowed, f"{module} imports {name} at module level"


# What only fast/ may know: XLA's options, memory layouts, jaxprs and what is private to JAX.
PRIVATE = r"jax\._src|jax\.extend|jax\.experimental\.layout|jax\.interpreters|jaxpr|xla_\w+|mallopt"
XLA = r"jax\._src|jax\.extend|jax\.experimental\.layout|jax\.interpreters|xla_\w+"


def test_what_is_private_to_jax_is_in_one_module() -> None:
    for module, path in MODULES.items():
        allowed = module.startswith("fast.")
        found = re.findall(PRIVATE if not allowed else XLA, path.read_text())
        assert not found or module == "fast.xla", f"{module}: {found}"


def test_no_algorithm_is_known_by_name_in_a_run_or_a_runtime() -> None:
    for module in MODULES:
        if module.split(".")[0] in ("run", "runtimes"):
            known = [n for n, _ in imported_by(module) if n.startswith("hobnob.algorithms")]
            assert not known, f"{module}: {known}"


def test_modules_stay_small() -> None:
    lines = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    long = {module: count for module, count in lines.items() if count > LONGEST}
    assert not long, "these do two jobs"


def test_rooms_stay_small() -> None:
    for folder in {path.parent for path in MODULES.values()} - {ROOT / "algorithms"}:
        assert len(list(folder.glob("*.py"))) <= FULLEST, folder


def test_the_package_itself_imports_nothing() -> None:
    """A name is imported when it is first used."""
    text = (ROOT / "__init__.py").read_text()
    assert {name for name, _ in imports(text, "", True)} <= {"__future__", "importlib", "typing"}


# --- the test itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("algorithms.new", "from hobnob.problems import quadratic"),
        ("core.problem", "from hobnob.analysis.exact import exact"),
        ("core.data", "from ..networks.lines import ring"),
        ("metrics.view", "from .. import run"),
        ("algorithms.new", "def step():\n    import hobnob.run.solve"),
        ("analysis.exact", "try:\n    import hobnob.cli.main\nexcept ImportError:\n    pass"),
        ("runtimes.simulate.rows", "from hobnob.fast.xla import compiler_options"),
    ],
)
def test_a_wrong_import_is_found(module: str, text: str) -> None:
    assert faults(module, [name for name, _ in imports(text, module, False)])


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("algorithms.new", "from hobnob.core.agent import Agent"),
        ("metrics.view", "from ..core.problem import Problem"),
        ("core.agent", "if TYPE_CHECKING:\n    from hobnob.run.run import Run"),
        ("run.run", "from hobnob import fast\nfrom hobnob.fast import StateLayout"),
        ("cli.main", "from hobnob.cli import config"),
    ],
)
def test_a_right_import_is_fine(module: str, text: str) -> None:
    assert not faults(module, [name for name, _ in imports(text, module, False)])
