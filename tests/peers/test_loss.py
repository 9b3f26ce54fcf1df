"""Members that go away and come back, in real processes over real TLS: the answer is still right.

A short part of `make chaos`, and the case that the edge-wise method was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hobnob as hb
from hobnob.run.checkpoint import load
from tests.peers import federations, processes
from tests.peers.chaos import ACCURACY, NAMES, Chaos
from tests.peers.processes import Town, error_of, problem, solution_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("loss")]

# So that the run is on its way at step 1,000: 1e-6 from the solution.
SETTINGS = {"alpha": 0.05, "beta": 0.08, "gamma": 0.08, "theta": 0.5}
PRESENT = [0, 1, 3, 4]  # without cho


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path, NAMES, settings=SETTINGS)
    yield town
    town.close()


@pytest.mark.parametrize("duals", ["held", "dropped"])
def test_an_asymmetric_loss_and_a_return_from_an_old_checkpoint(
    town: Town, tmp_path: Path, duals: str
) -> None:
    """Cho dies at step 1,000, whose message dan gets and ben does not.

    It returns after step 3,000 with a checkpoint of step 500.
    """
    federations.made(tmp_path, hb.ring(5), duals=duals, arrival=60.0)
    old = tmp_path / "old"
    for name in NAMES:
        saving = {"checkpoint": str(tmp_path / name), "checkpoint_every": 500}
        dying = {"mute": ["ben", 1000], "die": 1001, "keep": [501, str(old)]}
        town.start(name, **saving, **(dying if name == "cho" else {}))
    others = [name for name in NAMES if name != "cho"]
    for name in others:
        town[name].reaches(1100)
    assert town["cho"].code is not None
    assert load(old).step == 500
    again = town.start("cho", checkpoint=str(old), hold=True)
    # What the others come to without it.
    for name in others:
        town[name].reaches(3000)
    again.do("go")
    present, everyone = solution_of(5, PRESENT), problem(5).solution
    for name in others:
        rows = {e[2]: np.array(e[3]) for e in list(town[name].told) if e[0] == "row"}
        away = np.abs(rows[3000] - (present if duals == "dropped" else everyone)).max()
        assert away < 1e-4, (name, away)
    assert np.abs(present - everyone).max() > 0.05
    for name in ("ben", "dan"):
        town[name].until(lambda name=name: "cho" in town[name].up, "cho is back")
    town["ana"].goes_on(2500)
    ends = town.stop_together("eva")
    assert max(error_of(end, everyone) for end in ends.values()) < ACCURACY
    # It was as described.
    assert load(old).step == ends["ana"]["steps"]
    assert [step for step in ends["cho"]["recorded"] if step < 3000] == [0, 200, 400]
    left = {
        name: [a for a in ends[name]["company"]["absences"] if a["who"] == "cho"]
        for name in ("ben", "dan")
    }
    assert [len(absences) for absences in left.values()] == [1, 1]
    assert (left["ben"][0]["step"], left["dan"][0]["step"]) == (1000, 1001)
    assert left["ben"][0]["until"] >= 3000


def test_some_of_each_fault(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, np.random.default_rng(19), "dropped", processes.SETTINGS)
    try:
        chaos.start_all()
        for kind in ("reset", "kill -9, old checkpoint", "freeze", "partition", "leave (Ctrl-C)"):
            chaos.fault(kind)
        assert chaos.settle(steps=1500) < ACCURACY
    finally:
        chaos.close()
