"""Imports point one way, modules stay small, and slow imports stay where they are needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hobnob

ROOT = Path(hobnob.__file__).parent

# From the ground up. A module may import what is below it; the modules of one layer don't know
# each other, except on top. A folder is one part, `network.py` and `networks/` are one as well.
LAYERS = [
    {"compiler", "jaxprs"},
    {"threefry", "jacobian", "folding"},
    {"errors", "versions", "cores", "heap", "files"}
    | {"interrupt", "progress", "keys", "pytrees", "ledger"},
    {"registry", "schedules", "shards"},
    {"data", "agent", "algorithm"},
    {"problem", "inverse"},
    {"pooled", "compositional"},
    {"algorithms", "problems", "network"},
    {"record", "links", "estimates"},
    {"runtimes"},
    {"result", "loop"},
    {"choice"},
    {"solver"},
    {"report"},
    {"experiments"},
    {"cli", "config", "demo", "launch", "listing", "rundir", "__main__"},
]
TOP = len(LAYERS) - 1

# A notebook asks the result itself for its picture.
EXCEPTIONS = {("result", "report.card")}

# Pictures are drawn from plain arrays. Only these two know what a result is.
KNOW_RESULTS = {"report.run", "report.card"}

SLOW = {"matplotlib": {"report", "cli"}, "sklearn": {"problems", "cli"}}
LONGEST = 400  # lines


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT}
MODULES |= {path.stem: path for path in sorted(ROOT.glob("*.py")) if path.stem != "__init__"}


def part_of(module: str) -> str:
    first = module.split(".")[0]
    return "network" if first == "networks" else first


def layer_of(module: str) -> int:
    for number, layer in enumerate(LAYERS):
        if part_of(module) in layer:
            return number
    pytest.fail(
        f"hobnob.{module} belongs to no layer. Add {part_of(module)!r} to LAYERS in {__file__}, "
        f"above everything that it imports and below everything that imports it."
    )


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
    """What of these it may not import."""
    found = []
    for other in imported:
        if not other.startswith("hobnob.") or (module, other.removeprefix("hobnob.")) in EXCEPTIONS:
            continue
        other = other.removeprefix("hobnob.")
        if part_of(module) == part_of(other):
            continue
        here, there = layer_of(module), layer_of(other)
        if not (there < here or there == here == TOP):
            found.append(f"hobnob.{module} imports hobnob.{other}, which is not below it.")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    layer_of(module)
    assert not faults(module, [name for name, _ in imported_by(module)])


def test_a_layer_names_nothing_twice() -> None:
    parts = [part for layer in LAYERS for part in layer]
    assert len(parts) == len(set(parts))


def test_exceptions_are_used() -> None:
    for module, other in EXCEPTIONS:
        assert (f"hobnob.{other}", False) in imported_by(module), "strike it from EXCEPTIONS"


@pytest.mark.parametrize("module", [m for m in MODULES if part_of(m) == "report"])
def test_pictures_take_plain_arrays(module: str) -> None:
    if module in KNOW_RESULTS:
        return
    parts = {
        part_of(name.removeprefix("hobnob."))
        for name, _ in imported_by(module)
        if name.startswith("hobnob.")
    }
    assert parts <= {"report", "errors", "files", "versions"}


@pytest.mark.parametrize("module", MODULES)
def test_slow_imports_stay_where_they_are_needed(module: str) -> None:
    for name, top_level in imported_by(module):
        allowed = SLOW.get(name.split(".")[0])
        if allowed is not None and top_level:
            assert part_of(module) in allowed, f"hobnob.{module} imports {name} at module level"


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module: str) -> None:
    lines = len(MODULES[module].read_text().splitlines())
    assert lines <= LONGEST, f"hobnob.{module} has {lines} lines: it is doing two jobs"


def test_the_package_itself_imports_nothing() -> None:
    """Names are imported when they are first used."""
    text = (ROOT / "__init__.py").read_text()
    assert {name for name, _ in imports(text, "", True)} <= {"__future__", "importlib", "typing"}


# --- the test itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("algorithms.new", "from hobnob.problems import quadratic"),
        ("problems.new", "from hobnob import network"),
        ("networks.new", "from hobnob.algorithms.dsbo import DSBO"),
        ("problem", "from hobnob.analysis.exact import exact")(
            "data", "from .problem import Problem"
        ),
        ("record.view", "from .. import solver"),
        ("record.metrics.new", "from ...runtimes.simulate import Simulate"),
        ("algorithms.new", "def step():\n    import hobnob.run.solve"),
        ("pooled", "try:\n    import hobnob.cli.main\nexcept ImportError:\n    pass"),
    ],
)
def test_what_is_not_below_is_found(module: str, text: str) -> None:
    assert faults(module, [name for name, _ in imports(text, module, False)])


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("algorithms.new", "from hobnob.core.agent import Agent"),
        ("networks.lines", "from hobnob.core.network import Network"),
        ("record.view", "from ..problem import Problem"),
        ("agent", "if TYPE_CHECKING:\n    from hobnob.core.problem import Problem"),
        ("cli", "from hobnob.cli import config, solver"),
    ],
)
def test_what_is_below_is_fine(module: str, text: str) -> None:
    assert not faults(module, [name for name, _ in imports(text, module, False)])


def test_a_module_without_a_layer_is_told_where_to_go() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"hobnob\.new belongs to no layer\. Add 'new'"):
        layer_of("new")
