"""Metrics: each against NumPy by hand, which are available, and the user's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.ledger import COLUMNS
from hobnob.metrics.view import View
from hobnob.run.recorder import Recorder
from tests.simulated import simulated as run_of

pytestmark = pytest.mark.slow

AGENTS = 3
DSBO = hb.DSBO(alpha=0.01, beta=0.1, gamma=0.05, terms=1, smoothness=20.0, strong_convexity=1.0)
DSOBA = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)  # its states are stored unchanged
OWN = ["consensus", "gradient_norm", "inner_distance", "inner_loss", "objective", "outer_loss"]


class Held(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    w: np.ndarray


def outer(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean((batch["a"] @ y - batch["b"]) ** 2) / 2


def inner(x: Any, y: Any, batch: Any) -> Any:
    fit = jnp.mean((batch["a"] @ y - batch["b"]) ** 2) / 2
    return fit + jnp.exp(x[0]) * (y @ y) / 2 - x[1] * y[0]


def shards(seed: int, lengths: tuple[int, ...] = (4, 2, 5)) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"a": rng.normal(size=(n, 2)), "b": rng.normal(size=n)} for n in lengths]


OUTER, INNER = shards(1), shards(2)


def regression(dtype: Any = np.float64, **options: Any) -> hb.Problem:
    start = np.zeros(2, dtype), np.zeros(2, dtype)
    return hb.Problem(outer, inner, *start, OUTER, INNER, batch_size=2, **options)


def random_state(seeds: tuple[int, ...] = ()) -> Held:
    rng = np.random.default_rng(7)
    return Held(*(rng.normal(size=(*seeds, AGENTS, *more)) for more in ((2,), (2,), (2, 3))))


def measured(problem: hb.Problem, state: Any, chosen: Any = "all", seed: Any = 0) -> dict[str, Any]:
    """The row that a real run's recorder makes of a given state."""
    with problem.precision():
        run = run_of(problem, hb.ring(problem.size), DSOBA, seed)
        state = jax.tree.map(jnp.asarray, state)
        return Recorder(run, chosen).record(5, state, 0.5, state)


def by_hand(problem: hb.Problem, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The regression's metrics in plain NumPy: all agents count alike, whatever their records."""

    def moments(data: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, float]:
        gram = np.mean([d["a"].T @ d["a"] / len(d["b"]) for d in data], axis=0)
        right = np.mean([d["a"].T @ d["b"] / len(d["b"]) for d in data], axis=0)
        return gram, right, float(np.mean([np.mean(d["b"] ** 2) for d in data]))

    (Af, bf, cf), (Ag, bg, cg) = moments(OUTER), moments(INNER)

    def fit(y: np.ndarray, A: np.ndarray, b: np.ndarray, c: float) -> float:
        return float(y @ A @ y - 2 * b @ y + c) / 2

    hessian = Ag + np.exp(x[0]) * np.eye(2)
    best = np.linalg.solve(hessian, bg + np.array([x[1], 0]))
    z = np.linalg.solve(hessian, Af @ best - bf)
    cross = np.array([np.exp(x[0]) * best, [-1, 0]])  # grad_xy g
    gradient = -cross @ z
    if problem.x_bounds is not None:
        gradient = x - np.clip(x - gradient, *problem.x_bounds)
    return {
        "outer_loss": fit(y, Af, bf, cf),
        "inner_loss": fit(y, Ag, bg, cg) + np.exp(x[0]) * (y @ y) / 2 - x[1] * y[0],
        "objective": fit(best, Af, bf, cf),
        "gradient_norm": float(np.linalg.norm(gradient)),
        "inner_distance": float(np.linalg.norm(y - best)),
    }


# Each against NumPy


@pytest.mark.parametrize("bounds", [None, (-0.1, 0.1)], ids=["free", "bounded"])
def test_own_metrics_by_hand(bounds):
    problem, state = regression(x_bounds=bounds), random_state()
    row = measured(problem, state)
    expected = by_hand(problem, state.x.mean(0), state.y.mean(0))
    for name, stack in state._asdict().items():
        middle = stack.mean(axis=0)
        expected[f"consensus_{name}"] = sum(((w - middle) ** 2).sum() for w in stack) / AGENTS
    assert expected.keys() == row.keys() - {"step", "seconds", *COLUMNS}
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-10), name
    assert (row["step"], row["seconds"]) == (5, 0.5)


def test_squared_error_where_the_solution_is_known():
    problem, state = regression(solution=np.array([1.0, -2.0])), random_state()
    error = measured(problem, state)["squared_error"]
    assert error == pytest.approx(((state.x.mean(0) - [1, -2]) ** 2).sum(), rel=1e-12)


def test_float32_is_measured_in_float32():
    problem, state = regression(np.float32), jax.tree.map(np.float32, random_state())
    row = measured(problem, state)
    expected = by_hand(problem, state.x.mean(0), state.y.mean(0))
    for name, value in expected.items():
        assert row[name].dtype == np.float32, name
        assert row[name] == pytest.approx(value, rel=1e-4), name


