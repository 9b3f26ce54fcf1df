"""Owners in processes of their own find what the simulation finds, over real TLS on loopback.

Here every algorithm without a server runs once, with what surrounds it rotating; steps with many
rounds are fewer. All together, over 1,000 steps:

    python -m tests.peers.test_agreement OUT.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest

import hobnob as hb
from hobnob.ground.files import write_whole
from tests.mpi.agree import NETWORKS, Case, parsed, rounds
from tests.peers import federations

pytestmark = pytest.mark.slow

SPLIT = [1, 2, 3]  # agents of the three members
NAMES = [
    name
    for name in hb.algorithms.names()
    if not (hb.algorithms.get(name).server or hb.algorithms.get(name).single_agent)
]


def chosen() -> list[Case]:
    networks, batches = ("ring", "star", "irregular"), ("2", "all", "2", "seeds")
    cases = []
    for i, name in enumerate(NAMES):
        steps = {1.0: 150, 10.0: 30}.get(rounds(name), 12)
        links = "failing" if i % 5 == 3 else "good"
        cases.append(Case(name, networks[i % 3], links, batches[i % 4], steps))
    return cases


def every_case() -> list[Case]:
    return [
        Case(name, network, "good", batch, {1.0: 1000, 10.0: 1000}.get(rounds(name), 60))
        for name in NAMES
        for network, batch in (("ring", "2"), ("star", "all"), ("irregular", "2"))
    ]


class Found(NamedTuple):
    """Of one case: what each member found, in their order, and what the simulation found."""

    members: list[dict[str, Any]]
    simulated: dict[str, Any]

    @property
    def difference(self) -> float:
        """The largest of all agents' x and y."""
        return max(
            np.abs(np.concatenate([m[v] for m in self.members]) - np.array(self.simulated[v])).max()
            for v in ("x", "y")
        )


def found(folder: Path, cases: list[Case], agents: list[int], timeout: float) -> dict[Case, Found]:
    for network in {case.network for case in cases}:
        federations.made(folder / network, NETWORKS[network], agents)
    names = federations.NAMES[: len(agents)]
    words = [str(case) for case in cases]
    members = [
        subprocess.Popen([sys.executable, "-m", "tests.peers.agree", str(folder), name, *words])
        for name in names
    ]
    try:
        for member in members:
            assert member.wait(timeout) == 0
    finally:
        for member in members:
            member.kill()
    said = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    simulated = {word: one for _, some in said for word, one in some.items()}
    return {parsed(w): Found([own[w] for own, _ in said], simulated[w]) for w in words}


def check(case: Case, this: Found) -> None:
    for member in this.members:
        assert member["status"] == "finished", case
        assert not member["away"], case
        assert member["sent"] > 0, case
    assert this.difference <= 1e-10, case
    assert (
        np.concatenate([m["samples"] for m in this.members]).tolist() == this.simulated["samples"]
    ), case
    assert np.ptp(this.simulated["x"], axis=-1).max() > 1e-4, f"{case}: x does not move"


def test_owners_agree_with_the_simulation(tmp_path: Path) -> None:
    for case, this in found(tmp_path, chosen(), SPLIT, 900).items():
        check(case, this)


def test_what_is_counted_is_what_went_over_the_wire(tmp_path: Path) -> None:
    """An agent a member: the ledger's bytes are the payload of the frames."""
    cases = [
        Case("dsoba", "four", "good", "2", 200),
        Case("edge_sparkle", "four", "failing", "2", 200),
    ]
    for case, this in found(tmp_path, cases, [1, 1, 1, 1], 600).items():
        check(case, this)
        assert [m["sent"] for m in this.members] == this.simulated["bytes"], case


def main(out: Path) -> None:
    """All algorithms on all networks: a table of the largest differences."""
    with TemporaryDirectory() as folder:
        cases = found(Path(folder), every_case(), SPLIT, 7200)
    rows = {str(case): this.difference for case, this in cases.items()}
    write_whole(out, json.dumps(rows, indent=1).encode())
    for case, difference in rows.items():
        print(f"{case:40} {difference:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
