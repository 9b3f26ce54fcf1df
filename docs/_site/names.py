"""Which page of the reference has which public name, and what it says there.

A page says where its names go with `<!-- names -->`, and the index with `<!-- all names -->`. All
names come from `hobnob.__all__`: a new one finds its page by the folder that it lives in. The
commands come from the command line's own help.
"""

from __future__ import annotations

import inspect
import io
import os
import re
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import hobnob as hb
from hobnob.cli.main import main

REFERENCE = Path(__file__).parents[1] / "reference"

# The first folder or file on the way to a name that is listed here decides.
HOMES = {
    "problems": ("problems", "problem", "compositional", "data"),
    "networks": ("networks", "network", "links", "channels"),
    "algorithms": ("algorithms",),
    "schedules": ("schedules",),
    "runs": ("run", "runtimes", "metrics", "record", "result", "solver"),
    "analysis": ("analysis", "pooled", "choice", "studies", "experiments"),
    "own-algorithms": ("agent", "algorithm", "fields", "testing"),
    "errors": ("errors",),
}
PAGE_OF = {part: page for page, parts in HOMES.items() for part in parts}
OTHERWISE = "runs"

# What comes first on its page; the rest follows in the order of the alphabet.
FIRST = [
    "Problem",
    "Network",
    "solve",
    "Result",
    "optimum",
    "DSBO",
    "Algorithm",
    "Agent",
    "HobnobError",
]

# Helpers of the library in modules that are public.
INTERNAL = {"all_values", "bound", "metric", "available"}

# Which members of a class a user needs, where others are for the library; of other classes, all.
MEMBERS = {
    "Algorithm": ("init", "step", "suggest", "check_fits", "explain_divergence"),
    "Compositional": (),
    "Cut": (),
    "Drop": (),
    "Mpi": ("rank", "leads"),
    "Problem": ("size", "dim_x", "dim_y"),
    "Records": (),
    "Silent": (),
    "Simulate": (),
    "Simulator": (),
}


def page_of(name: str) -> str:
    value = getattr(hb, name)
    path = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return next((PAGE_OF[part] for part in path.split(".") if part in PAGE_OF), OTHERWISE)


def on_page(page: str) -> list[str]:
    """Its names: the main ones first, modules last."""

    def place(name: str) -> tuple[int, str]:
        if name in FIRST:
            return FIRST.index(name), ""
        return len(FIRST) + isinstance(getattr(hb, name), ModuleType), name.lower()

    return sorted((name for name in hb.__all__ if page_of(name) == page), key=place)


def title_of(name: str) -> str:
    """A module's page often has its name already."""
    return f"hb.{name}" if isinstance(getattr(hb, name), ModuleType) else name


def linked(code: str) -> str | None:
    """A reference to a public name, for a piece of code that is one.

    `exact` alone may be a setting of an algorithm; `hb.exact` and `Network` are what they seem.
    """
    name = code.removeprefix("hobnob.").removeprefix("hb.")
    known = name in hb.__all__ and (name != code or name[0].isupper())
    return f":py:obj:`{code} <hobnob.{name}>`" if known else None


def expand(page: str, text: str) -> str:
    if page == "index":
        return text.replace("<!-- all names -->", _index())
    if page == "command-line":
        return text.replace("<!-- commands -->", _commands())
    made = _algorithms() if page == "algorithms" else "\n".join(map(_section, on_page(page)))
    return text.replace("<!-- names -->", made)


def _index() -> str:
    rows = []
    for page in HOMES:
        title = re.search(r"^# (.*)$", (REFERENCE / f"{page}.md").read_text(), re.MULTILINE)
        assert title is not None
        links = ", ".join(
            f"[`{name}`]({page}.md#{title_of(name).lower().replace('.', '')})"
            for name in on_page(page)
        )
        rows.append(f"| [{title[1]}]({page}.md) | {links} |")
    return "\n".join(["| page | names |", "|---|---|", *rows])


