"""What every registered algorithm must do. A new file in `hobnob/algorithms` is tested as it is.

What an algorithm must bring along is a plain NumPy transcription, `tests/reference/NAME.py`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import fields, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.problems.quadratic import quadratic
from hobnob.run.run import Run
from tests.conformance import mailbox
from tests.reference.world import SEED, Logistic, Nested, compositional_problem, logistic_problem
from tests.simulated import simulated

NAMES = hb.algorithms.names()
# One algorithm after another, so that what is compiled for one check serves the next.
pytestmark = pytest.mark.parametrize("name", NAMES, scope="module")

IRREGULAR = nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)])
NETWORKS = {
    "star": hb.star(6),
    "irregular": hb.Network(IRREGULAR),
    "alone": hb.complete(1),
}
RAGGED = [5, 2, 9, 3, 4, 7]


# Which checks make sense for which algorithms; what does not apply is skipped with these words.
APPLIES = {
    "many agents": lambda a: not a.single_agent,
    "gossip": lambda a: not a.single_agent and not a.server,
}


@pytest.mark.parametrize("kind", APPLIES)
def test_every_check_applies_to_some_algorithm(name: str, kind: str) -> None:
    assert any(APPLIES[kind](hb.algorithms.get(n)) for n in NAMES)


def only_for(kind: str, name: str) -> None:
    if not APPLIES[kind](hb.algorithms.get(name)):
        pytest.skip(f"{name} is not for {kind}")


def problem_for(name: str, lengths: list[int], batch_size: int | None = 2) -> hb.Problem:
    return _problem(hb.algorithms.get(name).compositional, tuple(lengths), batch_size)


@cache
def _problem(compositional: bool, lengths: tuple[int, ...], batch_size: int | None) -> hb.Problem:
    make = compositional_problem if compositional else logistic_problem
    return make(list(lengths), batch_size)


def _where(name: str) -> str:
    return "alone" if hb.algorithms.get(name).single_agent else "irregular"


def suggested(name: str, smoothness: float = 3.0, strong_convexity: float = 0.5) -> Algorithm:
    return hb.algorithms.get(name).suggest(Scale(smoothness, strong_convexity))


def simulation(problem: hb.Problem, network: hb.Network, algorithm: Algorithm) -> Run:
    with problem.precision():
        return simulated(problem, network, algorithm, SEED)


@lru_cache(maxsize=4)
def compiled(name: str, where: str) -> Run:
    """One of the networks at work. Most checks look at the same few: each is compiled once."""
    problem = problem_for(name, RAGGED[: NETWORKS[where].size])
    return simulation(problem, NETWORKS[where], _short(suggested(name)))


def end_of(run: Run, steps: int) -> dict[str, np.ndarray]:
    """Every variable of every agent after so many steps."""
    with run.problem.precision():
        state = run.gather_unpacked(run.advance(run.initial_state(), 0, steps).state)
        return {name: np.asarray(value) for name, value in state._asdict().items()}


def test_there_are_algorithms_and_each_has_a_reference(name: str) -> None:
    assert NAMES, "no algorithm is registered, so nothing is tested"
    assert (Path(__file__).parents[1] / "reference" / f"{name}.py").exists()


# A ring tells no more than the irregular graph, and every one of these is compiled anew.
@pytest.mark.parametrize("where", ["star", "irregular", "alone"])
def test_equals_its_numpy_reference(name: str, where: str) -> None:
    if where != "alone":
        only_for("many agents", name)
    run = compiled(name, where)
    # Some iterations grow with t: fewer of them cost as much.
    steps = 60 if _grows(run) else 200
    world = (Nested if run.algorithm.compositional else Logistic)(run.problem, run.network, steps)
    expected = import_module(f"tests.reference.{name}").run(world, run.algorithm)
    found = end_of(run, steps)
    assert set(found) == set(expected)
    for variable, value in expected.items():
        assert np.abs(found[variable] - value).max() <= 1e-10, variable
        moved = np.abs(value - value.flat[0]).max()
        assert moved > 1e-3, f"{variable} does not move, so this compares nothing"


def test_equals_agents_that_are_really_apart(name: str) -> None:
    """Threads with mailboxes: same iterates, and as many messages and bytes as were counted."""
    run, steps = compiled(name, _where(name)), 2
    expected, mail = mailbox.run(run.problem, run.network, run.algorithm, SEED, steps)
    found = end_of(run, steps)
    for variable, value in expected.items():
        assert np.isfinite(value).all(), f"{variable}: an agent used records that are not its own"
        np.testing.assert_allclose(found[variable], value, rtol=0, atol=1e-12)
    with run.problem.precision():
        counted = run.costs.until(steps)
    np.testing.assert_array_equal(counted["messages"], mail.messages)
    np.testing.assert_array_equal(counted["bytes"], mail.bytes)


def test_disturbance_travels_one_hop_a_round(name: str) -> None:
    only_for("gossip", name)
    network = hb.path(15)
    problem = problem_for(name, [4] * 15)
    with problem.precision():
        run = simulated(problem, network, suggested(name), SEED)
        rounds = int(run.costs.until(3)["rounds"][0] - run.costs.until(2)["rounds"][0])
        calm = run.gather_unpacked(run.advance(run.initial_state(), 0, 2).state)
        disturbed = type(calm)(*(leaf.at[7].add(0.01) for leaf in calm))
        after, after_disturbed = (
            run.gather_unpacked(run.advance(run.pack(s), 2, 3).state) for s in (calm, disturbed)
        )
    moved = {
        k
        for old, new in zip(after, after_disturbed, strict=True)
        for k in range(15)
        if not np.array_equal(old[k], new[k])
    }
    assert rounds < 7, "everybody is within reach, so this shows nothing"
    assert moved <= set(range(7 - rounds, 7 + rounds + 1))
    assert moved >= {6, 7, 8}, "nothing crossed a link, so this shows nothing"


def test_identical_agents_stay_equal(name: str) -> None:
    only_for("many agents", name)
    problem = _noiseless(name, 5, heterogeneity=0.0)
    found = end_of(simulation(problem, hb.complete(5), suggested(name, 10.0, 1.0)), 50)
    for variable, value in found.items():
        assert np.abs(value - value[0]).max() <= 1e-12 * max(1, np.abs(value).max()), variable


def test_relabelling_the_agents_relabels_the_answer(name: str) -> None:
    """Without noise, since an agent's samples depend on its number."""
    only_for("many agents", name)
    order = np.array([3, 0, 5, 1, 4, 2])
    problem, network = problem_for(name, RAGGED, None), NETWORKS["irregular"]
    outer, inner = (_shards(s) for s in (problem.outer_data, problem.inner_data))
    relabelled = copy(problem)
    relabelled.outer_data = hb.Records([outer[k] for k in order], None)
    relabelled.inner_data = hb.Records([inner[k] for k in order], None)
    W = network.matrix[np.ix_(order, order)]
    algorithm = suggested(name)
    before = end_of(simulation(problem, network, algorithm), 30)
    after = end_of(simulation(relabelled, hb.Network(W), algorithm), 30)
    for variable, value in before.items():
        np.testing.assert_allclose(after[variable], value[order], rtol=0, atol=1e-10)


