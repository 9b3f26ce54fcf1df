"""A member that runs algorithms with the others, and simulates some of them alone.

python -m tests.peers.agree FOLDER NAME CASE ...; a case is NAME:NETWORK:LINKS:BATCH:STEPS. The
federation of a case is in FOLDER/NETWORK.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from hobnob.runtimes.peers.federation import Federation
from tests.mpi.agree import LINKS, RAGGED, Case, parsed
from tests.reference.world import compositional_problem, logistic_problem


def solved(case: Case, network: hb.Network, runtime: Any) -> hb.Result:
    kind = hb.algorithms.get(case.name)
    records, batch = RAGGED[: network.size], None if case.batch == "all" else 2
    if kind.compositional:
        problem: hb.Problem = compositional_problem(records, batch)
    else:
        problem = logistic_problem(records, batch, personal=kind.personal)
    algorithm: Any = kind.suggest(hb.Scale(3.0, 0.5))
    if hasattr(algorithm, "terms"):
        algorithm = replace(algorithm, terms=5)
    return hb.solve(
        problem,
        network,
        algorithm,
        steps=case.steps,
        seed=[7, 8] if case.batch == "seeds" else 7,
        record_every=case.steps,
        links=LINKS[case.links],
        runtime=runtime,
        progress=False,
    )


def told(result: hb.Result) -> dict[str, Any]:
    """Agents come first, whether there are several seeds or not."""
    many = result.history["step"].ndim > 1
    first = 1 if many else 0
    return {
        "x": np.moveaxis(result.agents["x"], first, 0).tolist(),
        "y": np.moveaxis(result.agents["y"], first, 0).tolist(),
        "samples": result.ledger["samples"].tolist(),
        "bytes": result.ledger["bytes"].tolist(),
    }


def taken_part(case: Case, federation: Federation, folder: Path, name: str) -> dict[str, Any]:
    clock = time.perf_counter()
    own = solved(case, federation.network, hb.Peers(federation, name, folder / "keys"))
    assert own.company is not None
    return {
        **told(own),
        "status": own.status,
        "seconds": time.perf_counter() - clock,
        "sent": sum(neighbour.sent for neighbour in own.company.neighbours),
        "overhead": sum(neighbour.overhead for neighbour in own.company.neighbours),
        "refused": [dict(neighbour.refused) for neighbour in own.company.neighbours],
        "away": [absence.who for absence in own.company.absences],
    }


def main(folder: Path, name: str, cases: list[Case]) -> None:
    found, simulated = {}, {}
    for i, case in enumerate(cases):
        at = folder / case.network
        federation = Federation.read(at / "federation.toml")
        found[str(case)] = taken_part(case, federation, at, name)
        # Each member simulates its share of the cases.
        if i % len(federation.members) == federation.number(name):
            simulated[str(case)] = told(solved(case, federation.network, hb.Simulate()))
    (folder / f"{name}.json").write_text(json.dumps([found, simulated]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [parsed(word) for word in sys.argv[3:]])
