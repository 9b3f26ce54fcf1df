"""`hobnob compare` and `hb.compare`, small: who takes part, what is counted, what is said."""

from __future__ import annotations

import os
import signal
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import hobnob as hb
from hobnob.cli import main as cli
from hobnob.core.fields import positive
from hobnob.ground.errors import ConfigError, SettingError
from hobnob.studies.compare import contest
from hobnob.studies.compare.contest import GRID, QUICK_GRID, at_end, score
from hobnob.studies.compare.ranking import Standing, ranked, recommendation, standing
from hobnob.studies.search import scaled, steps_within
from hobnob.studies.statistics import Interval

pytestmark = pytest.mark.slow

CONFIG = """
[problem]
name = "quadratic"
agents = 3
dim_x = 2
dim_y = 3
condition = 3.0
noise = 0.1
batch_size = 1

[network]
name = "ring"
"""


@lru_cache  # what is compiled for a problem is kept with it
def quadratic() -> Any:
    agents = 3
    return hb.problems.get("quadratic")(agents, 2, 3, condition=3.0, noise=0.1, batch_size=1)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "quadratic.toml"
    path.write_text(CONFIG)
    return path


class State(NamedTuple):
    x: Any
    y: Any
    z: Any


@dataclass(frozen=True, kw_only=True)
class Own(hb.Algorithm):
    """A method that no registry knows: SOBA with everything mixed."""

    exact: ClassVar[bool] = False
    alpha: Any = positive()
    gamma: Any = positive()

    @classmethod
    def suggest(cls, scale: hb.Scale) -> Own:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, gamma=0.2 / L)

    def init(self, agent: hb.Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y))

    def step(self, agent: hb.Agent, state: State) -> State:
        x, y, z = state
        alpha, gamma = agent.rates(self.alpha, self.gamma)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        grad_y_g, products = agent.inner_products(x, y, agent.draw_inner("xi"))
        Jz, Hz = products(z)
        W = agent.mix(state)
        return State(
            x=W.x - alpha * (grad_x_f - Jz),
            y=W.y - gamma * grad_y_g,
            z=W.z - gamma * (Hz - grad_y_f),
        )


@dataclass(frozen=True, kw_only=True)
class Explodes(Own):
    """Suggests steps that no problem stands."""

    @classmethod
    def suggest(cls, scale: hb.Scale) -> Own:
        return cls(alpha=1e6, gamma=1e6)


# --- the whole way -----------------------------------------------------------------------------


def test_the_command_ends_in_a_page_with_curves_a_table_and_a_sentence(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG + '\n[algorithm]\nname = "dsoba"\nalpha = 0.02\nbeta = 0.05\n')
    with config.open("a") as file:
        file.write("gamma = 0.05\ntheta = 0.2\n")
    out = tmp_path / "out"
    command = ["compare", str(config), "--algorithms", "dsoba", "--quick", "--quiet"]
    command += ["--seeds", "5", "--budget", "2000", "--workers", "1", "--out", str(out)]
    assert cli.main(command) == cli.DONE
    printed = capsys.readouterr().out
    assert "Take " in printed
    assert "report.html" in printed.replace("\n", "")
    page = (out / "report.html").read_text()
    assert "hobnob compare" in page
    assert "dsoba as given" in page
    for name in ("needs", "value-samples", "value-bytes", "value-seconds", "gradient-norm-step"):
        ElementTree.parse(out / "pictures" / f"{name}.svg")
        assert (out / "pictures" / f"{name}.csv").stat().st_size > 100
    rows = (out / "results.csv").read_text().splitlines()
    assert rows[0].startswith("method,seed,samples,bytes,messages,step,seconds,value")
    assert {row.split(",")[0] for row in rows[1:]} == {"dsoba", "dsoba as given"}
    assert cli.main(command) == cli.DONE, "again only draws"
    command[command.index("5")] = "7"
    assert cli.main(command) == cli.BAD_INPUT
    assert "was begun with seeds = 5, and now it is 7" in capsys.readouterr().err