def test_right_point_without_noise(name: str) -> None:
    """Where constant steps lead when agents differ, held to what the algorithm says of itself."""
    algorithm = suggested(name, 4.0, 1.0)
    problem = _noiseless(name, 1 if algorithm.single_agent else 8)
    steps = 400 if _grows(simulation(problem, _ring(problem), algorithm)) else 3_000
    start = _gradient(problem, problem.x0)
    if algorithm.exact:
        assert _final_gradient(problem, algorithm, 5 * steps) <= 1e-9
    elif algorithm.biased:
        wrong = [_final_gradient(problem, _slowed(algorithm, f), steps) for f in (1, 2)]
        assert min(wrong) > start / 200, f"{name} says that it is biased, and is not"
        assert wrong[1] > wrong[0] / 1.5, "smaller steps mend it: that is no bias"
        same = _noiseless(name, 8, heterogeneity=0.0)
        right = _final_gradient(same, algorithm, steps)
        assert right < min(wrong) / 5, "identical agents should find the right point"
    elif algorithm.chance:
        # The mean over seeds: the iterates themselves keep moving.
        assert _final_gradient(problem, algorithm, steps, seed=range(40)) < start / 20
    else:
        coarse = _final_gradient(problem, algorithm, steps)
        fine = _final_gradient(problem, _slowed(algorithm, 10), 10 * steps)
        assert fine < coarse / 5, (coarse, fine)
        assert fine < start / 100, (start, fine)
        assert coarse > 1e-6, f"{name} says that it is not exact, and is: let it say so"


