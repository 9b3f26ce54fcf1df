"""What every registered algorithm must do. A new file in `hobnob/algorithms` is tested as it is.

What an algorithm must bring along is a plain NumPy transcription, `tests/reference/NAME.py`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.algorithm import Algorithm, Scale
from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.runtimes.simulate import Simulate, Simulation
from tests.conformance import mailbox
from tests.reference.world import SEED, World, logistic_problem

NAMES = hb.algorithms.names()
pytestmark = pytest.mark.parametrize("name", NAMES)

IRREGULAR = nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)])
NETWORKS = {
    "ring": hb.ring(6),
    "star": hb.star(6),
    "irregular": hb.Network(IRREGULAR),
    "alone": hb.complete(1),
}
RAGGED = [5, 2, 9, 3, 4, 7]


def suggested(name: str, smoothness: float = 3.0, strong_convexity: float = 0.5) -> Algorithm:
    return hb.algorithms.get(name).suggest(Scale(smoothness, strong_convexity))


def final(
    problem: hb.Problem, network: Any, algorithm: Algorithm, steps: int, seed: int = SEED
) -> Any:
    """Every variable of every agent, through the simulation."""
    with problem.precision():
        run = Simulate().start(problem, network, algorithm.bind(network.size, steps), seed)
        state = run.advance(run.initial_state(), 0, steps).state
        return {name: np.asarray(value) for name, value in state._asdict().items()}


def test_there_are_algorithms_and_each_has_a_reference(name: str) -> None:
    assert NAMES, "no algorithm is registered, so nothing is tested"
    assert (Path(__file__).parents[1] / "reference" / f"{name}.py").exists()


@pytest.mark.parametrize("where", NETWORKS)
def test_equals_its_numpy_reference(name: str, where: str) -> None:
    network, steps = NETWORKS[where], 200
    problem = logistic_problem(RAGGED[: network.size])
    algorithm = suggested(name)
    expected = import_module(f"tests.reference.{name}").run(
        World(problem, network, steps), algorithm
    )
    found = final(problem, network, algorithm, steps)
    assert set(found) == set(expected)
    for variable, value in expected.items():
        assert np.abs(found[variable] - value).max() <= 1e-10, variable
        moved = np.abs(value - value.flat[0]).max()
        assert moved > 1e-3, f"{variable} does not move, so this compares nothing"


def test_equals_agents_that_are_really_apart(name: str) -> None:
    """Threads with mailboxes: same iterates, and as many messages and bytes as were counted."""
    network, steps = NETWORKS["irregular"], 4
    problem = logistic_problem(RAGGED)
    algorithm = suggested(name)
    expected, mail = mailbox.run(problem, network, algorithm, SEED, steps)
    found = final(problem, network, algorithm, steps)
    for variable, value in expected.items():
        assert np.isfinite(value).all(), f"{variable}: an agent used records that are not its own"
        np.testing.assert_allclose(found[variable], value, rtol=0, atol=1e-12)
    ledger = hb.solve(problem, network, algorithm, steps=steps, seed=SEED).ledger
    np.testing.assert_array_equal(ledger["messages"], mail.messages)
    np.testing.assert_array_equal(ledger["bytes"], mail.bytes)


def test_disturbance_travels_one_hop_a_round(name: str) -> None:
    network = hb.path(9)
    problem = logistic_problem([4] * 9)
    with problem.precision():
        run = Simulation(problem, network, suggested(name), SEED)
        rounds = int(run.cost_of_step["rounds"][0])
        calm = run.advance(run.initial_state(), 0, 3).state
        disturbed = type(calm)(*(leaf.at[4].add(0.01) for leaf in calm))
        after, after_disturbed = (run.advance(s, 3, 4).state for s in (calm, disturbed))
    moved = {
        k
        for old, new in zip(after, after_disturbed, strict=True)
        for k in range(9)
        if not np.array_equal(old[k], new[k])
    }
    reach = set(range(max(0, 4 - rounds), min(9, 4 + rounds + 1)))
    assert moved <= reach
    assert moved >= {3, 4, 5}, "nothing crossed a link, so this shows nothing"


def test_identical_agents_stay_equal(name: str) -> None:
    problem = quadratic(agents=5, heterogeneity=0.0)
    found = final(problem, hb.complete(5), suggested(name, 10.0, 1.0), 100)
    for variable, value in found.items():
        assert np.abs(value - value[0]).max() <= 1e-12 * max(1, np.abs(value).max()), variable


def test_relabelling_the_agents_relabels_the_answer(name: str) -> None:
    """Without noise, since an agent's samples depend on its number."""
    order = np.array([3, 0, 5, 1, 4, 2])
    problem, network = logistic_problem(RAGGED, None), NETWORKS["irregular"]
    outer, inner = (_shards(s) for s in (problem.outer_data, problem.inner_data))
    relabelled = hb.Problem(
        problem.outer,
        problem.inner,
        problem.x0,
        problem.y0,
        [outer[k] for k in order],
        [inner[k] for k in order],
        None,
    )
    W = network.matrix[np.ix_(order, order)]
    algorithm = suggested(name)
    before = final(problem, network, algorithm, 50)
    after = final(relabelled, hb.Network(W), algorithm, 50)
    for variable, value in before.items():
        np.testing.assert_allclose(after[variable], value[order], rtol=0, atol=1e-10)