def test_a_method_of_the_users_own_beside_registered_ones() -> None:
    problem = quadratic()
    found = hb.compare(
        problem, hb.ring(3), [Own, "sparkle"], quick=True, budget=2000, seeds=5, progress=False
    )
    assert {s.name for s in found.standings} == {"Own", "sparkle"}
    assert found.page is None
    assert found.recommendation == str(found)
    best = hb.optimum(problem).value
    start = hb.exact(problem, problem.x0).value
    assert found.target == pytest.approx(best + max(0.01 * abs(best), 0.001 * (start - best)))
    for s in found.standings:
        curve = found.curves[s.name]
        assert curve["value"].shape == (5, len(curve["step"]))
        assert curve["samples"][-1] == 2000 == 2 * curve["step"][-1]
        # What was needed is where the recorded curve first is below: read it off again.
        first = [np.flatnonzero(v <= found.target)[0] for v in curve["value"]]
        assert s.needs["samples"].value == np.median(curve["samples"][first])
        assert s.needs["bytes"].value == np.median(curve["bytes"][first])
    frame = found.to_pandas()
    assert len(frame) == sum(c["value"].size for c in found.curves.values())
    assert found.pictures["needs"].csv.startswith("cost,series,value,low,high\nsamples,")


def test_an_instance_runs_as_it_is_and_what_diverges_is_listed() -> None:
    problem = quadratic()
    own = Own(alpha=0.02, gamma=0.05)
    found = hb.compare(
        problem, hb.ring(3), {"mine": own, "bad": Explodes}, quick=True, budget=400, seeds=5
    )
    mine, bad = found.standings
    assert mine.settings == "alpha = 0.02, gamma = 0.05"
    assert len(found.curves["mine"]["tries"]) == 0
    assert bad.lost == "diverged in every try"
    assert not bad.there
    assert found.table[1]["at the end"] == "diverged in every try"
    assert found.table[1]["samples"] == "not reached"
    # It is what solve gives for the seeds that are measured.
    result = hb.solve(problem, hb.ring(3), own, steps=200, seed=[5, 6, 7, 8, 9], record_every=1)
    np.testing.assert_allclose(
        found.curves["mine"]["value"], result.history["objective"], rtol=1e-10
    )


def test_it_can_be_stopped_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, calls = quadratic(), []
    options: dict[str, Any] = {"quick": True, "steps": 200, "seeds": 5, "progress": False}
    whole = hb.compare(problem, hb.ring(3), ["dsoba"], **options)

    attempt = contest.attempt

    def then_stop(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["steps"])
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return attempt(*args, **kwargs)

    monkeypatch.setattr(contest, "attempt", then_stop)
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(KeyboardInterrupt):
        hb.compare(problem, hb.ring(3), ["dsoba"], out=tmp_path / "out", **options)
    assert len(calls) == 2
    assert not (tmp_path / "out" / "report.html").exists()
    monkeypatch.undo()
    resumed = hb.compare(problem, hb.ring(3), ["dsoba"], out=tmp_path / "out", **options)
    assert resumed.page == tmp_path / "out" / "report.html"
    np.testing.assert_array_equal(resumed.curves["dsoba"]["value"], whole.curves["dsoba"]["value"])


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algorithms", "nonsense"], "There is no algorithm 'nonsense'"),
        (["--without", "nonsense"], "There is no algorithm 'nonsense'"),
        (["--algorithms", "bsa"], "BSA is a method for one agent, and the network has 3"),
        (["--budget", "10", "--steps", "10"], "samples or a number of steps, not both"),
        (["--budget", "0"], "budget = 0.0 must be at least 1"),
        (["--seeds", "0"], "seeds = 0 must be at least 1"),
        (["--target", "nan"], "target = nan must be a finite number"),
        (["--target", "1e9"], "is met at the start"),
        (["--workers", "-1", "--algorithms", "dsoba"], "--workers -1 must be at least 0"),
    ],
)
def test_bad_input_is_named(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
) -> None:
    out = tmp_path / "out"
    assert cli.main(["compare", str(config), "--out", str(out), *flags]) == cli.BAD_INPUT
    assert message in capsys.readouterr().err
    assert not (out / "cells").exists()


def test_bad_contestants_are_named() -> None:
    problem = quadratic()
    with pytest.raises(SettingError, match="Two methods are called 'DSOBA'"):
        hb.compare(problem, hb.ring(3), [hb.DSOBA, hb.DSOBA])
    with pytest.raises(SettingError, match="42 is no method"):
        hb.compare(problem, hb.ring(3), {"x": 42})
    with pytest.raises(SettingError, match="has no `suggest`"):
        hb.compare(problem, hb.ring(3), [hb.Algorithm])
    with pytest.raises(ConfigError, match="no method to compare"):
        hb.compare(problem, hb.ring(3), [])