def test_several_seeds_are_measured_apart():
    problem, state = regression(), random_state((2,))
    chosen = ["outer_loss", "gradient_norm", "consensus"]
    both = measured(problem, state, chosen, seed=[0, 1])
    for seed in (0, 1):
        alone = measured(problem, jax.tree.map(lambda leaf, s=seed: leaf[s], state), chosen)
        for name in alone.keys() - {"step", "seconds", *COLUMNS}:
            assert both[name][seed] == pytest.approx(alone[name], rel=1e-12), name


def test_an_inner_problem_without_a_solution_gives_nan():
    def saddle(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(x[0] * y[0] ** 2 / 2 - batch * y[0])

    def distance(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y[0] - batch) ** 2)

    data = [np.array([1.0, 2.0])] * AGENTS
    problem = hb.Problem(distance, saddle, np.ones(1), np.zeros(1), data, data, batch_size=None)
    y = np.full((AGENTS, 1), 0.5)
    convex, flat, concave = (
        measured(problem, Held(np.full((AGENTS, 1), x), y, y)) for x in (2.0, 0.0, -2.0)
    )
    assert convex["objective"] == pytest.approx(np.mean((0.75 - data[0]) ** 2))
    for row in (flat, concave):
        for name in ("objective", "gradient_norm", "inner_distance"):
            assert np.isnan(row[name]), name
        assert np.isfinite(row["outer_loss"])  # it needs no inner solution


def test_nan_is_not_convergence():
    """F is undefined for x <= 0, so not even a large tolerance is reached there."""

    def falling(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch) * (10 * x[0] + 0 * y[0])

    def bowl(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch) * x[0] * y[0] ** 2 / 2

    data = [np.ones(2)] * AGENTS
    problem = hb.Problem(falling, bowl, np.ones(1), np.ones(1), data, data, batch_size=None)
    result = hb.solve(
        problem, hb.ring(AGENTS), DSBO, steps=60, record_every=60, tolerance=5.0, progress=False
    )
    assert result.x[0] < 0
    assert np.isnan(result.history["gradient_norm"][-1])
    assert result.status == "not converged"
    assert not result.success


# Which there are


def test_all_that_a_problem_allows():
    assert hb.metrics.available(regression()) == OWN
    assert hb.metrics.available(regression(solution=np.zeros(2))) == [*OWN, "squared_error"]


def simulated(expected: Any) -> hb.Problem:
    def draw(key: jax.Array, parameters: Any) -> Any:
        return parameters + jax.random.normal(key, parameters.shape, parameters.dtype)

    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.sum((y - batch) ** 2) / 2 + jnp.sum(x**2)

    def source() -> hb.Simulator:
        return hb.Simulator([np.full(2, float(k)) for k in range(AGENTS)], draw, expected)

    return hb.Problem(loss, loss, np.zeros(2), np.zeros(2), source(), source())


def test_a_simulator_that_does_not_know_its_mean_has_only_consensus():
    assert hb.metrics.available(simulated(None)) == ["consensus"]
    with pytest.raises(hb.SettingError, match=r"'objective' cannot be computed.*consensus"):
        hb.solve(simulated(None), hb.ring(AGENTS), DSBO, metrics=["objective"])
    with pytest.raises(hb.SettingError, match="tolerance needs the metric gradient_norm"):
        hb.solve(simulated(None), hb.ring(AGENTS), DSBO, tolerance=0.1)


def test_a_simulator_that_knows_its_mean_has_all():
    def mean(x: Any, y: Any, parameters: Any) -> Any:
        return jnp.sum((y - parameters) ** 2) / 2 + jnp.sum(x**2) + 1

    problem, state = simulated(mean), random_state()
    row = measured(problem, state)
    assert hb.metrics.available(problem) == OWN
    x, y = state.x.mean(0), state.y.mean(0)
    loss = np.mean([((y - k) ** 2).sum() for k in range(AGENTS)]) / 2 + x @ x + 1
    assert row["outer_loss"] == pytest.approx(loss)
    assert row["inner_distance"] == pytest.approx(np.linalg.norm(y - 1))


def test_exact_ones_are_left_out_for_many_inner_variables():
    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch) * jnp.sum(y**2) / 2 + jnp.sum(x**2)

    data = [np.ones(1)] * AGENTS
    few, many = (
        hb.Problem(loss, loss, np.zeros(1), np.zeros(size), data, data) for size in (300, 301)
    )
    assert hb.metrics.available(few) == OWN
    assert hb.metrics.available(many) == ["consensus", "inner_loss", "outer_loss"]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(hb.HobnobError, match=r"no metric 'loss'.*outer_loss"):
        measured(regression(), random_state(), ["loss"])


# The user's


def largest(view: hb.View) -> float:
    return float(np.abs(view.variables["x"]).max())


def ends(view: hb.View) -> dict[str, float]:
    return {"first": view.variables["w"][0, 0, 0], "last": view.variables["w"][-1, -1, -1]}


