"""hb.Compositional: y*(x) is the mean of the mappings, and all methods find the same point."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.problems.policy import policy

pytestmark = pytest.mark.slow

DIM, LENGTHS = 3, (4, 2, 7)
RNG = np.random.default_rng(8)
MAPS = [
    {"A": RNG.normal(size=(n, 2, DIM)) + RNG.normal(size=(2, DIM)), "b": RNG.normal(size=(n, 2))}
    for n in LENGTHS
]
TARGETS = [{"c": RNG.normal(size=(n + 1, 2)) + k} for k, n in enumerate(LENGTHS)]
POINT = np.array([0.4, -0.3, 0.2])


def mapping(x: Any, batch: Any) -> Any:
    """A vector and a number: sin(A x) + b, and the mean of exp(b_0) |x|^2."""
    vector = jnp.mean(jnp.sin(batch["A"] @ x["w"]) + batch["b"], axis=0)
    return {"vector": vector, "number": jnp.mean(jnp.exp(batch["b"][:, 0])) * x["w"] @ x["w"]}


def outer(y: Any, batch: Any) -> Any:
    gaps = jnp.cosh(y["vector"] - batch["c"])
    return jnp.mean(jnp.sum(gaps, axis=1)) + y["number"] ** 2 / 2 + y["number"] * y["vector"][0]


def regulariser(x: Any) -> Any:
    return 0.3 * jnp.sum(x["w"] ** 4)


def nested(**changes: Any) -> hb.Compositional:
    given: dict[str, Any] = {
        "mapping": mapping,
        "outer": outer,
        "x0": {"w": np.zeros(DIM)},
        "mapping_data": MAPS,
        "outer_data": TARGETS,
        "batch_size": 2,
        "regulariser": regulariser,
    }
    return hb.Compositional(**given | changes)


def h_by_hand(w: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean over agents of each agent's mean over its records, in NumPy."""
    vectors = [(np.sin(s["A"] @ w) + s["b"]).mean(axis=0) for s in MAPS]
    numbers = [np.exp(s["b"][:, 0]).mean() * w @ w for s in MAPS]
    return np.mean(vectors, axis=0), float(np.mean(numbers))


def F_by_hand(w: np.ndarray, weight: float = 0.3) -> float:
    vector, number = h_by_hand(w)
    fits = [np.cosh(vector - s["c"]).sum(axis=1).mean() for s in TARGETS]
    return float(np.mean(fits) + number**2 / 2 + number * vector[0] + weight * np.sum(w**4))


def test_y_star_is_the_mean_of_the_mappings() -> None:
    """For ragged shards, and for a y that is a pytree."""
    problem = nested()
    assert problem.compositional
    assert (problem.dim_x, problem.dim_y) == (DIM, 3)
    for w in (np.zeros(DIM), POINT, 3 * POINT):
        found = hb.exact(problem, {"w": w})
        vector, number = h_by_hand(w)
        np.testing.assert_allclose(found.y["vector"], vector, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.y["number"], number, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.value, F_by_hand(w), rtol=1e-12)


@pytest.mark.parametrize("weight", [0.3, None])
def test_the_gradient_of_f(weight: float | None) -> None:
    problem = nested(regulariser=regulariser if weight else None)
    found = hb.exact(problem, {"w": POINT})

    def central(value: Any, step: float = 1e-5) -> np.ndarray:
        ahead, behind = (
            np.array([value(POINT + s * step * e) for e in np.eye(DIM)]) for s in (1, -1)
        )
        return (ahead - behind) / (2 * step)

    by_hand = central(lambda w: F_by_hand(w, weight or 0.0))
    np.testing.assert_allclose(found.gradient["w"], by_hand, rtol=1e-7)
    through = central(lambda w: hb.exact(problem, {"w": w}).value)
    np.testing.assert_allclose(found.gradient["w"], through, rtol=1e-7)
    assert np.abs(by_hand).min() > 1e-2


def test_the_inner_hessian_is_the_identity() -> None:
    curvature = hb.curvature(nested(), {"w": POINT})
    np.testing.assert_allclose(curvature, (1, 1), rtol=1e-12)