def test_resuming_is_bitwise(name: str, tmp_path: Path) -> None:
    network = NETWORKS[_where(name)]
    problem = problem_for(name, RAGGED[: network.size])

    def run(steps: int, **more: Any) -> hb.Result:
        # Exact metrics are the same for all algorithms, and slow to compile.
        more["metrics"] = ["outer_loss", "consensus"]
        algorithm = _short(suggested(name))
        return hb.solve(problem, network, algorithm, steps=steps, record_every=15, **more)

    straight = run(100)
    run(40, checkpoint=tmp_path)
    resumed = run(100, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.agents["x"], straight.agents["x"])
    for column, values in straight.history.items():
        if column != "seconds":
            np.testing.assert_array_equal(resumed.history[column], values, err_msg=column)


def test_compiles_once_and_keeps_shapes(name: str) -> None:
    run = compiled(name, _where(name))
    with run.problem.precision():
        state = start = run.initial_state()
        for a, b in ((0, 1), (1, 8), (8, 8), (8, 30)):
            state = run.advance(state, a, b).state
    assert run.compilations() == 1
    assert [(v.shape, v.dtype) for v in state] == [(v.shape, v.dtype) for v in start]


def test_stays_within_bounds(name: str) -> None:
    network = NETWORKS[_where(name)]
    bounded = copy(problem_for(name, RAGGED[: network.size]))
    start = bounded.x0
    least, most = start - 0.01, start + 0.01
    bounded.x_bounds = least, most
    seen: list[np.ndarray] = []
    hb.solve(
        bounded,
        network,
        suggested(name),
        steps=150,
        record_every=5,
        metrics=None,
        callback=lambda run, state: seen.append(np.asarray(state.x)),
    )
    every = np.stack(seen)
    assert (every >= least).all()
    assert (every <= most).all()
    met = np.isclose(every, least, rtol=0, atol=1e-12) | np.isclose(every, most, rtol=0, atol=1e-12)
    assert met.any(), "no bound was met, so this shows nothing"


def _noiseless(name: str, agents: int, heterogeneity: float = 1.0) -> hb.Problem:
    """A quadratic, or a compositional problem that is one, whose agents differ and are exact."""
    if not hb.algorithms.get(name).compositional:
        return quadratic(agents=agents, condition=4.0, seed=1, heterogeneity=heterogeneity)
    rng = np.random.default_rng(2)

    def differing(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + heterogeneity * rng.normal(size=(agents, 1, *shape)) / 2

    A, b, c = differing(4, 3) / 2, differing(4), differing(4)
    return hb.Compositional(
        lambda x, batch: jnp.mean(batch["A"] @ x + batch["b"], axis=0),
        lambda y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2,
        np.zeros(3),
        [{"A": A[k], "b": b[k]} for k in range(agents)],
        [c[k] for k in range(agents)],
        None,
        regulariser=lambda x: 0.1 * jnp.sum(x**2),
    )


def _ring(problem: hb.Problem) -> hb.Network:
    return hb.ring(problem.size)


def _gradient(problem: hb.Problem, x: Any) -> float:
    return float(np.linalg.norm(hb.exact(problem, x).gradient))


def _final_gradient(problem: hb.Problem, algorithm: Algorithm, steps: int, seed: Any = 0) -> float:
    result = hb.solve(problem, _ring(problem), algorithm, steps=steps, seed=seed, metrics=None)
    return _gradient(problem, result.x if isinstance(seed, int) else result.x.mean(axis=0))


def _grows(run: Run) -> bool:
    """Whether an iteration costs more the later it is."""
    with run.problem.precision():
        first, both = (run.costs.until(steps)["samples"][0] for steps in (1, 2))
        return bool(both > 2 * first)


def _short(algorithm: Algorithm) -> Any:
    """The same algorithm with fewer terms, for where every one takes a while."""
    return replace(algorithm, terms=5) if hasattr(algorithm, "terms") else algorithm


def _slowed(algorithm: Algorithm, factor: float) -> Any:
    """The same algorithm with every step size divided by a factor."""
    tunable = [
        f.name for f in fields(algorithm) if "range" in f.metadata and "fixed" not in f.metadata
    ]
    sizes = {name: getattr(algorithm, name) for name in tunable}
    return replace(algorithm, **{n: v / factor for n, v in sizes.items() if not callable(v)})


def _shards(source: Any) -> list[Any]:
    ends = source.starts + source.lengths
    return [
        jax.tree.map(lambda array, a=a, b=b: array[a:b], source.arrays)
        for a, b in zip(source.starts, ends, strict=True)
    ]
