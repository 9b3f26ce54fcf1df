"""A worker that runs until it is stopped: every rank writes its number and its process."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from tests.reference.world import logistic_problem


def main(folder: Path, steps: int, *more: str) -> None:
    problem, network = logistic_problem([5, 2, 9, 3]), hb.ring(4)
    algorithm = hb.algorithms.get("dsoba").suggest(hb.Scale(3.0, 0.5))
    runtime = hb.Mpi(silence=5.0)
    rank = runtime.rank
    (folder / f"rank-{rank}").write_text(str(os.getpid()))

    def running(run: Any, state: Any) -> bool:
        if run.latest["step"] >= 1000:
            (folder / "running").touch()
            if "full disk" in more:
                # No file may grow any more, as on a disk without space: the write fails for good.
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        return False

    options: dict[str, Any] = {"resume": "resume" in more}
    if "checkpoint" in more:
        options |= {"checkpoint": folder / "checkpoints", "checkpoint_every": 500}
    result = hb.solve(
        problem,
        network,
        algorithm,
        steps=steps,
        record_every=500,
        metrics=["consensus"],
        callback=running,
        runtime=runtime,
        **options,
    )
    np.save(folder / f"x-{rank}.npy", result.agents["x"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
