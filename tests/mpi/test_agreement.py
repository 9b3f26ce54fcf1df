"""The same answer on any number of ranks: every algorithm, networks, failures and batches in turn.

Every algorithm is run once here, with what surrounds it rotating, so that each network, each kind
of links and of batches, and each number of ranks appears; steps with many rounds are fewer. All
together, over 1,000 steps:

    python -m tests.mpi.full_product OUT.json
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from tests.mpi import ranks
from tests.mpi.agree import NETWORKS, Case, parsed, rounds

NAMES = hb.algorithms.names()


def chosen() -> dict[int, list[Case]]:
    """Which cases run on how many ranks. The methods for one agent have one rank to run on."""
    cases: dict[int, list[Case]] = {1: [], 2: [], 4: []}
    networks, batches = ("ring", "star", "irregular"), ("2", "all", "2", "seeds")
    many = [name for name in NAMES if not hb.algorithms.get(name).single_agent]
    for name in set(NAMES) - set(many):
        cases[1].append(Case(name, "alone", "good", "2", 1000))
    for i, name in enumerate(many):
        links = "failing" if i % 2 and not hb.algorithms.get(name).server else "good"
        steps = {1.0: 1000, 10.0: 200}.get(rounds(name), 60)
        cases[4 if i % 3 else 2].append(Case(name, networks[i % 3], links, batches[i % 4], steps))
    cases[2].append(Case("sparkle", "levels", "good", "2", 1000))
    # An agent a rank: what an agent sends is what its rank hands to MPI.
    cases[4] += [Case("dsoba", "four", links, "2", 1000) for links in ("good", "failing")]
    return {n: sorted(these) for n, these in cases.items()}


CASES = [(n, case) for n, cases in chosen().items() for case in cases]


@cache
def found(number: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        end = ranks.run(number, "agree", out, *chosen()[number])
        assert end.code == 0, end.err
        return json.loads(out.read_text())


def test_each_kind_appears() -> None:
    cases = [case for _, case in CASES]
    assert {case.name for case in cases} == set(NAMES)
    assert {case.network for case in cases} >= set(NETWORKS)
    assert {case.links for case in cases} == {"good", "failing"}
    assert {case.batch for case in cases} == {"2", "all", "seeds"}
    assert all(len(chosen()[n]) >= 2 for n in (1, 2, 4))
    assert all(parsed(str(case)) == case for case in cases)


@pytest.mark.parametrize(("number", "case"), CASES, ids=lambda value: str(value))
def test_ranks_agree_with_the_simulation(number: int, case: Case) -> None:
    this = found(number)[str(case)]
    assert this["agents"] <= 1e-10
    assert this["spread"] <= 1e-10
    assert this["costs"] == 0
    assert this["moved"] > 1e-3, "x does not move, so this compares nothing"


@pytest.mark.parametrize(("number", "case"), CASES, ids=lambda value: str(value))
def test_what_is_counted_went_through_mpi(number: int, case: Case) -> None:
    """An agent's message goes once to each rank where somebody listens to it, and links that are
    down carry nothing."""
    this, kind = found(number)[str(case)], hb.algorithms.get(case.name)
    sent = [rank["bytes"] for rank in this["sent"]]
    if number == 1 or kind.single_agent:
        assert kind.server or sent == [0] * number
    elif case.network == "four":
        assert sent == this["bytes"]
        assert [part[0] for part in this["parts"]] == [0, 1, 2, 3]
    elif not kind.server and case.links == "good" and case.network != "levels":
        network = NETWORKS[case.network]
        home = {k: rank for rank, part in enumerate(this["parts"]) for k in part}
        each = np.array(this["bytes"]).reshape(-1, network.size).sum(axis=0)
        if case.batch == "seeds":
            each = 2 * each  # what one run sends is counted once for both
        expected = [0] * number
        for k in range(network.size):
            elsewhere = {home[j] for j in network.neighbours(k)} - {home[k]}
            expected[home[k]] += each[k] // int(network.degrees[k]) * len(elsewhere)
        assert sent == expected
    assert sum(sent) > 0 or number == 1