@pytest.mark.parametrize(
    ("chosen", "own", "users"),
    [
        (None, [], []),
        ("none", [], []),
        ("outer_loss", ["outer_loss"], []),
        (["outer_loss"], ["outer_loss"], []),
        (largest, ["consensus"], ["largest"]),
        ([largest], ["consensus"], ["largest"]),
        (["outer_loss", largest], ["outer_loss"], ["largest"]),
        ({"top": largest, "w": ends}, ["consensus"], ["top", "w"]),
    ],
)
def test_what_is_chosen_is_measured(chosen, own, users):
    # A simulator has only the consensus metric, which compiles quickly; functions are added to it.
    problem = simulated(None) if own == ["consensus"] else regression()
    row = measured(problem, random_state(), chosen)
    flat = {"consensus": ["consensus_x", "consensus_y", "consensus_w"], "w": ["w_first", "w_last"]}
    names = [part for name in [*own, *users] for part in flat.get(name, [name])]
    assert sorted(row) == sorted(["step", "seconds", *COLUMNS, *names])


@pytest.mark.parametrize("seed", [0, [0, 1]], ids=["one seed", "two seeds"])
def test_user_metrics_see_the_whole_network(seed):
    problem = regression()
    state = random_state(() if seed == 0 else (2,))
    row = measured(
        problem,
        state,
        {
            "top": largest,
            "w": ends,
            "loss": lambda view: view.outer_loss(view.flat_x, view.flat_y),
            "x1": lambda view: view.x[1],
        },
        seed,
    )
    stacks = [state] if seed == 0 else [Held(*(leaf[s] for leaf in state)) for s in seed]
    expected = {
        "top": [np.abs(s.x).max() for s in stacks],
        "w_first": [s.w[0, 0, 0] for s in stacks],
        "w_last": [s.w[-1, -1, -1] for s in stacks],
        "x1": [s.x.mean(0)[1] for s in stacks],
        "loss": np.atleast_1d(row["outer_loss"]),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(np.atleast_1d(row[name]), values, rtol=1e-12, err_msg=name)


def test_user_metrics_get_the_mean_in_the_users_shapes():
    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y["b"] - batch) ** 2) + jnp.sum(y["a"] ** 2) + jnp.sum(x["m"] ** 2)

    data = [np.zeros(2)] * AGENTS
    y0 = {"a": np.zeros((2, 2)), "b": np.zeros(())}
    problem = hb.Problem(loss, loss, {"m": np.zeros((2, 3))}, y0, data, data)
    x, y = np.arange(18.0).reshape(3, 6), np.arange(15.0).reshape(3, 5)
    seen: list[hb.View] = []
    with problem.precision():
        run, state = run_of(problem, hb.ring(AGENTS), DSOBA, 0), Held(x, y, y)
        Recorder(run, [lambda view: seen.append(view) or 0.0]).record(0, state, 0.0, state)
    assert isinstance(seen[0], View)
    np.testing.assert_array_equal(seen[0].x["m"], x.mean(0).reshape(2, 3))
    np.testing.assert_array_equal(seen[0].y["a"], y.mean(0)[:4].reshape(2, 2))
    assert seen[0].y["b"] == y.mean(0)[4]
    assert seen[0].problem is problem


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([lambda view: 1.0, lambda view: 2.0], "Two metrics are called '<lambda>'"),
        ({"seconds": largest}, "called 'seconds'"),
        ({"bytes": largest}, "called 'bytes'"),
        ({"objective": largest}, "called 'objective'"),
        ({"top": lambda view: None}, "'top' returned None"),
        ({"top": lambda view: view.x}, "'top' returned"),
        ({"top": lambda view: "high"}, "'top' returned 'high'"),
    ],
)
@pytest.mark.parametrize("seed", [0, [0, 1]], ids=["one seed", "two seeds"])
def test_user_metrics_that_cannot_be_a_column(chosen, message, seed):
    state = random_state(() if seed == 0 else (2,))
    with pytest.raises(hb.SettingError, match=message):
        measured(simulated(None), state, chosen, seed)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 1e3), ("float64", 1e6)])
def test_large_numbers_do_not_make_the_exact_metrics_nan(dtype, size):
    """The remaining gradient is judged relative to the terms that cancel in it."""
    rng = np.random.default_rng(0)
    shards = [(size * rng.normal(size=(9, 3))).astype(dtype) for _ in range(3)]

    def outer(x, y, batch):
        return jnp.mean(jnp.sum((batch - y) ** 2, axis=1)) / 2

    def inner(x, y, batch):
        return outer(x, y, batch) + jnp.sum(jnp.exp(x) * y**2) / 2

    start = np.zeros(3, dtype)
    problem = hb.Problem(outer, inner, start, start, shards, shards)
    dsbo = hb.DSBO(alpha=1e-20, beta=0.1, gamma=0.1, terms=3, smoothness=3.0, strong_convexity=1.0)
    history = hb.solve(problem, hb.ring(3), dsbo, steps=3).history
    assert np.isfinite(history["objective"]).all()
    assert np.isfinite(history["gradient_norm"]).all()
