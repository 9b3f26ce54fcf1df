"""Starting a run on several ranks: `hobnob run CONFIG.toml --ranks 4` without typing mpirun.

The command that was typed starts mpirun, which starts this module once a rank. Ranks that end in an
orderly way exit with 0, whatever came out, and rank 0 leaves the exit code in a file: a launcher
takes any other code for a crash.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hobnob.ground.errors import ConfigError, HobnobError

if TYPE_CHECKING:
    from hobnob.run.result import Result
    from hobnob.run.store import Resume

DONE, NOT_CONVERGED, BAD_INPUT, LOST, INTERRUPTED = 0, 1, 2, 3, 130


def run_on_ranks(
    ranks: int, folder: Path, command: str, *, resume: Resume, progress: bool | None
) -> int:
    """Run what the folder's configuration says on so many ranks; the exit code."""
    if ranks < 1:
        raise ConfigError(f"--ranks {ranks}: there must be at least one.")
    from hobnob.ground.terminal import is_watched

    watched = is_watched(progress)
    with TemporaryDirectory(prefix="hobnob-") as place:
        outcome = Path(place) / "exit_code"
        what = {"folder": str(folder), "command": command, "resume": resume, "progress": watched}
        job = json.dumps({**what, "outcome": str(outcome)})
        ranks_command = [sys.executable, "-m", "hobnob.cli.launch", job]
        code = _waited_for([*_mpirun(ranks), *ranks_command], _environment(watched))
        if code == 0 and outcome.exists():
            return int(outcome.read_text())
    return LOST


def exit_code(result: Result) -> int:
    """What a command says of the run that it made."""
    if result.status == "interrupted":
        return INTERRUPTED
    return DONE if result.success else NOT_CONVERGED


def _mpirun(ranks: int) -> list[str]:
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise ConfigError(
            "--ranks needs mpirun, which is neither beside this Python nor on the PATH. "
            "pip install 'hobnob[mpi]' brings one."
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60)
    # More ranks than cores are fine; others call it differently, or need not be told.
    more = ["--oversubscribe"] if "Open MPI" in version.stdout else []
    return [found, "-n", str(ranks), *more]


def _environment(watched: bool) -> dict[str, str]:
    # A rank that waits lets others have the core, which costs nothing where nobody wants it.
    environment = {"OMPI_MCA_mpi_yield_when_idle": "1", **os.environ}
    # In a container one is root, which Open MPI must be told twice.
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if watched:
        # What a rank prints goes through mpirun: the terminal is behind it.
        width = str(shutil.get_terminal_size().columns)
        environment |= {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "COLUMNS": width}
    return environment


def _waited_for(command: list[str], environment: dict[str, str]) -> int:
    """Ctrl-C asks the ranks to stop after the current steps; a second one ends them at once."""
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    asked = 0

    def stop(number: int, frame: Any) -> None:
        nonlocal asked
        asked += 1
        first = number == signal.SIGINT and asked == 1
        process.send_signal(signal.SIGUSR1 if first else signal.SIGTERM)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(job: str) -> None:
    """One rank of a run."""
    from hobnob.cli import run_folder
    from hobnob.runtimes.mpi import Mpi

    what = json.loads(job)
    folder, runtime = Path(what["folder"]), Mpi()
    code = BAD_INPUT
    try:
        result = run_folder.execute(
            folder,
            what["command"],
            resume=what["resume"],
            progress=what["progress"],
            runtime=runtime,
        )
        if runtime.leads:
            run_folder.show(folder)
        code = exit_code(result)
    except HobnobError as error:
        if runtime.leads:
            print(f"hobnob: {error}", file=sys.stderr, flush=True)
    if runtime.leads:
        Path(what["outcome"]).write_text(str(code))


if __name__ == "__main__":
    main(sys.argv[1])
