"""A study's folder: its settings, its results and its page.

settings.json holds the settings and cells/ the results of each cell. report.html, results.csv and
pictures/ are written at the end. The same command in the same folder resumes the study.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hobnob.ground.cores import cpus
from hobnob.ground.errors import ConfigError
from hobnob.ground.files import write_whole
from hobnob.studies import pool
from hobnob.studies.cell import Cell, Found
from hobnob.studies.study import Report
from hobnob.studies.study_bar import StudyBar

REPORT, RESULTS, PICTURES, SETTINGS, CLOCK = (
    "report.html",
    "results.csv",
    "pictures",
    "settings.json",
    "seconds.json",
)


def flags(options: Mapping[str, Any]) -> str:
    """Options in the form of the command line."""
    text = ""
    for name, value in options.items():
        if value is True:
            text += f" --{name}"
        elif isinstance(value, tuple) and value:
            text += f" --{name} {' '.join(map(str, value))}"
        elif value not in (None, False, (), ""):
            text += f" --{name} {value}"
    return text


def slug(text: str) -> str:
    """A name for a folder, made of these words."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def claim(folder: Path, asked: Mapping[str, Any]) -> None:
    """Write the settings into the folder. Refuse a folder with other settings."""
    path = folder / SETTINGS
    text = json.dumps(asked, indent=2)
    if not path.exists():
        write_whole(path, text.encode())
        return
    there = json.loads(path.read_text())
    for key, value in json.loads(text).items():
        if there.get(key) != value:
            raise ConfigError(
                f"{folder} was begun with {key} = {there.get(key)!r}, and now it is {value!r}. "
                f"Choose another folder with --out, or remove this one."
            )


def measure(
    cells: Sequence[Cell], folder: Path, *, workers: int | None, progress: bool | None
) -> dict[str, Found] | None:
    """Measure what is missing and return all results, or None if Ctrl-C interrupted it.

    workers: how many processes; None: one a core, 0: measure in this process.
    """
    if workers is not None and workers < 0:
        raise ConfigError(f"--workers {workers} must be at least 0.")
    start = time.monotonic()
    with StudyBar(cells, progress) as bar:
        workers = len(cpus()) if workers is None else workers
        finished = pool.measure_all(cells, folder, workers, bar.update)
    write_whole(folder / CLOCK, json.dumps(_seconds(folder) + time.monotonic() - start).encode())
    return pool.read_all(cells, folder) if finished else None


def show(report: Report, folder: Path) -> None:
    """Print the table, the verdict and the path of the page."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=report.title, title_justify="left", box=None, pad_edge=False)
    for column, value in (report.table[0] if report.table else {}).items():
        table.add_column(column, justify="right" if isinstance(value, int | float) else "left")
    for row in report.table:
        table.add_row(*map(_cell, row.values()))
    console.print(table)
    console.print(report.verdict)
    console.print(f"Report: {(folder / REPORT).resolve()}", soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _seconds(folder: Path) -> float:
    """How long the study has run so far, without interruptions."""
    path = folder / CLOCK
    return json.loads(path.read_text()) if path.exists() else 0.0


def write(folder: Path, report: Report, command: str) -> Path:
    """Write the page, its pictures and all numbers; remove the checkpoints."""
    from hobnob.ground.versions import of_everything
    from hobnob.report.page import write_page
    from hobnob.report.picture import to_csv

    for picture in report.pictures():
        picture.save(folder / PICTURES)
    columns = list(dict.fromkeys(column for row in report.rows for column in row))
    rows = ([row.get(column, "") for column in columns] for row in report.rows)
    write_whole(folder / RESULTS, to_csv(columns, rows).encode())
    took = {"measured in": f"{_seconds(folder) / 60:.1f} minutes on {os.cpu_count()} cores"}
    page = write_page(
        folder / REPORT,
        title=report.title,
        lead=report.lead,
        verdict=report.verdict,
        tone=report.tone,
        table=report.table,
        sections=report.sections,
        settings={**report.settings, **took},
        versions=of_everything(),
        command=command,
    )
    shutil.rmtree(folder / "under-way", ignore_errors=True)
    shutil.rmtree(folder / "compiled", ignore_errors=True)
    return page