def _commands() -> str:
    return "\n".join([_console(_help("--help")), *_below()])


def _below(*words: str) -> list[str]:
    """A section for every command under these words."""
    found = re.findall(r"^    (\w+)(?:  |$)", _help(*words, "--help"), re.MULTILINE)
    parts = []
    for path in ((*words, name) for name in found):
        parts.append(f"## hobnob {' '.join(path)}\n\n{_console(_help(*path, '--help'))}")
        parts += _below(*path)
    return parts


def _help(*arguments: str) -> str:
    out = io.StringIO()
    same_everywhere = patch.dict(os.environ, COLUMNS="80")
    with same_everywhere, redirect_stdout(out), suppress(SystemExit):
        main(arguments)
    return out.getvalue()


def _console(text: str) -> str:
    return f"```console\n{text.rstrip()}\n```\n"


def _algorithms() -> str:
    classes = [(name, getattr(hb, name)) for name in on_page("algorithms")]
    groups: dict[str, list[str]] = {"For any network": [], "With a server": [], "For one agent": []}
    modules = []
    for name, value in classes:
        if isinstance(value, ModuleType):
            modules.append(name)
        elif value.single_agent:
            groups["For one agent"].append(name)
        else:
            groups["With a server" if value.server else "For any network"].append(name)
    parts = []
    for title, members in groups.items():
        parts += [f"## {title}\n", *(_section(name, "###") for name in members)]
    return "\n".join([*parts, *map(_section, modules)])


def _section(name: str, level: str = "##") -> str:
    value = getattr(hb, name)
    if isinstance(value, ModuleType):
        described = _module(name, value)
    elif inspect.isclass(value):
        described = _class(name, value)
    else:
        described = _rst(f".. autofunction:: hobnob.{name}")
    return f"{level} {title_of(name)}\n\n{described}\n{_example(name)}"


def _class(name: str, value: type) -> str:
    alone = issubclass(value, tuple | Exception) or "algorithms" in value.__module__.split(".")
    if alone:
        return _rst(f".. autoclass:: hobnob.{name}")
    wanted = [m for m in MEMBERS.get(name, ()) if hasattr(value, m)]
    members = [f"   :members: {', '.join(wanted)}"] if wanted or name not in MEMBERS else []
    if name in ("Agent", "Problem", "View"):
        members.append("   :undoc-members:")  # x0, dim_x and the like speak for themselves
    return _rst(f".. autoclass:: hobnob.{name}", *members)


def _module(name: str, module: ModuleType) -> str:
    """Its docstring, and what it offers: what is registered, or functions and then classes."""
    registered = [module.get(n) for n in module.names()] if hasattr(module, "names") else []
    own = [getattr(module, n) for n in getattr(module, "__all__", vars(module)) if n[0] != "_"]
    lines = [f".. automodule:: {module.__name__}", ""]
    for value in registered or sorted(own, key=inspect.isclass):
        here = getattr(value, "__module__", "").startswith(module.__name__)
        if not here or not value.__doc__ or value.__name__ in INTERNAL or value in _public():
            continue
        short = getattr(module, value.__name__, None) is value
        path = f"hobnob.{name}" if short else value.__module__
        kind = "class" if inspect.isclass(value) else "function"
        lines += [f".. auto{kind}:: {path}.{value.__name__}", ""]
    return _rst(*lines)


@cache
def _public() -> list[Any]:
    return [value for name in hb.__all__ if callable(value := getattr(hb, name))]


def _rst(*lines: str) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def _example(name: str) -> str:
    """That of examples.md, unless the docstring has its own."""
    text = "" if ">>> " in (getattr(hb, name).__doc__ or "") else examples().get(name, "")
    return f"```{{rubric}} Example\n```\n\n{text}\n" if text else ""


@cache
def examples() -> dict[str, str]:
    """The parts of examples.md, by the name that they are for."""
    text = (REFERENCE / "examples.md").read_text()
    parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}
