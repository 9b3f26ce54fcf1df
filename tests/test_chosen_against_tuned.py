"""The comparison of the default with tuned methods: its problems, its verdicts, one whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.chosen_against_tuned import __main__ as study
from benchmarks.chosen_against_tuned.bench import Bench
from benchmarks.chosen_against_tuned.problems import Case, cases, rescaled
from benchmarks.chosen_against_tuned.report import markdown
from benchmarks.chosen_against_tuned.tuned import tune_convex
from benchmarks.chosen_against_tuned.verdicts import (
    Arrival,
    came_near,
    gradient_fell,
    ratio,
    share_closed,
    summaries,
)

import hobnob as hb

pytestmark = pytest.mark.slow

CASES = [case for case in cases() if case.file is None or case.file.exists()]


def history(**columns: Any) -> dict[str, np.ndarray]:
    """Rows every 10 steps, of 2 samples and 100 bytes a step; the first axis is that of seeds."""
    values = {name: np.atleast_2d(np.asarray(v, float)) for name, v in columns.items()}
    shape = next(iter(values.values())).shape
    steps = np.broadcast_to(10 * np.arange(shape[1]), shape)
    return {"step": steps, "samples": 2 * steps, "bytes": 100 * steps, **values}


def test_there_are_enough_problems_and_some_of_each_kind_are_fresh() -> None:
    every = cases()
    assert len({case.name for case in every}) == len(every) >= 24
    for kind in ("convex", "noisy", "non-convex"):
        assert sum(not case.known for case in every if case.kind == kind) >= 6
    assert sum(not case.known for case in every) >= 20
    networks = {case.network.name for case in every}
    assert networks == {"ring", "path", "star", "complete", "exponential", "erdos_renyi"}
    assert max(case.network.size for case in every) == 50


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_problems_build_and_fit_their_networks(case: Case) -> None:
    problem = case.make()
    assert problem.size == case.network.size
    batches = [getattr(s, "batch_size", None) for s in (problem.outer_data, problem.inner_data)]
    simulated = isinstance(problem.inner_data, hb.Simulator) and not problem.inner_data.noiseless
    assert case.noisy == (simulated or any(batches))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_other_units_of_x_leave_the_problem_what_it_is(factor: float) -> None:
    problem = hb.problems.get("hyperopt")("iris", 3, positive="virginica", start_weight=0.5)
    other = rescaled(problem, factor)
    assert problem.x_bounds is not None
    assert other.x_bounds is not None
    np.testing.assert_allclose(factor * np.stack(other.x_bounds), np.stack(problem.x_bounds))
    one, two = hb.exact(problem, problem.x0), hb.exact(other, other.x0)
    assert two.value == pytest.approx(one.value)
    np.testing.assert_allclose(two.gradient, factor * one.gradient, rtol=1e-9)


def test_the_gradient_has_fallen_where_its_median_has() -> None:
    norms = [[1, 1e-2, 1e-5, 1e-6], [1, 1e-2, 1e-3, 1e-5], [1, 1, 2e-5, np.nan]]
    assert gradient_fell(history(gradient_norm=norms)) == Arrival(20, 40, 2000)
    assert gradient_fell(history(gradient_norm=[1, 0.1, 1.1e-4])) is None
    assert gradient_fell(history(gradient_norm=[1, np.nan, np.nan])) is None


def test_near_is_where_it_stays() -> None:
    def gap(*left: float) -> dict[str, np.ndarray]:
        return history(objective=[3 + 4 * share for share in left])

    start, best = 7.0, 3.0
    assert came_near(gap(1, 0.005, 0.03, 0.009, 0.019), start, best) == Arrival(30, 60, 3000)
    assert came_near(gap(1, 0.5, 0.009, 0.019, 0.021), start, best) is None
    assert came_near(gap(1, 0.015, 0.015), start, best) is None
    assert came_near(gap(1, 0.04, 0.03), start, best, 0.05, 0.1) == Arrival(10, 20, 1000)
    assert came_near(gap(1, 0.005, np.inf), start, best) is None
    loss = {"outer_loss" if k == "objective" else k: v for k, v in gap(1, 0.0).items()}
    assert came_near(loss, start, best) == Arrival(10, 20, 1000)


def test_ratios_and_shares() -> None:
    assert ratio(300, 200) == 1.5
    assert ratio(None, 200) == np.inf
    assert ratio(None, None) == np.inf
    assert ratio(300, None) == 0.5
    assert share_closed(2.0, start=5.0, best=1.0) == 75
    assert share_closed(6.0, start=5.0, best=1.0) == -25
    assert share_closed(np.inf, start=5.0, best=1.0) == -np.inf


def test_summaries_hold_verdicts_to_the_goals() -> None:
    def outcome(kind: str, verdict: float, known: bool) -> dict[str, Any]:
        return {"kind": kind, "verdict": verdict, "known": known}

    found = {
        s.title: s[1:]
        for s in summaries(
            [
                outcome("convex", 1.2, True),
                outcome("convex", 3.0, False),
                outcome("noisy", 1.4, False),
                outcome("non-convex", -1.9, False),
                outcome("non-convex", -2.1, True),
            ]
        )
    }
    assert found["convex, with and without noise, all"] == (3, 1.4, 3.0, True)
    assert found["convex, fresh"] == (1, 3.0, 3.0, False)
    assert found["non-convex, fresh"] == (1, -1.9, -1.9, True)
    assert found["non-convex, all"] == (2, -2.0, -2.1, False)


def tiny(kind: str) -> Case:
    noisy = {"noise": 0.1, "batch_size": 1} if kind != "convex" else {}
    make = hb.problems.get("quadratic")
    return Case(
        kind,
        kind,
        lambda: make(3, 2, 2, condition=2.0, seed=401, **noisy),
        hb.complete(3),
        noisy=bool(noisy),
    )


@pytest.mark.parametrize("kind", ["convex", "noisy", "non-convex"])
def test_a_problem_of_each_kind_goes_through_and_is_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(study, "cases", lambda australian: [tiny(kind)])
    arguments = ["--only", kind, "--quick", "--out", str(tmp_path)]
    (outcome,) = study.main(arguments)
    assert outcome["default"]["status"] in ("converged", "finished")
    assert np.isfinite(outcome["verdict"])
    assert outcome["tuned"]["tried"] > 1
    folder = tmp_path / "quick"
    assert json.loads((folder / f"{kind}.json").read_text()) == outcome
    assert (folder / "table.md").read_text() == markdown([outcome])
    monkeypatch.setattr(study, "judge", lambda *_: pytest.fail("it is stored"))
    assert study.main(arguments) == [outcome]
    assert outcome["tuned"]["label"] in capsys.readouterr().out


def test_a_default_that_diverges_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = hb.solve

    def diverges(problem: Any, network: Any, algorithm: Any = None, **options: Any) -> Any:
        if algorithm is None:
            said = "The run diverged at step 3."
            raise hb.DivergenceError(said, step=3, agent=0, variable="y", history={})
        return solve(problem, network, algorithm, **options)

    monkeypatch.setattr(hb, "solve", diverges)
    outcome = study.judge(tiny("convex"), 60.0, True, None)
    assert (outcome["default"]["status"], outcome["verdict"]) == ("diverged", np.inf)
    assert outcome["tuned"]["arrival"]["samples"] > 0
    said = markdown([outcome])
    assert "Diverged or refused: convex." in said
    assert "| inf |" in said


def test_tuned_steps_are_near_the_best_possible() -> None:
    """Identical agents, and one number for x and for y: a few steps should do."""
    make = hb.problems.get("quadratic")
    problem = make(2, 1, 1, condition=1.0, heterogeneity=0.0, seed=402)
    bench = Bench(Case("one", "convex", lambda: problem, hb.complete(2), noisy=False), 60.0)
    ground = bench.ground()
    bench.start_clock()
    found = tune_convex(bench, ground, 2000.0, False)
    assert ground.largest == pytest.approx(1.0)
    assert found.arrival is not None
    assert found.arrival.step <= 15
    assert not found.cut


def test_the_clock_ends_a_search() -> None:
    bench = Bench(tiny("convex"), 0.0)
    bench.start_clock()
    found = tune_convex(bench, bench.ground(), 1000.0, True)
    assert found.cut
    assert (found.label, found.arrival, found.tried) == ("none arrived", None, 0)
