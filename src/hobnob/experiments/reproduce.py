"""reproduce: a study from its command to its page.

The folder holds what was asked for (settings.json), what each cell found (cells/), and at the end
report.html, results.csv and pictures/. The same command in the same folder goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import time
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from hobnob.errors import ConfigError
from hobnob.experiments import pool
from hobnob.experiments.progress import StudyBar
from hobnob.experiments.study import Options, Report, Study
from hobnob.files import write_whole

REPORT, RESULTS, PICTURES, SETTINGS, CLOCK = (
    "report.html",
    "results.csv",
    "pictures",
    "settings.json",
    "seconds.json",
)


def reproduce(
    name: str,
    options: Options,
    folder: Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    command: str = "",
) -> Report | None:
    """Measure what is missing in the folder and write the report; None where Ctrl-C came first."""
    study = cast(Study, importlib.import_module(f"hobnob.experiments.{name}"))
    _check_options(options)
    cells = study.plan(options)
    _claim_folder(folder, name, options)
    start = time.monotonic()
    with StudyBar(cells, progress) as bar:
        finished = pool.measure_all(cells, folder, workers or len(pool.cpus()), bar.tell)
    seconds = _add_seconds(folder, time.monotonic() - start)
    if not finished:
        return None
    report = study.report(options, pool.read_all(cells, folder))
    _write(folder, report, seconds, command)
    shutil.rmtree(folder / "under-way", ignore_errors=True)
    shutil.rmtree(folder / "compiled", ignore_errors=True)
    return report


def options_of(arguments: Any) -> Options:
    """What the command line says, as a study reads it."""
    asked = {field.name: getattr(arguments, field.name) for field in fields(Options)}
    return Options(**{**asked, "only": tuple(sorted(asked["only"]))})


def flags(options: Options) -> str:
    """The options as they are written on the command line."""
    text = ""
    for name, value in asdict(options).items():
        if value is True:
            text += f" --{name}"
        elif isinstance(value, tuple) and value:
            text += f" --{name} {' '.join(map(str, value))}"
        elif value not in (None, False, ()):
            text += f" --{name} {value}"
    return text


def folder_name(name: str, options: Options) -> str:
    """Where a study goes that was not told: one folder for what was asked."""
    parts = re.sub(r"[^\w.]+", "-", flags(options)).strip("-")
    return f"reproduce-{name}-{parts}".rstrip("-")


def show(report: Report, folder: Path) -> None:
    """Print the findings in short, and where the page is."""
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


def _check_options(options: Options) -> None:
    for name in ("sims", "steps"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value} must be at least 1.")
    named = options.data is None or not re.search(r"[/.]", options.data)
    if not named and not Path(str(options.data)).is_file():
        raise ConfigError(f"--data {options.data}: there is no such file.")


def _claim_folder(folder: Path, name: str, options: Options) -> None:
    """Write down what was asked for; a folder of something else is left alone."""
    asked: dict[str, Any] = {"study": name, **asdict(options), "only": list(options.only)}
    if options.data and Path(options.data).is_file():
        asked["data"] = sha256(Path(options.data).read_bytes()).hexdigest()
    path = folder / SETTINGS
    if not path.exists():
        write_whole(path, json.dumps(asked, indent=2).encode())
        return
    there = json.loads(path.read_text())
    for key, value in asked.items():
        if there.get(key) != value:
            raise ConfigError(
                f"{folder} was begun with {key} = {there.get(key)!r}, and now it is {value!r}. "
                f"Choose another folder with --out, or remove this one."
            )


def _add_seconds(folder: Path, seconds: float) -> float:
    """How long the study has taken by now, interruptions left out."""
    path = folder / CLOCK
    before = json.loads(path.read_text()) if path.exists() else 0.0
    write_whole(path, json.dumps(before + seconds).encode())
    return before + seconds


def _write(folder: Path, report: Report, seconds: float, command: str) -> None:
    from hobnob.report.page import Choice, write_page
    from hobnob.report.picture import to_csv
    from hobnob.versions import of_everything

    for section in report.sections:
        for item in section.pictures:
            for picture in item.pictures.values() if isinstance(item, Choice) else [item]:
                picture.save(folder / PICTURES)
    columns = list(dict.fromkeys(column for row in report.rows for column in row))
    rows = ([row.get(column, "") for column in columns] for row in report.rows)
    write_whole(folder / RESULTS, to_csv(columns, rows).encode())
    took = {"measured in": f"{seconds / 60:.1f} minutes on {os.cpu_count()} cores"}
    write_page(
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
