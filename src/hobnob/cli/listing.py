"""`hobnob list`: all registered algorithms, problems, networks and metrics."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass

from rich.console import Console
from rich.table import Table

from hobnob import algorithms, metrics, networks, problems


def print_all() -> None:
    console = Console()
    for title, registry in (
        ("algorithms", algorithms),
        ("problems", problems),
        ("networks", networks),
        ("metrics", metrics),
    ):
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=True)
        table.add_column("name", style="bold", no_wrap=True)
        table.add_column("what it is")
        if title != "metrics":
            table.add_column("options", style="dim")
        for name in registry.names():
            value = registry.get(name)
            row = [name, _first_sentence(value)]
            if title != "metrics":
                row.append(", ".join(inspect.signature(value).parameters))
            table.add_row(*row)
        console.print(table)
        console.print()


def _first_sentence(value: object) -> str:
    """From the module's docstring for an algorithm, from the function's own otherwise."""
    text = inspect.getmodule(value).__doc__ if is_dataclass(value) else inspect.getdoc(value)
    paragraph = (text or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).rstrip(".").split(". ")[0]
