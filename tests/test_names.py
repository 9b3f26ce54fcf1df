"""A name means one thing: no two classes and no two files of the package share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import hobnob

ROOT = Path(hobnob.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
EXCEPTIONS = {"run"}  # run/run.py holds Run, what the room is about


def repeated(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that several files have, each with these files."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in named:
        found[name].append(str(path.relative_to(ROOT)))
    return {name: places for name, places in found.items() if len(places) > 1}


def classes(path: Path) -> list[str]:
    """The classes of a file. An algorithm's state is always called State, and is never imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    of_algorithm = path.parent.name == "algorithms"
    return [n for n in names if not n.startswith("_") and not (of_algorithm and n == "State")]


def test_class_names_are_unique() -> None:
    assert not repeated((name, path) for path in FILES for name in classes(path))


def test_file_names_are_unique() -> None:
    """A folder counts as a file of its name."""
    modules = [(path.stem, path) for path in FILES if path.stem != "__init__"]
    folders = [(path.parent.name, path.parent) for path in FILES if path.stem == "__init__"]
    assert set(repeated([*modules, *folders])) == EXCEPTIONS


def test_repeated_names_are_found() -> None:
    one, two = ROOT / "run" / "a.py", ROOT / "report" / "a.py"
    assert repeated([("A", one), ("B", one), ("A", two)]) == {"A": ["run/a.py", "report/a.py"]}