def test_a_target_that_nobody_reaches_is_told_with_the_nearest(
    config: Path, tmp_path: Path
) -> None:
    problem = quadratic()
    below = hb.optimum(problem).value - 1.0
    found = hb.compare(problem, hb.ring(3), ["dsoba"], quick=True, steps=100, seeds=5, target=below)
    assert not found.reached
    assert found.recommendation.startswith("No method reached F ≤ ")
    assert "dsoba came nearest" in found.recommendation
    assert (found.table[0]["samples"], found.table[0]["bytes"]) == ("not reached", "–")


def test_methods_that_do_not_fit_are_left_out_with_the_reason(monkeypatch: Any) -> None:
    from hobnob.studies import compare

    problem = quadratic()
    contestants, left_out = compare._contestants(problem, hb.ring(3), None, None, {}, ["dsbo"])
    names = [one.name for one in contestants]
    assert "sparkle" in names
    assert "dsbo" not in names
    assert "is a method for one agent" in left_out["bsa"]
    assert not set(names) & set(left_out)
    assert set(names) | set(left_out) | {"dsbo"} == set(hb.algorithms.names())


def test_a_file_gives_all_some_or_no_settings() -> None:
    from hobnob.cli.config import given_algorithm

    def given(**table: Any) -> dict[str, Any]:
        return given_algorithm({"algorithm": {"name": "dsbo", **table}})

    assert given() == given_algorithm({}) == {}
    ((name, make),) = given(terms=7).items()
    assert name == "dsbo, terms = 7"
    assert make(hb.Scale(3.0, 1.0)) == replace(hb.DSBO.suggest(hb.Scale(3.0, 1.0)), terms=7)
    every = hb.DSBO.suggest(hb.Scale(3.0, 1.0))
    assert given(**vars(every)) == {"dsbo as given": every}
    with pytest.raises(ConfigError, match="there is no option 'nonsense'"):
        given(nonsense=1)


# --- the parts ---------------------------------------------------------------------------------


def test_the_grid_moves_alpha_against_the_others() -> None:
    dsbo = hb.DSBO.suggest(hb.Scale(10.0, 1.0))
    moved: Any = scaled(dsbo, 0.5, 8.0)
    assert moved.alpha == pytest.approx(4 * dsbo.alpha)  # type: ignore[operator]
    assert moved.gamma == pytest.approx(0.5 * dsbo.gamma)  # type: ignore[operator]
    assert (moved.terms, moved.smoothness) == (dsbo.terms, dsbo.smoothness)
    assert scaled(dsbo, 1e9).step_sizes()["beta"] == 1.0
    for grid in (GRID, QUICK_GRID):
        points = [scaled(dsbo, *point) for point in grid.points]
        assert len({(p.step_sizes()["alpha"], p.step_sizes()["gamma"]) for p in points}) == len(
            grid.points
        )


def test_the_budget_is_the_same_for_methods_of_different_cost() -> None:
    problem, network = quadratic(), hb.ring(3)
    scale = hb.Scale(3.0, 1.0)
    for name, batches in (("dsbo", 14), ("sparkle", 2), ("madsbo", 8)):
        method = hb.algorithms.get(name).suggest(scale)
        assert steps_within(2800, problem, network, method) == 2800 // batches


def test_the_score_prefers_who_arrives_to_who_does_not_and_early_to_late() -> None:
    early = np.array([[3.0, 1.0, 2.0, 2.0]])
    late = np.array([[3.0, 3.0, 3.0, 1.0]])
    near = np.array([[3.0, 3.0, 3.0, 1.2]])
    far = np.array([[3.0, 3.0, 3.0, 2.9]])
    scores = [score(values, 1.0) for values in (early, late, near, far)]
    assert scores == sorted(scores)
    assert len(set(scores)) == 4
    assert score(far, None) == 2.9
    assert at_end(np.array([[9.0] * 18 + [1.0, 3.0]]))[0] == 2.0


