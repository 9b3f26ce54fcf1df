"""A worker that stops half way and goes on, on as many ranks as it is started with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from tests.reference.world import logistic_problem

HALF, WHOLE = 200, 400


def solved(folder: Path, steps: int, runtime: Any) -> hb.Result:
    return hb.solve(
        logistic_problem([5, 2, 9, 3, 4]),
        hb.path(5),
        hb.MADSBOGT.suggest(hb.Scale(3.0, 0.5)),
        steps=steps,
        record_every=HALF,
        metrics=["consensus"],
        checkpoint=folder,
        resume=True,
        runtime=runtime,
    )


def main(folder: Path, stage: str) -> None:
    runtime = hb.Mpi()
    if stage == "first":
        found = {"straight": solved(folder / "straight", WHOLE, runtime)}
        solved(folder / "half", HALF, runtime)
        if runtime.leads:
            for other in ("for four ranks", "for the simulation"):
                shutil.copytree(folder / "half", folder / other)
            solved(folder / "simulated", HALF, None)
        found["same layout"] = solved(folder / "half", WHOLE, runtime)
    else:
        found = {
            "four ranks": solved(folder / "for four ranks", WHOLE, runtime),
            "from the simulation": solved(folder / "simulated", WHOLE, runtime),
        }
    if runtime.leads:
        for name, result in found.items():
            np.save(folder / f"{name}.npy", result.agents["x"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
