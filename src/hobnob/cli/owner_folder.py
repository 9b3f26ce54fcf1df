"""An owner's folder: its part of a run across owners, and a rehearsal of all of it.

federation.toml, versions.json and command.txt are written at the start, log.txt and the checkpoint
during the run. history.csv, final.npz, result.json and report.html are written when it ends, is
left or stopped. The same command goes on from the checkpoint.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from hobnob.cli.run_folder import (
    COMMAND,
    FEDERATION,
    HISTORY,
    REPORT,
    RESULT,
    command_of,
    next_number,
    versions_of,
    write_arrays,
    write_history,
    write_result,
    write_versions,
)
from hobnob.ground.errors import ConfigError, DivergenceError
from hobnob.ground.files import write_whole

if TYPE_CHECKING:
    from hobnob.core.problem import Problem
    from hobnob.run.result import Result
    from hobnob.runtimes.peers.federation import Federation

LOG = "log.txt"


class Joining(NamedTuple):
    """What an owner asks for on the command line."""

    federation: Path
    name: str
    keys: Path
    data: Sequence[Path]
    folder: Path
    on_interrupt: Literal["leave", "stop"]
    listen: str

    @property
    def command(self) -> str:
        words = ["hobnob", "join", self.federation, "--name", self.name, "--keys", self.keys]
        words += [word for file in self.data for word in ("--data", file)]
        words += ["--out", self.folder]
        words += ["--listen", self.listen] if self.listen else []
        words += ["--ctrl-c", self.on_interrupt] if self.on_interrupt != "leave" else []
        return shlex.join(map(str, words))


def join(asked: Joining, progress: bool | None = None) -> Result:
    """Take part in a run, from the folder's checkpoint if there is one, and write what came out."""
    from hobnob.cli.federation_file import described, short_id
    from hobnob.run.solve import solve
    from hobnob.runtimes.peers import Peers
    from hobnob.runtimes.peers.federation import Federation

    federation = Federation.read(asked.federation)
    number = federation.number(asked.name)
    federation.identity(asked.name, asked.keys)  # better now than after the data is read
    _check_same_run(asked.folder, federation, asked.name)
    agents = federation.parts[number].tolist()
    problem, algorithm, options = described(federation, asked.federation.parent, agents, asked.data)
    _begin(asked.folder, asked.federation, asked.command)
    log = Log(asked.folder / LOG)
    around = [federation.members[n].name for n in federation.neighbours(number)]
    log.write(
        f"{asked.name} joins federation {short_id(federation)}. It talks to {', '.join(around)}, "
        f"and waits up to {federation.rules.arrival:g} s for all to arrive."
    )
    runtime = Peers(
        federation,
        name=asked.name,
        keys=asked.keys,
        on_interrupt=asked.on_interrupt,
        listen=asked.listen,
        log=log.write,
    )
    try:
        result = solve(
            problem,
            federation.network,
            algorithm,
            **options,
            checkpoint=asked.folder,
            resume=True,
            progress=progress,
            runtime=runtime,
        )
    except DivergenceError as error:
        write_history(asked.folder / HISTORY, error.history, None)
        log.keep(str(error))
        _write_summary(asked.folder, f"{asked.name}: {problem.name}", "diverged", str(error))
        raise
    log.keep(result.message.removesuffix(result.advice).strip())
    _write_owner_result(asked, problem, result)
    return result


def rehearse(
    path: Path, data: Sequence[Path], folder: Path | None, progress: bool | None = None
) -> tuple[Path, Result]:
    """The run of all members in this process, and the folder with what came out."""
    from hobnob.cli.federation_file import described
    from hobnob.run.solve import solve
    from hobnob.runtimes.peers import Peers
    from hobnob.runtimes.peers.federation import Federation

    federation = Federation.read(path)
    folder = folder or next_number(Path("runs"))
    if (folder / FEDERATION).exists():
        raise ConfigError(f"{folder} already holds a run. Choose another folder.")
    agents = list(range(federation.network.size))
    problem, algorithm, options = described(federation, path.parent, agents, data)
    words = ["hobnob", "rehearse", path, *(["--data", *data] if data else []), "--out", folder]
    _begin(folder, path, shlex.join(map(str, words)))
    problem = problem.loaded()
    result = solve(
        problem,
        federation.network,
        algorithm,
        **options,
        checkpoint=folder,
        progress=progress,
        runtime=Peers(federation),
    )
    write_result(folder, problem, result)
    return folder, result


def finished(folder: Path) -> bool:
    """Whether the run in this folder is over, so that there is nobody to join."""
    if not (folder / RESULT).exists():
        return False
    return json.loads((folder / RESULT).read_text())["status"] == "finished"


class Log:
    """Lines about who came and went: appended to a file as they happen, and shown."""

    def __init__(self, path: Path):
        self._path, self._lock = path, threading.Lock()

    def write(self, line: str) -> None:
        self.keep(line)
        print(line, file=sys.stderr, flush=True)

    def keep(self, line: str) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z  {line}\n")


def _check_same_run(folder: Path, federation: Federation, name: str) -> None:
    from hobnob.cli.federation_file import short_id
    from hobnob.runtimes.peers.federation import Federation

    if not (folder / FEDERATION).exists():
        return
    there = Federation.read(folder / FEDERATION)
    if there.id != federation.id:
        raise ConfigError(
            f"{folder} holds a run of another federation ({short_id(there)}, this one is "
            f"{short_id(federation)}). Choose another folder."
        )
    words = shlex.split(command_of(folder))
    before = words[words.index("--name") + 1] if "--name" in words else name
    if before != name:
        raise ConfigError(
            f"{folder} holds the run of {before}, not of {name}. Choose another folder."
        )


def _begin(folder: Path, federation: Path, command: str) -> None:
    write_whole(folder / FEDERATION, federation.read_bytes())
    write_whole(folder / COMMAND, command.encode())
    write_versions(folder)


def _write_owner_result(asked: Joining, problem: Problem, result: Result) -> None:
    from hobnob.report.owner_page import owner_page
    from hobnob.run.owned.owner_summary import summarise_owner

    folder = asked.folder
    write_history(folder / HISTORY, result.history, result.settings["seed"])
    write_arrays(folder, result)
    summary = summarise_owner(problem, result)
    # A page may be handed on: it tells names of files, and not where they lie.
    shown = asked._replace(
        federation=_shown(asked.federation),
        keys=_shown(asked.keys),
        data=[_shown(file) for file in asked.data],
        folder=_shown(asked.folder),
        listen="",
    )
    owner_page(folder / REPORT, summary, versions_of(folder), shown.command)
    message = result.message.removesuffix(result.advice).strip()
    _write_summary(folder, summary.title, result.status, message, summary.table, result)


def _shown(path: Path) -> Path:
    return Path(path.name) if path.is_absolute() or ".." in path.parts else path


def _write_summary(
    folder: Path,
    title: str,
    status: str,
    message: str,
    table: Sequence[dict[str, str]] = (),
    result: Result | None = None,
) -> None:
    content = {
        "title": title,
        "status": status,
        "message": message,
        "table": list(table),
        **({"steps": result.steps, "compile_seconds": result.compile_seconds} if result else {}),
    }
    write_whole(folder / RESULT, json.dumps(content, indent=2, default=float).encode())
