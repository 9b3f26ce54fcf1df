"""A worker that names no algorithm: shards that no process has all of, or a run that diverges."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hobnob as hb
from tests.mpi.own_files import AGENTS, problem_of
from tests.test_choice import growing_curvature


def main(folder: Path) -> None:
    runtime = hb.Mpi()
    spread = hb.solve(problem_of(folder), hb.ring(AGENTS), steps=300, runtime=runtime)
    staged = hb.solve(growing_curvature(), hb.ring(3), record_every=50, runtime=runtime)
    found = {
        "choice": spread.choice,
        "loss": spread.history["outer_loss"].tolist(),
        "samples": spread.history["samples"].tolist(),
        "x": spread.x.tolist(),
        "staged choice": staged.choice,
        "staged x": staged.x.tolist(),
        "staged status": staged.status,
    }
    (folder / f"rank-{runtime.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
