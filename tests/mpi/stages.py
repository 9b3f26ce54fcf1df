"""A worker that stops half way and goes on, on as many ranks as it is started with."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from tests.reference.world import logistic_problem

HALF, WHOLE = 200, 400
KINDS: dict[str, type[hb.Algorithm]] = {"common": hb.MADSBOGT, "personal": hb.LoPA}


def solved(kind: str, folder: Path, steps: int, runtime: Any) -> hb.Result:
    return hb.solve(
        logistic_problem([5, 2, 9, 3, 4], personal=kind == "personal"),
        hb.path(5),
        KINDS[kind].suggest(hb.Scale(3.0, 0.5)),
        steps=steps,
        record_every=HALF,
        metrics=["consensus"],
        checkpoint=folder,
        resume=True,
        runtime=runtime,
    )


def main(folder: Path, stage: str, kind: str) -> None:
    runtime, solve = hb.Mpi(), partial(solved, kind)
    if stage == "first":
        found = {"straight": solve(folder / "straight", WHOLE, runtime)}
        solve(folder / "half", HALF, runtime)
        if runtime.leads:
            for other in ("for four ranks", "for the simulation"):
                shutil.copytree(folder / "half", folder / other)
            solve(folder / "simulated", HALF, None)
        found["same layout"] = solve(folder / "half", WHOLE, runtime)
    else:
        found = {
            "four ranks": solve(folder / "for four ranks", WHOLE, runtime),
            "from the simulation": solve(folder / "simulated", WHOLE, runtime),
        }
    if runtime.leads:
        for name, result in found.items():
            np.save(folder / f"{name}.npy", np.hstack([result.agents["x"], result.agents["y"]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
