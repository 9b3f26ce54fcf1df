"""Benchmarks: verdicts and files, regressions are found, and both sides compute the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import dsbo, matrix_free, policy, timing
from benchmarks.__main__ import STORED, fell
from benchmarks.table import Row, save

import hobnob as hb
from hobnob.run.progress import ProgressBar

pytestmark = pytest.mark.slow

FAST = Row("fast", "NumPy", 12.0, 10.0)
FLAT = Row("flat", "K", 1.0, 1.05, at_most=True)


@pytest.mark.parametrize(
    ("row", "was", "says"),
    [
        (FAST, 17.9, False),
        (FAST, 18.1, True),
        (FLAT, 0.67, False),
        (FLAT, 0.66, True),
        (Row("fast", "NumPy", 0.1, 0.2, at_most=True, ratio=False), 0.01, False),
    ],
    ids=["speed", "slower", "slope", "steeper", "seconds are not compared"],
)
def test_a_ratio_that_fell_by_more_than_a_third_is_named(row: Row, was: float, says: bool) -> None:
    said = fell(row, {f"{row.what}, against {row.against}": was})
    assert bool(said) == says
    assert not said or (row.what in said and f"{was:.3g}" in said)


def test_what_is_stored_are_ratios_of_rows_that_exist() -> None:
    stored = json.loads(STORED.read_text())
    assert len(stored) > 10
    assert all(value > 0 for value in stored.values())
    assert any("against vectorised NumPy" in name for name in stored)


def test_the_table_is_written_as_numbers_and_as_a_picture(tmp_path: Path) -> None:
    assert [FAST.margin, FLAT.margin] == [1.2, 1.05]
    assert "yes" in str(FAST)
    assert " no " in str(Row("slow", "NumPy", 9.0, 10.0))
    save([FAST, FLAT, Row("no goal", "NumPy", 3.0, None)], tmp_path)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [row["value"] for row in found] == [12.0, 1.0, 3.0]
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def assert_ends_there(x: np.ndarray, seeds: np.ndarray, start: float) -> None:
    """Runs with independent draws end at about the same point, far from the start."""
    middle, spread = seeds.mean(axis=0), seeds.std(axis=0).max()
    assert np.abs(x - middle).max() < 4 * spread
    assert np.abs(middle - start).max() > 8 * spread


def test_numpy_runs_the_recursion_that_it_is_compared_with() -> None:
    numpy = dsbo.Vectorised(4)
    for _ in range(300):
        numpy.step()
    problem, network = dsbo.problem_of(4), hb.ring(4)
    ours = hb.solve(problem, network, dsbo.DSBO, steps=300, seed=range(8), metrics=None)
    assert_ends_there(numpy.x.mean(axis=0), np.asarray(ours.x), np.log(0.1))


@pytest.mark.parametrize("draws", [policy.Vectorised, policy.WithAliases])
def test_numpy_evaluates_the_policy_that_it_is_compared_with(
    draws: type[policy.Vectorised],
) -> None:
    problem = hb.problems.get("policy")(agents=20, states=100, features=10)
    numpy = draws(problem)
    for _ in range(300):
        numpy.step()
    ours = hb.solve(problem, hb.ring(20), policy.DSBO, steps=300, seed=range(3), metrics=None)
    assert_ends_there(numpy.x.mean(axis=0), np.asarray(ours.x), 0.0)


def test_the_scan_by_hand_runs_the_arithmetic_that_it_is_compared_with(monkeypatch) -> None:
    monkeypatch.setattr(matrix_free, "STEPS", 2000)
    x = np.asarray(matrix_free.program_of(matrix_free.randint)()[0])
    problem, network = dsbo.problem_of(5), hb.ring(5)
    ours = hb.solve(problem, network, matrix_free.DSOBA, steps=2000, seed=range(8), metrics=None)
    assert_ends_there(x.mean(axis=0), np.asarray(ours.x), np.log(0.1))


class Runs:
    """Two runs of `Windows`, on a clock that only they advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now, self.order = 0.0, ""
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def windows(self, name: str, steps: int, seconds: list[float]) -> timing.Windows:
        left = iter(seconds)

        def solve(steps: int, progress: bool) -> None:
            bar = ProgressBar(progress)
            for step in range(1, steps + 1):
                self.now += next(left)
                self.order += name
                bar.chunk(step, 1.0, {})

        return timing.Windows(steps, solve)


def test_runs_that_are_compared_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    one = runs.windows("a", 2, [50.0, 50.0, 1.0, 3.0, 100.0, 1.0, 2.0, 2.0])
    other = runs.windows("b", 1, [70.0, 4.0, 4.0, 4.0])
    assert timing.ratio_in_turns(3, one, other) == 0.5  # of 0.5, 12.6 and 0.5
    assert runs.order == "aab" * 4


def test_a_run_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch)
    one, other = runs.windows("a", 1, [1.0] * 9), runs.windows("b", 1, [1.0, 1.0])
    with pytest.raises(RuntimeError, match="StopIteration"):
        timing.ratio_in_turns(8, one, other)
