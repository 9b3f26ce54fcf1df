"""Run on several MPI ranks: `hobnob run CONFIG.toml --ranks 4` starts mpirun itself.

mpirun starts this module once for each rank. It takes any exit code but 0 for a crash, so ranks
that end normally exit with 0 and rank 0 writes the command's exit code to a file.
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
    """Run the folder's configuration on this many ranks and return the exit code."""
    if ranks < 1:
        raise ConfigError(f"--ranks {ranks}: there must be at least one.")
    from hobnob.ground.terminal import is_watched

    watched = is_watched(progress)
    with TemporaryDirectory(prefix="hobnob-") as place:
        outcome = Path(place) / "exit_code"
        what = {"folder": str(folder), "command": command, "resume": resume, "progress": watched}
        job = json.dumps({**what, "outcome": str(outcome)})
        ranks_command = [sys.executable, "-m", "hobnob.cli.launch", job]
        code = _wait_for([*_mpirun(ranks), *ranks_command], _environment(watched))
        if code == 0 and outcome.exists():
            return int(outcome.read_text())
    return LOST


def exit_code(result: Result) -> int:
    """The exit code of a command that ran this."""
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
    # Allow more ranks than cores. Other MPIs have no such flag, or do not need it.
    more = ["--oversubscribe"] if "Open MPI" in version.stdout else []
    return [found, "-n", str(ranks), *more]


def _environment(watched: bool) -> dict[str, str]:
    # A waiting rank yields its core to others.
    environment = {"OMPI_MCA_mpi_yield_when_idle": "1", **os.environ}
    # In containers we often run as root, which Open MPI refuses without both of these.
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if watched:
        # Output goes through mpirun, so ranks cannot see the terminal.
        width = str(shutil.get_terminal_size().columns)
        environment |= {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "COLUMNS": width}
    return environment


def _wait_for(command: list[str], environment: dict[str, str]) -> int:
    """Wait for mpirun. Ctrl-C stops the ranks after the current steps; a second one, at once."""
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
    """The main function of one rank."""
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
