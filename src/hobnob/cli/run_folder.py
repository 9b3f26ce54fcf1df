"""A run's folder: its configuration, its checkpoint and its results.

config.toml, versions.json and command.txt are written at the start and the checkpoint during the
run. history.csv, final.npz, result.json and report.html are written when it ends or is stopped. In
the folder of a run across owners, federation.toml takes the place of config.toml.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hobnob.ground.errors import CheckpointError, ConfigError, DivergenceError
from hobnob.ground.files import write_whole

if TYPE_CHECKING:
    from hobnob.core.problem import Problem
    from hobnob.core.setup import Runtime
    from hobnob.run.result import Result
    from hobnob.run.store import Resume

CONFIG, VERSIONS, COMMAND = "config.toml", "versions.json", "command.txt"
FEDERATION = "federation.toml"
HISTORY, FINAL, RESULT, REPORT = "history.csv", "final.npz", "result.json", "report.html"
BESIDE = "beside"  # the folder of the second algorithm's checkpoint, and the start of its history


def create(folder: Path | None, settings: dict[str, Any]) -> Path:
    """A new folder with the configuration in it."""
    folder = folder or next_number(Path("runs"))
    if (folder / CONFIG).exists():
        raise ConfigError(
            f"{folder} already holds a run. Go on with it by `hobnob resume {folder}`, or choose "
            f"another folder."
        )
    _write_settings(folder, settings)
    write_versions(folder)
    return folder


def change(folder: Path, changes: list[str]) -> None:
    """Apply --set to the configuration of an existing run."""
    from hobnob.cli import config

    _check_exists(folder)
    if changes:
        _write_settings(folder, config.read(folder / CONFIG, changes))


def execute(
    folder: Path,
    command: str,
    *,
    resume: Resume = False,
    progress: bool | None = None,
    runtime: Runtime | None = None,
) -> Result:
    """Run or resume the folder's configuration and write the results.

    With several processes, the leader writes.
    """
    from hobnob.cli import config
    from hobnob.run.solve import solve

    _check_exists(folder)
    leads = runtime is None or runtime.leads
    if command and leads:
        write_whole(folder / COMMAND, command.encode())
    job = config.build(config.read(folder / CONFIG))
    options = {**job.options, "resume": resume, "progress": progress, "runtime": runtime}
    beside = None
    try:
        result = solve(job.problem, job.network, job.algorithm, **options, checkpoint=folder)
        if job.beside is not None and result.status != "interrupted":
            options["checkpoint"] = folder / BESIDE
            beside = solve(job.problem, job.network, job.beside, **options)
            if beside.status == "interrupted":
                result = replace(result, status="interrupted", message=beside.message)
    except DivergenceError as error:
        if not leads:
            raise
        write_history(folder / HISTORY, error.history, job.options.get("seed"))
        error.args = (f"{error} On the command line: hobnob resume {folder} --set KEY=VALUE.",)
        facts = {"title": job.problem.name, "status": "diverged", "message": str(error)}
        write_whole(folder / RESULT, json.dumps({**facts, "table": []}, indent=2).encode())
        raise
    if leads:
        problem = job.problem.loaded() if runtime is None else job.problem
        write_result(folder, problem, result, beside)
    return result


def show(folder: Path) -> None:
    """Print a summary of a run, finished or not."""
    from rich.console import Console
    from rich.table import Table

    across = (folder / FEDERATION).is_file()
    if not across:
        _check_exists(folder)
    go_on = f"Go on with: {command_of(folder) if across else f'hobnob resume {folder}'}"
    console = Console(highlight=False)
    if not (folder / RESULT).exists():
        console.print(f"{folder}: not finished. {go_on}", soft_wrap=True)
        return
    result = json.loads((folder / RESULT).read_text())
    table = Table(title=result["title"], title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    columns = list(result["table"][0])[1:] if result["table"] else []
    for name in columns:
        table.add_column(name if len(columns) > 1 else "", justify="right")
    for row in result["table"]:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    if result.get("choice"):
        console.print(result["choice"])
    console.print(result["message"])
    if result["status"] == "interrupted":
        console.print(go_on, soft_wrap=True)
    if result["status"] != "diverged":
        console.print(f"Report: {(folder / REPORT).resolve()}", soft_wrap=True)


def write_result(
    folder: Path, problem: Problem, result: Result, beside: Result | None = None
) -> None:
    """History, arrays, page and summary of a run in this process."""
    from hobnob.report.run_page import run_page
    from hobnob.run.summary import summarise

    write_history(folder / HISTORY, result.history, result.settings["seed"])
    if beside is not None:
        where = folder / f"{BESIDE}-{HISTORY}"
        write_history(where, beside.history, beside.settings["seed"])
    write_arrays(folder, result)
    summary = summarise(problem, result, beside)
    run_page(folder / REPORT, summary, versions_of(folder), command_of(folder))
    content = {
        "title": summary.title,
        "status": result.status,
        "choice": result.choice,
        "message": result.message.removesuffix(result.advice).strip(),
        "steps": result.steps,
        "table": summary.table,
        "compile_seconds": result.compile_seconds,
    }
    write_whole(folder / RESULT, json.dumps(content, indent=2, default=float).encode())


def write_arrays(folder: Path, result: Result) -> None:
    """final.npz: x and y, the mean and every agent's own."""
    import jax
    import numpy as np

    leaves = {}
    for name, tree in {"x": result.x, "y": result.y, "agents": result.agents}.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            leaves[name + jax.tree_util.keystr(path)] = leaf
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **leaves)
    write_whole(folder / FINAL, archive.getvalue())


def write_versions(folder: Path) -> None:
    from hobnob.ground.versions import of_everything

    write_whole(folder / VERSIONS, json.dumps(of_everything(), indent=2).encode())


def versions_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / VERSIONS).read_text())


def command_of(folder: Path) -> str:
    return (folder / COMMAND).read_text() if (folder / COMMAND).exists() else ""


def write_history(path: Path, history: dict[str, Any], seeds: Any) -> None:
    """Write one row for each recorded step, with exact decimals of every number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = history["step"].ndim == 2
    writer.writerow([*(["seed"] if several else []), *history])
    for i in range(len(history["step"])) if several else [...]:
        columns = [values[i].tolist() for values in history.values()]
        lead = [[seeds[i] if seeds else i] * len(columns[0])] if several else []
        writer.writerows(zip(*lead, *columns, strict=True))
    write_whole(path, text.getvalue().encode())


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    import tomli_w

    write_whole(folder / CONFIG, tomli_w.dumps(settings).encode())


def next_number(parent: Path) -> Path:
    taken = [int(p.name) for p in parent.glob("[0-9]*") if p.name.isdigit()]
    return parent / f"{max(taken, default=0) + 1:04d}"


def _check_exists(folder: Path) -> None:
    if (folder / FEDERATION).is_file():
        raise CheckpointError(f"{folder} is a run across owners. Go on with: {command_of(folder)}")
    if not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} holds no run: there is no {CONFIG} in it.")
