"""A worker whose shards are files, one for each agent and level, and which notes what is opened.

python -m tests.mpi.own_files FOLDER KIND under mpirun; a kind is "common" or "personal".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import hobnob as hb

AGENTS, STEPS = 6, 300


def write_shards(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(AGENTS):
        for kind in ("outer", "inner"):
            a = rng.normal(size=(3 + 2 * k, 4))
            np.savez(
                folder / f"{kind}-{k}.npz", a=a, t=a @ np.arange(4.0) + rng.normal(size=len(a))
            )


def problem_of(folder: Path, personal: bool = False) -> hb.Problem:
    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch["a"] @ y - batch["t"]) ** 2) / 2

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + jnp.exp(x) @ y**2 / 2

    def reader(kind: str) -> Any:
        def read(agent: int) -> Any:
            with np.load(folder / f"{kind}-{agent}.npz") as arrays:
                return dict(arrays)

        return read

    return hb.Problem(
        outer,
        inner,
        np.zeros(4),
        np.zeros(4),
        reader("outer"),
        reader("inner"),
        2,
        agents=AGENTS,
        personal=personal,
    )


def solved(folder: Path, runtime: Any, kind: str) -> hb.Result:
    personal = kind == "personal"
    problem = problem_of(folder, personal)
    algorithm = (hb.LoPA if personal else hb.DSOBA).suggest(hb.Scale(8.0, 0.5))
    options = {"steps": STEPS, "record_every": 100, "checkpoint": folder / "checkpoints"}
    return hb.solve(problem, hb.ring(AGENTS), algorithm, runtime=runtime, **options)


def main(folder: Path, kind: str) -> None:
    opened: set[str] = set()

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], str) and given[0].endswith(".npz"):
            opened.add(Path(given[0]).name)

    sys.addaudithook(note)
    runtime = hb.Mpi()
    result = solved(folder, runtime, kind)
    columns = ("outer_loss", "inner_loss", "consensus_x", "samples")
    found = {
        "agents": runtime.parts[runtime.rank].tolist(),
        "opened": sorted(opened),
        "x": result.agents["x"].tolist(),
        "y": result.agents["y"].tolist(),
        "names": list(result.history),
        **{name: result.history[name].tolist() for name in columns},
    }
    (folder / f"rank-{runtime.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
