"""A worker that runs algorithms on its ranks and in the simulation, and writes how far they differ.

python -m tests.mpi.agree OUT.json CASE ... under mpirun; a case is NAME:NETWORK:LINKS:BATCH:STEPS.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

import hobnob as hb
from tests.reference.world import compositional_problem, logistic_problem

RAGGED = [5, 2, 9, 3, 4, 7]
NETWORKS = {
    "ring": hb.ring(6),
    "star": hb.star(6),
    "irregular": hb.Network(nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)])),
    "levels": hb.ring(6).with_levels(y=hb.complete(6), z=hb.star(6)),
    "four": hb.ring(4),
}
LINKS = {
    "good": None,
    "failing": [hb.Drop(0.3), hb.Cut(0, 1, 10, 60), hb.Silent(3, 20, 90)],
}


class Case(NamedTuple):
    name: str
    network: str
    links: str
    batch: str  # "2", "all", or "seeds" for several runs at once
    steps: int

    def __str__(self) -> str:
        return ":".join(map(str, self))


def parsed(word: str) -> Case:
    name, network, links, batch, steps = word.split(":")
    return Case(name, network, links, batch, int(steps))


def rounds(name: str) -> float:
    """How many rounds a step has, roughly: in some, step t has t of them."""
    if name in ("dbsa", "dsgd", "bsa"):
        return float("inf")
    return 10 if name in ("madsbo", "madsbo_gt", "fednest") else 1


def solved(case: Case, runtime: Any) -> hb.Result:
    kind = hb.algorithms.get(case.name)
    network = hb.complete(1) if kind.single_agent else NETWORKS[case.network]
    records, batch = RAGGED[: network.size], None if case.batch == "all" else 2
    if kind.compositional:
        problem: hb.Problem = compositional_problem(records, batch)
    else:
        problem = logistic_problem(records, batch, personal=kind.personal)
    algorithm: Any = kind.suggest(hb.Scale(3.0, 0.5))
    if hasattr(algorithm, "terms"):
        algorithm = replace(algorithm, terms=5)
    if network.levels and hasattr(algorithm, "rounds"):
        algorithm = replace(algorithm, rounds="three")
    return hb.solve(
        problem,
        network,
        algorithm,
        steps=case.steps,
        seed=[7, 8] if case.batch == "seeds" else 7,
        record_every=case.steps,
        metrics=["consensus", "outer_loss"],
        links=LINKS[case.links],
        runtime=runtime,
    )


def difference(here: hb.Result, there: hb.Result) -> dict[str, float]:
    """The largest of all agents' x and y, of all variables' spread, and of all costs."""
    agents = [np.abs(here.agents[v] - there.agents[v]).max() for v in ("x", "y")]
    spread = [
        np.abs(here.history[column] - there.history[column]).max()
        for column in here.history
        if column.startswith(("consensus", "outer"))
    ]
    costs = [np.abs(here.ledger[c] - there.ledger[c]).max() for c in here.ledger]
    moved = np.ptp(here.agents["x"], axis=-1).max()
    found = {"agents": max(agents), "spread": max(spread), "costs": max(costs), "moved": moved}
    return {name: float(value) for name, value in found.items()}


def main(out: Path, cases: list[Case]) -> None:
    runtime = hb.Mpi()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    # Each rank simulates its share of the cases, so that none waits for another.
    simulated = {
        case: solved(case, hb.Simulate())
        for i, case in enumerate(cases)
        if i % comm.size == comm.rank
    }
    found: dict[str, Any] = {}
    for i, case in enumerate(cases):
        clock = time.perf_counter()
        result = solved(case, runtime)
        sent = comm.gather(dict(runtime.sent))
        home = i % comm.size
        compared = difference(result, simulated[case]) if home == comm.rank else None
        found[str(case)] = {
            **comm.bcast(compared, home),
            "sent": sent,
            "seconds": time.perf_counter() - clock,
            "bytes": result.ledger["bytes"].tolist(),
            "parts": [part.tolist() for part in runtime.parts],
        }
    if comm.rank == 0:
        out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [parsed(word) for word in sys.argv[2:]])