def test_y_starts_at_zero_in_the_shape_of_the_mapping() -> None:
    y0 = nested().y0
    assert y0["vector"].tolist() == [0, 0]
    assert y0["number"].shape == ()
    assert y0["number"] == 0


def test_records_may_come_with_a_batch_size_or_as_one_array() -> None:
    own = nested(mapping_data=hb.Records(MAPS, 5))
    assert own.inner_data.samples_per_draw().tolist() == [5, 5, 5]
    assert own.outer_data.samples_per_draw().tolist() == [2, 2, 2]
    stacked = np.random.default_rng(1).normal(size=(4, 6, DIM))
    problems = [
        hb.Compositional(
            lambda x, batch: jnp.mean(batch * x, axis=0),
            lambda y, batch: jnp.sum(y**2) - jnp.mean(batch @ y),
            np.ones(DIM),
            data,
            stacked,
        )
        for data in (stacked, list(stacked))
    ]
    ys = [hb.exact(p, POINT).y for p in problems]
    np.testing.assert_allclose(ys[0], stacked.mean(axis=(0, 1)) * POINT, rtol=1e-10)
    np.testing.assert_array_equal(ys[0], ys[1])


# --- methods -----------------------------------------------------------------------------------


def alone(dtype: Any = np.float64, batch_size: int | None = None) -> hb.Compositional:
    """All records in one place and flat, so that F is well conditioned."""
    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(6, 4, DIM)) / 2 + np.eye(4, DIM), rng.normal(size=(6, 4)) / 2
    return hb.Compositional(
        lambda x, batch: jnp.mean(jnp.tanh(batch["A"] @ x) + batch["b"], axis=0),
        lambda y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2,
        np.zeros(DIM, dtype),
        [{"A": A, "b": b}],
        [rng.normal(size=(5, 4)) / 2],
        batch_size,
        regulariser=lambda x: 0.1 * jnp.sum(x**2),
    )


def dsbo(**changes: Any) -> hb.DSBO:
    given: dict[str, Any] = {
        "alpha": 0.1,
        "beta": 0.5,
        "gamma": 0.5,
        "terms": 40,
        "smoothness": 2.0,
        "strong_convexity": 1.0,
    }
    return hb.DSBO(**given | changes)


@pytest.mark.parametrize(
    "algorithm",
    [dsbo(), hb.SCGD(alpha=0.1, beta=0.5), hb.NASA(tau=0.2, a=2.0, b=2.0, c=4.0)],
    ids=["dsbo", "scgd", "nasa"],
)
def test_bilevel_and_compositional_methods_come_to_the_same_point(algorithm: Any) -> None:
    problem = alone()
    best = hb.optimum(problem, tolerance=1e-10)
    assert np.abs(best.x).max() > 0.1
    result = hb.solve(problem, hb.complete(1), algorithm, steps=1500, metrics=None)
    np.testing.assert_allclose(result.x, best.x, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.y, best.y, rtol=0, atol=1e-7)


def test_with_noise_they_come_near_it() -> None:
    """Means over 8 seeds; a method that went elsewhere would stay as far away as the start."""
    problem, start = alone(batch_size=2), float(np.linalg.norm(hb.optimum(alone()).x))
    for algorithm in (
        dsbo(alpha=0.02, beta=0.2, gamma=0.2, terms=5),
        hb.SCGD(alpha=0.02, beta=0.2),
    ):
        result = hb.solve(
            problem, hb.complete(1), algorithm, steps=800, seed=range(8), metrics=None
        )
        gap = np.linalg.norm(result.x.mean(axis=0) - hb.optimum(alone()).x)
        assert gap < start / 5
        assert np.ptp(result.x, axis=0).min() > 1e-3, "nothing is random"