def test_right_point_on_the_heterogeneous_quadratic(name: str) -> None:
    """Exact algorithms reach the solution; others come closer as their steps shrink."""
    problem = quadratic(agents=8, condition=4.0, seed=1)
    algorithm = suggested(name, 4.0, 1.0)
    if algorithm.exact:
        assert _final_gradient(problem, algorithm, 20_000) <= 1e-9
        return
    coarse = _final_gradient(problem, algorithm, 3_000)
    fine = _final_gradient(problem, _slowed(algorithm, 10), 30_000)
    start = np.linalg.norm(problem.closed_form(problem.x0).gradient)
    assert fine < coarse / 5, (coarse, fine)
    assert fine < start / 100, (start, fine)
    assert coarse > 1e-6, f"{name} says that it is not exact, and is: let it say so"


def test_resuming_is_bitwise(name: str, tmp_path: Path) -> None:
    problem, network = logistic_problem(RAGGED), NETWORKS["irregular"]

    def run(steps: int, **more: Any) -> hb.Result:
        return hb.solve(problem, network, suggested(name), steps=steps, record_every=15, **more)

    straight = run(100)
    run(40, checkpoint=tmp_path)
    resumed = run(100, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.agents["x"], straight.agents["x"])
    for column, values in straight.history.items():
        if column != "seconds":
            np.testing.assert_array_equal(resumed.history[column], values, err_msg=column)


def test_compiles_once_and_keeps_shapes(name: str) -> None:
    problem, network = logistic_problem(RAGGED), NETWORKS["ring"]
    with problem.precision():
        run = Simulation(problem, network, suggested(name), SEED)
        state = start = run.initial_state()
        for a, b in ((0, 1), (1, 8), (8, 8), (8, 30)):
            state = run.advance(state, a, b).state
    assert run.compilations() == 1
    assert [(v.shape, v.dtype) for v in state] == [(v.shape, v.dtype) for v in start]


def test_stays_within_bounds(name: str) -> None:
    problem = logistic_problem(RAGGED)
    bounded = hb.Problem(
        problem.outer,
        problem.inner,
        problem.x0,
        problem.y0,
        problem.outer_data,
        problem.inner_data,
        x_bounds=(-0.6, -0.4),
    )
    seen: list[np.ndarray] = []
    hb.solve(
        bounded,
        NETWORKS["ring"],
        suggested(name),
        steps=300,
        record_every=5,
        callback=lambda run, state: seen.append(np.asarray(state.x)),
    )
    every = np.stack(seen)
    assert every.min() >= -0.6
    assert every.max() <= -0.4
    assert (every == -0.6).any() or (every == -0.4).any(), "no bound was met, so this shows nothing"


def _final_gradient(problem: Quadratic, algorithm: Algorithm, steps: int) -> float:
    result = hb.solve(problem, hb.ring(8), algorithm, steps=steps, metrics=None)
    return float(np.linalg.norm(problem.closed_form(result.x).gradient))


def _slowed(algorithm: Algorithm, factor: float) -> Any:
    """The same algorithm with every step size divided by a factor."""
    tunable = [
        f.name for f in fields(algorithm) if "range" in f.metadata and "fixed" not in f.metadata
    ]
    return replace(algorithm, **{name: getattr(algorithm, name) / factor for name in tunable})


def _shards(source: Any) -> list[dict[str, np.ndarray]]:
    ends = source.starts + source.lengths
    return [
        {name: array[a:b] for name, array in source.arrays.items()}
        for a, b in zip(source.starts, ends, strict=True)
    ]
