"""The same answer on any number of ranks: every algorithm, networks, failures and batches in turn.

Every algorithm is run once here, with what surrounds it rotating, so that each network, each kind
of links and of batches, and each number of ranks appears; steps with many rounds are fewer. All
together, over 1,000 steps:

    python -m tests.mpi.full_product OUT.json
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import hobnob as hb
from tests.mpi import ranks
from tests.mpi.agree import NETWORKS, Case, parsed, rounds

pytestmark = pytest.mark.slow

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
        cases[4 if i % 8 == 1 else 2].append(
            Case(name, networks[i % 3], links, batches[i % 4], steps)
        )
    cases[2] += [Case(name, "levels", "good", "2", 1000) for name in ("sparkle", "edge_sparkle")]
    cases[2].append(Case("edge_sparkle", "irregular", "failing", "seeds", 1000))
    # An agent a rank: what an agent sends is what its rank hands to MPI.
    cases[4] += [
        Case(name, "four", links, "2", 1000)
        for name in ("dsoba", "edge_sparkle")
        for links in ("good", "failing")
    ]
    return {n: sorted(these) for n, these in cases.items()}


def found(number: int) -> dict[Case, dict[str, Any]]:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        end = ranks.run(number, "agree", out, *chosen()[number])
        assert end.code == 0, end.err
        return {parsed(word): this for word, this in json.loads(out.read_text()).items()}


def test_each_kind_appears() -> None:
    cases = [case for these in chosen().values() for case in these]
    assert {case.name for case in cases} == set(NAMES)
    assert {case.network for case in cases} >= set(NETWORKS)
    assert {case.links for case in cases} == {"good", "failing"}
    assert {case.batch for case in cases} == {"2", "all", "seeds"}
    assert all(len(chosen()[number]) >= 2 for number in (1, 2, 4))


# One test a number of ranks: starting them is what takes the time.
@pytest.mark.parametrize("number", [1, 2, 4])
def test_ranks_agree_with_the_simulation(number: int) -> None:
    for case, this in found(number).items():
        assert this["agents"] <= 1e-10, case
        assert this["spread"] <= 1e-10, case
        assert this["costs"] == 0, case
        assert this["moved"] > 1e-3, f"{case}: x does not move, so this compares nothing"
        check_what_was_sent(number, case, this)


def check_what_was_sent(number: int, case: Case, this: dict[str, Any]) -> None:
    """What is counted went through MPI: an agent's message once to each rank where somebody listens
    to it, and nothing over links that are down."""
    kind = hb.algorithms.get(case.name)
    sent = [rank["bytes"] for rank in this["sent"]]
    assert sum(sent) > 0 or number == 1, case
    if number == 1 or kind.single_agent:
        assert kind.server or sent == [0] * number, case
    elif case.network == "four":
        assert sent == this["bytes"], case
        assert [part[0] for part in this["parts"]] == [0, 1, 2, 3]
    elif not kind.server and case.links == "good" and case.network != "levels":
        network = NETWORKS[case.network]
        home = {k: rank for rank, part in enumerate(this["parts"]) for k in part}
        seeds = 2 if case.batch == "seeds" else 1  # costs are those of one run
        expected = [0] * number
        for k, size in enumerate(this["bytes"]):
            elsewhere = {home[j] for j in network.neighbours(k)} - {home[k]}
            expected[home[k]] += seeds * size // int(network.degrees[k]) * len(elsewhere)
        assert sent == expected, case