def test_dsbo_solves_it_over_a_network() -> None:
    """Agents differ, so constant steps leave a gap that shrinks with them."""
    problem = nested(batch_size=None)
    gaps = []
    for slow in (1, 4):
        algorithm = dsbo(alpha=0.02 / slow, beta=0.5 / slow, gamma=0.5 / slow)
        result = hb.solve(problem, hb.ring(3), algorithm, steps=400 * slow, metrics=None)
        gaps.append(np.linalg.norm(hb.exact(problem, result.x).gradient["w"]))
    start = np.linalg.norm(hb.exact(problem, problem.x0).gradient["w"])
    assert gaps[0] < start / 5
    assert gaps[1] < gaps[0] / 2


@pytest.mark.parametrize(
    "algorithm",
    [hb.DSGD(alpha=0.05, eta=hb.schedules.InverseRule(1.0)), dsbo(alpha=0.05, terms=5)],
    ids=["dsgd", "dsbo"],
)
def test_policy_evaluation_is_compositional(algorithm: Any) -> None:
    problem = policy(agents=3, states=20, features=2, reward_noise=0.1)
    assert problem.compositional
    result = hb.solve(problem, hb.ring(3), algorithm, steps=150, record_every=150)
    gradient, squared = result.history["gradient_norm"], result.history["squared_error"]
    assert gradient[1] < gradient[0] / 4
    assert squared[1] < squared[0] / 10


# --- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [dsbo(), hb.SCGD(alpha=0.1, beta=0.5)], ids=["dsbo", "scgd"])
def test_float32(algorithm: Any) -> None:
    results = {}
    for dtype in (np.float32, np.float64):
        problem = alone(dtype, batch_size=2)
        assert problem.dtype == dtype
        assert problem.y0.dtype == dtype
        results[dtype] = hb.solve(problem, hb.complete(1), algorithm, steps=20, metrics=None)
        assert results[dtype].x.dtype == dtype
        assert results[dtype].y.dtype == dtype
    np.testing.assert_allclose(results[np.float32].x, results[np.float64].x, rtol=0, atol=1e-5)
    assert (results[np.float32].x != results[np.float64].x).any()


# --- bad input ---------------------------------------------------------------------------------


def test_simulators_are_refused_with_a_way_out() -> None:
    simulator = hb.Simulator([np.ones(2)] * 3, lambda key, p: p)
    with pytest.raises(hb.ProblemError) as caught:
        nested(mapping_data=simulator)
    assert str(caught.value) == (
        "mapping_data must be records: for a simulator, write g = 1/2 |y - h(x)|^2 as the inner "
        "loss of a Problem and set its `compositional` to True."
    )


def test_the_way_out_works() -> None:
    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.sum((y - x * batch) ** 2) / 2

    simulator = hb.Simulator([np.array([2.0, -1.0])], lambda key, p: p)
    data = [np.array([[1.0, 1.0]])]
    problem = hb.Problem(
        lambda x, y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2,
        inner,
        np.zeros(2),
        np.zeros(2),
        data,
        simulator,
    )
    problem.compositional = True
    result = hb.solve(
        problem, hb.complete(1), hb.SCGD(alpha=0.1, beta=0.5), steps=300, metrics=None
    )
    np.testing.assert_allclose(result.x, [0.5, -1.0], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mapping": lambda x, batch: batch["labels"]}, r"mapping\(x, batch\) failed.*KeyError"),
        ({"mapping_data": []}, "mapping_data is empty: it needs one shard per agent"),
        ({"mapping_data": MAPS[0]}, "mapping_data must be a list with one entry per agent"),
        ({"mapping_data": MAPS[:2]}, "outer_data has 3 shards and inner_data has 2"),
        ({"batch_size": 0}, "batch_size = 0 draws nothing"),
        ({"outer": lambda y, batch: jnp.mean(batch["c"])}, "does not depend on y"),
        ({"outer": lambda y, batch: y["vector"]}, "must return one real number"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(hb.ProblemError, match=words):
        nested(**changes)


def test_suggested_settings_run() -> None:
    for name in ("scgd", "nasa", "dsgd"):
        algorithm = hb.algorithms.get(name).suggest(Scale(1.0, 1.0))
        result = hb.solve(alone(), hb.complete(1), algorithm, steps=60, record_every=60)
        objective = result.history["objective"]
        assert objective[1] < objective[0]