def found_of(samples: list[float], each: int, cost: float) -> dict[str, Any]:
    """A contestant whose seeds reach 0 at these samples, at so many bytes a sample."""
    grid = np.arange(0, 101, 10, dtype=float)
    return {
        **dict.fromkeys(contest.COSTS, grid),
        "samples": grid,
        "bytes": grid * cost,
        "value": np.array([(grid < s).astype(float) for s in samples]),
        "tries": np.ones((each, 3)),
        "settings": np.array("alpha = 1"),
    }


def stand(name: str, samples: list[float], cost: float = 1.0, server: bool = False) -> Standing:
    return standing(name, found_of(samples, 3, cost), 0.0, server)


def test_a_standing_counts_seeds_that_never_arrive_as_infinite() -> None:
    never = np.inf
    s = stand("a", [10, 20, 30, never, 20, 10, 20])
    assert (s.reached, s.seeds) == (6, 7)
    assert s.needs["samples"].value == 20
    assert s.needs["samples"].high == np.inf
    assert s.there
    assert not stand("b", [10, never, never]).there
    assert [r.name for r in ranked([stand("slow", [50] * 6), stand("fast", [20] * 6)])] == [
        "fast",
        "slow",
    ]


def test_the_recommendation_follows_the_numbers() -> None:
    fast, slow = stand("fast", [20] * 6), stand("slow", [80] * 6)
    assert recommendation([fast, slow], "F ≤ 0", "F") == (
        "Take fast: to reach F ≤ 0 it took 20 samples and 20 B an agent, and needed the fewest of "
        "both."
    )
    thrifty = stand("thrifty", [40] * 6, cost=0.1)
    said = recommendation([fast, thrifty], "F ≤ 0", "F")
    assert said.startswith("Take fast if samples are expensive and thrifty if bytes are")
    assert "20 samples and 20 B an agent, the second 40 samples and 4 B an agent" in said
    frugal = stand("frugal", [20, 20, 20, 90, 90, 90], cost=0.1)
    said = recommendation([fast, frugal], "F ≤ 0", "F")
    assert said.startswith("Take frugal: ")
    assert "the fewest bytes. These seeds can't distinguish its samples from the fewest" in said
    twin = stand("twin", [20, 20, 20, 30, 30, 30])
    assert "can't distinguish it from twin" in recommendation([fast, twin], "F ≤ 0", "F")
    served = stand("served", [10] * 6, server=True)
    assert recommendation([served, slow], "F ≤ 0", "F").startswith("Take slow")
    assert "served (with a server)" in recommendation([served], "F ≤ 0", "F")
    lost = replace_end(stand("lost", [np.inf] * 6), np.inf)
    assert recommendation([lost], "F ≤ 0", "F").startswith("Every method diverged")


def replace_end(s: Standing, end: float) -> Standing:
    return s._replace(end=Interval(end, end, end))


@pytest.mark.parametrize("large", [False, True], ids=["small states", "large states"])
def test_a_run_with_step_sizes_given_at_run_time_is_the_same_run(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hobnob.run.turns._LARGE_STATE", 0 if large else 2**62)
    problem, network = quadratic(), hb.ring(3)
    runtime = hb.Simulate(retunable=True)
    options: dict[str, Any] = {"steps": 30, "seed": [0, 1], "metrics": None}
    for name in ("dsbo", "dsoba"):  # with a kernel of its own, and without
        method: Any = hb.algorithms.get(name).suggest(hb.Scale(3.0, 1.0))
        half = scaled(method, 0.5)
        hb.solve(problem, network, method, runtime=runtime, **options)
        shared = hb.solve(problem, network, half, runtime=runtime, **options)
        alone = hb.solve(problem, network, half, **options)
        np.testing.assert_allclose(shared.x, alone.x, rtol=1e-10)
    # Two step sizes and one compilation, for each of the two.
    assert runtime.programs is not None
    for loops in runtime.programs.values():
        assert {over: loop._cache_size() for over, loop in loops.items()} == {
            large: 1,
            not large: 0,
        }


def test_schedules_are_not_shared_with_constants() -> None:
    problem, network = quadratic(), hb.ring(3)
    runtime = hb.Simulate(retunable=True)
    own = Own(alpha=0.02, gamma=0.05)
    falling = replace(own, gamma=hb.schedules.capped(0.05, 1.0))
    ends = [
        hb.solve(problem, network, a, steps=60, metrics=None, runtime=runtime).x
        for a in (own, falling, own)
    ]
    assert np.array_equal(ends[0], ends[2])
    assert not np.allclose(ends[0], ends[1])
