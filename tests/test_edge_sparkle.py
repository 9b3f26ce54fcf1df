"""EdgeSPARKLE: it is SPARKLE, exact with local steps, and it survives what SPARKLE does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.core.links import Links
from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.testing.flows import by_link
from hobnob.testing.worlds import shards
from tests.reference.world import SEED, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

SCALE = hb.Scale(smoothness=2.0, strong_convexity=1.0)
PLAIN = hb.EdgeSPARKLE.suggest(SCALE)
FLOWS = PLAIN.flows
KINDS = {
    "one": PLAIN,
    "three": replace(PLAIN, rounds="three"),
    "local": replace(PLAIN, local_steps=4),
    "local-three": replace(PLAIN, local_steps=4, rounds="three"),
}


def posed(agents: int = 8) -> Quadratic:
    return quadratic(agents, 3, 4, condition=2.0, seed=1)


def error(problem: Quadratic, x: Any) -> float:
    """The distance of the farthest agent from the solution in closed form."""
    return float(np.abs(np.asarray(x) - problem.solution).max())


@pytest.mark.parametrize(
    "network",
    [hb.ring(6), hb.star(6), hb.ring(6).with_levels(y=hb.complete(6), z=hb.star(6))],
    ids=["ring", "star", "levels"],
)
def test_three_rounds_are_exact_diffusion(network: hb.Network) -> None:
    problem, steps = logistic_problem([5, 2, 9, 3, 4, 7]), 300
    edge = replace(hb.EdgeSPARKLE.suggest(hb.Scale(3.0, 0.5)), rounds="three")
    sparkle = hb.SPARKLE.suggest(hb.Scale(3.0, 0.5))
    found = []
    for algorithm in (edge, sparkle):
        with problem.precision():
            run = simulated(problem, network, algorithm, SEED)
            found.append(run.advance(run.initial_state(), 0, steps).state._asdict())
            costs = run.costs.until(steps)
        found[-1] |= {name: costs[name] for name in ("samples", "rounds", "bytes")}
    for name in ("x", "y", "z", "r", "samples", "rounds", "bytes"):
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=0, atol=1e-12)


def test_what_an_iteration_costs() -> None:
    problem = posed()
    for name, rounds, steps in (("one", 1, 1), ("three", 3, 1), ("local", 1, 4)):
        with problem.precision():
            costs = simulated(problem, hb.ring(8), KINDS[name]).costs.until(1)
        one = {column: int(values[0]) for column, values in costs.items()}
        assert one["rounds"] == rounds
        assert one["bytes"] == 2 * 8 * (3 + 4 + 4)
        assert (one["samples"], one["gradients"]) == (2 * steps, 2 * steps)
        assert (one["products"], one["matrices"]) == (2 * steps, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_the_solution_while_links_fail(kind: str) -> None:
    problem = posed()
    links = [hb.Silent(3, 100, 900), hb.Cut(5, 6, 300, 800), hb.Drop(0.3)]
    result = hb.solve(problem, hb.ring(8), KINDS[kind], steps=2500, links=links, metrics=None)
    assert error(problem, result.agents["x"]) <= 1e-9


@pytest.mark.parametrize("kind", ["local", "local-three"])
def test_at_the_solution_local_steps_stand_still(kind: str) -> None:
    """There D / tau is the step that an agent's own direction asks for, and takes it back."""
    problem, algorithm = posed(), KINDS[kind]
    gamma: Any = algorithm.gamma
    with problem.precision():
        run = simulated(problem, hb.ring(8), algorithm)
        state = run.advance(run.initial_state(), 0, 1500).state
    assert error(problem, state.x) <= 1e-12
    x, y = np.asarray(state.x), np.asarray(state.y)
    own = problem.inner_data.arrays
    gradients = [own["A"][k] @ y[k] - own["B"][k] @ x[k] - own["c"][k] for k in range(8)]
    D = np.asarray(state.y_flows).sum(axis=1) / 2
    assert np.abs(D).max() > 0.1
    np.testing.assert_allclose(D / 4, -gamma * np.array(gradients), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_the_solution_in_a_box(kind: str) -> None:
    """Agents push against the bound with different forces, and still agree."""
    problem = posed()
    least = problem.solution + np.array([-1.0, 0.3, -1.0])  # the second entry is at its bound
    problem.x0, problem.x_bounds = least + 0.5, (least, np.full(3, np.inf))
    result = hb.solve(problem, hb.ring(8), KINDS[kind], steps=2000, record_every=2000)
    assert result.history["gradient_norm"][-1] <= 1e-9
    assert result.history["consensus_x"][-1] <= 1e-18
    assert result.x[1] == pytest.approx(least[1], abs=1e-12)


# --- an agent leaves and comes back --------------------------------------------------------------

GONE, LEFT, BACK, SAVED = 3, 300, 700, 150


def returned(algorithm: Any, mend: Any) -> tuple[Quadratic, Any]:
    """Agent 3 dies in step 300, after some neighbours heard it and some did not, and comes back at
    step 700 with a state of step 150. `mend(state)` is what is done about its links."""
    problem, network = posed(), hb.ring(8)
    away = Links(hb.Silent(GONE, LEFT, BACK), network, BACK)
    half_heard = Links(hb.Cut(GONE, GONE + 1), network, 1)
    with problem.precision():
        run = simulated(problem, network, algorithm)
        saved = run.advance(run.initial_state(), 0, SAVED).state
        before = run.advance(saved, SAVED, LEFT).state
        # Agent 2 heard it in its last round, and agent 4 did not.
        heard = run.advance(before, LEFT, LEFT + 1).state
        unheard = simulated(problem, network, algorithm, links=half_heard)
        partly = unheard.advance(before, LEFT, LEFT + 1).state
        state = swapped(heard, partly, GONE + 1)
        alone = simulated(problem, network, algorithm, links=away)
        state = alone.advance(state, LEFT, BACK).state
        state = mend(swapped(state, saved, GONE))
        return problem, run.advance(state, BACK, 4000).state


def swapped(state: Any, other: Any, k: int) -> Any:
    """The state with agent k's part from another one."""
    return type(state)(*(a.at[k].set(b[k]) for a, b in zip(state, other, strict=True)))


def rows_of_the_link(k: int, j: int) -> tuple[int, int]:
    """Where agent k keeps its link to j, and j its link to k, on a ring of 8."""
    near = hb.ring(8).neighbours
    return near(k).index(j), near(j).index(k)


def repaired(state: Any, link: tuple[int, int], dropped: bool) -> Any:
    k, j = link
    at_k, at_j = rows_of_the_link(k, j)
    for name in FLOWS:
        rows = getattr(state, name)
        kept = 0 * rows[j, at_j] if dropped else rows[j, at_j]
        rows = rows.at[j, at_j].set(kept).at[k, at_k].set(-kept)
        state = state._replace(**{name: rows})
    return state


@pytest.mark.parametrize("dropped", [True, False], ids=["dropped", "held"])
@pytest.mark.parametrize("kind", ["one", "three", "local"])
def test_an_agent_returns_from_an_old_checkpoint(kind: str, dropped: bool) -> None:
    def mend(state: Any) -> Any:
        for j in (GONE - 1, GONE + 1):
            state = repaired(state, (GONE, j), dropped)
        return repaired(state, (GONE + 1, GONE + 2), dropped)

    problem, end = returned(KINDS[kind], mend)
    assert error(problem, end.x) <= 1e-9
    for name in FLOWS:
        kept = by_link(hb.ring(8), np.asarray(getattr(end, name)))
        assert (kept == -kept.swapaxes(0, 1)).all()


def test_without_links_of_its_own_sparkle_ends_at_a_wrong_point() -> None:
    problem, end = returned(hb.SPARKLE.suggest(SCALE), lambda state: state)
    assert error(problem, end.x) > 1e-3


@pytest.mark.parametrize("dropped", [True, False], ids=["dropped", "held"])
def test_what_the_others_find_while_an_agent_is_away(dropped: bool) -> None:
    """If they drop its links, the optimum of those present; if they hold them, that of all."""
    problem, network, met = posed(), hb.ring(8), 3000
    away = Links(hb.Silent(GONE, met), network, 3 * met)
    with problem.precision():
        run = simulated(problem, network, PLAIN)
        state = run.advance(run.initial_state(), 0, met).state
        if dropped:
            for j in (GONE - 1, GONE + 1):
                state = repaired(state, (GONE, j), dropped)
        end = simulated(problem, network, PLAIN, links=away).advance(state, met, 2 * met).state
    others = [k for k in range(8) if k != GONE]
    outer, inner = shards(problem.outer_data), shards(problem.inner_data)
    present = Quadratic([outer[k] for k in others], [inner[k] for k in others])
    assert error(present, problem.solution) > 1e-2
    expected = present if dropped else problem
    assert error(expected, np.asarray(end.x)[others]) <= 1e-9


# --- the rest ------------------------------------------------------------------------------------


def test_in_float32_it_does_not_drift() -> None:
    problem, truth = quadratic(8, 3, 4, condition=2.0, seed=1, dtype="float32"), posed()
    left = []
    for algorithm in (PLAIN, hb.SPARKLE.suggest(SCALE)):
        x = hb.solve(problem, hb.ring(8), algorithm, steps=10_000, metrics=None).x
        left.append(np.linalg.norm(truth.closed_form(x).gradient))
    assert left[0] < 1e-5
    assert left[1] > 100 * left[0]


def test_one_message_takes_one_network() -> None:
    network = hb.ring(8).with_levels(y=hb.star(8))
    with pytest.raises(hb.SettingError, match=r'level y, and with rounds = "one" all levels'):
        hb.solve(posed(), network, PLAIN)
    result = hb.solve(posed(), network, KINDS["three"], steps=1500, metrics=None)
    assert error(posed(), result.agents["x"]) <= 1e-9


def test_an_agent_alone_has_no_links(tmp_path: Path) -> None:
    problem = posed(1)
    for steps in (500, 1000):
        found = hb.solve(
            problem, hb.complete(1), PLAIN, steps=steps, checkpoint=tmp_path, resume=steps > 500
        )
    assert error(problem, found.x) <= 1e-9


@pytest.mark.parametrize(("value", "match"), [(0, "at least 1"), (1.5, "whole number")])
def test_local_steps_are_counted_from_one(value: Any, match: str) -> None:
    with pytest.raises(hb.SettingError, match=match):
        replace(PLAIN, local_steps=value)
