"""The solver on pooled data: against closed forms, finite differences and its other path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.analysis import exact as pooled

pytestmark = pytest.mark.slow

AGENTS, DIM_X, DIM_Y = 3, 2, 4


class ByHand:
    """g_k = y' A_k y / 2 - y' (B_k x + c_k) and f_k = |y - t_k|^2 / 2 + |x - r_k|^2 / 2."""

    def __init__(self, dtype: Any = np.float64):
        rng = np.random.default_rng(0)
        roots = rng.normal(size=(AGENTS, DIM_Y, DIM_Y))
        self.inner_data = [
            {
                "A": (root @ root.T + np.eye(DIM_Y))[None],
                "B": rng.normal(size=(1, DIM_Y, DIM_X)),
                "c": rng.normal(size=(1, DIM_Y)),
            }
            for root in roots
        ]
        # Ragged: the mean over agents is a mean of means.
        self.outer_data = [
            {"t": rng.normal(size=(n, DIM_Y)), "r": rng.normal(size=(n, DIM_X))} for n in (1, 5, 2)
        ]
        if dtype == np.float32:
            # A float32 problem keeps rounded records, so exact values refer to those.
            for shard in (*self.inner_data, *self.outer_data):
                shard.update({k: a.astype(dtype).astype(np.float64) for k, a in shard.items()})
        self.dtype = dtype
        self.A, self.B, self.c = (
            np.mean([shard[name][0] for shard in self.inner_data], axis=0) for name in "ABc"
        )
        self.slope = np.linalg.solve(self.A, self.B)
        self.offset = np.linalg.solve(self.A, self.c)

    def problem(self, **options: Any) -> hb.Problem:
        def outer(x: Any, y: Any, b: Any) -> Any:
            apart = jnp.sum((y - b["t"]) ** 2, axis=1) + jnp.sum((x - b["r"]) ** 2, axis=1)
            return jnp.mean(apart) / 2

        def inner(x: Any, y: Any, b: Any) -> Any:
            return jnp.mean(b["A"] @ y @ y / 2 - b["B"] @ x @ y - b["c"] @ y)

        start = np.zeros(DIM_X, self.dtype), np.zeros(DIM_Y, self.dtype)
        data = self.outer_data, self.inner_data
        return hb.Problem(outer, inner, *start, *data, 1, **options)

    def y(self, x: np.ndarray) -> np.ndarray:
        return self.slope @ x + self.offset

    def value(self, x: np.ndarray) -> float:
        y = self.y(x)
        shares = [
            np.mean(np.sum((y - s["t"]) ** 2, axis=1) + np.sum((x - s["r"]) ** 2, axis=1)) / 2
            for s in self.outer_data
        ]
        return float(np.mean(shares))

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        t, r = (np.mean([s[name].mean(axis=0) for s in self.outer_data], axis=0) for name in "tr")
        return t, r

    def gradient(self, x: np.ndarray) -> np.ndarray:
        t, r = self.means()
        return x - r + self.slope.T @ (self.y(x) - t)

    def solution(self) -> np.ndarray:
        t, r = self.means()
        hessian = np.eye(DIM_X) + self.slope.T @ self.slope
        return np.linalg.solve(hessian, r + self.slope.T @ (t - self.offset))


X = np.array([0.7, -1.3])
BY_HAND = ByHand()
PROBLEM = BY_HAND.problem()


@pytest.fixture
def conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Hessian is small enough to be formed."""
    monkeypatch.setattr(pooled, "DENSE", 0)
    pooled._compiled.cache_clear()
    yield
    pooled._compiled.cache_clear()


def check_against_closed_form() -> None:
    value, gradient, y = hb.exact(PROBLEM, X)
    assert value == pytest.approx(BY_HAND.value(X), rel=1e-10)
    np.testing.assert_allclose(gradient, BY_HAND.gradient(X), rtol=1e-10)
    np.testing.assert_allclose(y, BY_HAND.y(X), rtol=1e-10)


def test_exact_is_the_closed_form() -> None:
    check_against_closed_form()


@pytest.mark.usefixtures("conjugate_gradients")
def test_exact_is_the_closed_form_by_conjugate_gradients() -> None:
    with pytest.raises(hb.ProblemError, match="limit is 0"):
        hb.curvature(PROBLEM)  # so the other path is taken
    check_against_closed_form()


@cache
def logistic() -> hb.Problem:
    """Ridge weights exp(x) of a logistic regression, with ragged shards."""
    rng = np.random.default_rng(3)

    def shard(n: int) -> dict[str, np.ndarray]:
        return {"a": rng.normal(size=(n, 3)), "b": rng.choice([-1.0, 1.0], size=n)}

    def outer(x: Any, y: Any, b: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0, -b["b"] * (b["a"] @ y)))

    def inner(x: Any, y: Any, b: Any) -> Any:
        return outer(x, y, b) + jnp.sum(jnp.exp(x) * y**2) / 2

    lengths = (5, 9, 7)
    outer_data, inner_data = [shard(n) for n in lengths], [shard(n) for n in lengths]
    return hb.Problem(outer, inner, np.full(3, -2.0), np.zeros(3), outer_data, inner_data)


def test_the_gradient_is_the_slope_of_the_value() -> None:
    problem, x, h = logistic(), np.array([-1.0, -2.0, 0.3]), 1e-5
    slopes = [
        (hb.exact(problem, x + h * e).value - hb.exact(problem, x - h * e).value) / (2 * h)
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(hb.exact(problem, x).gradient, slopes, rtol=1e-7)


def test_y_solves_the_inner_problem() -> None:
    problem = logistic()
    x = np.array([-1.0, -2.0, 0.3])
    y = hb.exact(problem, x).y
    with jax.enable_x64(True):
        place = problem.place()[1]
        slope = jax.grad(lambda y: problem.pooled_inner(jnp.asarray(x), y, place))(y)
    assert np.linalg.norm(slope) < 1e-13


def test_both_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, x = logistic(), np.array([-1.0, -2.0, 0.3])
    dense = hb.exact(problem, x)
    monkeypatch.setattr(pooled, "DENSE", 0)
    pooled._compiled.cache_clear()
    products = hb.exact(problem, x)
    pooled._compiled.cache_clear()
    for one, other in zip(dense, products, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_single_precision_problems_get_double_precision_answers() -> None:
    rounded = ByHand(np.float32)
    problem = rounded.problem()
    assert problem.dtype == np.float32
    value, gradient, y = hb.exact(problem, X)
    assert gradient.dtype == y.dtype == np.float64
    assert value == pytest.approx(rounded.value(X), rel=1e-10)
    np.testing.assert_allclose(gradient, rounded.gradient(X), rtol=1e-10)
    np.testing.assert_allclose(y, rounded.y(X), rtol=1e-10)


def test_pytrees() -> None:
    """The flat problem's numbers in a dict with a scalar and a matrix."""
    rng = np.random.default_rng(5)
    data = [rng.normal(size=(4, 2, 2)) for _ in range(2)]

    def inner(x: Any, y: Any, b: Any) -> Any:
        ridge = jnp.exp(x["scale"]) * jnp.sum(y["matrix"] ** 2) + y["scalar"] ** 2
        pull = jnp.mean(jnp.sum(b * y["matrix"], axis=(1, 2)))
        return ridge / 2 - pull - jnp.sum(x["shift"]) * y["scalar"]

    def outer(x: Any, y: Any, b: Any) -> Any:
        apart = jnp.mean(jnp.sum((b - y["matrix"]) ** 2, axis=(1, 2)))
        return apart / 2 + (y["scalar"] - 1) ** 2 / 2

    x0 = {"scale": np.array(0.0), "shift": np.zeros((1, 2))}
    y0 = {"matrix": np.zeros((2, 2)), "scalar": np.array(0.0)}
    problem = hb.Problem(outer, inner, x0, y0, data, data)
    x = {"scale": np.array(0.4), "shift": np.array([[0.5, -2.0]])}
    value, gradient, y = hb.exact(problem, x)

    mean = np.mean(data, axis=(0, 1))  # y*: matrix = mean / exp(scale), scalar = sum of shift
    np.testing.assert_allclose(y["matrix"], mean * np.exp(-0.4), rtol=1e-12)
    assert y["scalar"].shape == ()
    assert y["scalar"] == pytest.approx(-1.5)
    assert gradient["shift"].shape == (1, 2)
    np.testing.assert_allclose(gradient["shift"], [[-2.5, -2.5]], rtol=1e-12)
    to_matrix = y["matrix"] - mean
    assert gradient["scale"] == pytest.approx(-np.sum(to_matrix * y["matrix"]), rel=1e-12)
    spread = np.mean([np.sum((b - y["matrix"]) ** 2) for shard in data for b in shard])
    assert value == pytest.approx(spread / 2 + 2.5**2 / 2, rel=1e-12)

    found = hb.optimum(problem)
    assert found.x["shift"].shape == (1, 2)
    assert np.sum(found.x["shift"]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(found.y["matrix"], mean, rtol=1e-5)


def test_the_optimum_is_the_solution() -> None:
    found = hb.optimum(PROBLEM)
    np.testing.assert_allclose(found.x, BY_HAND.solution(), atol=1e-7)
    np.testing.assert_allclose(found.y, BY_HAND.y(BY_HAND.solution()), atol=1e-7)
    assert found.value == pytest.approx(BY_HAND.value(BY_HAND.solution()), rel=1e-10)
    assert found.gradient_norm < 1e-7


def test_the_optimum_in_a_box() -> None:
    """KKT: the gradient vanishes inside and points out of the box where a bound is active."""
    free = BY_HAND.solution()
    lower, upper = np.array([-10.0, -10.0]), np.array([10.0, 10.0])
    # A bound on the first coordinate between the start, 0, and the free solution.
    if free[0] > 0:
        upper[0] = free[0] / 2
    else:
        lower[0] = free[0] / 2
    found = hb.optimum(BY_HAND.problem(x_bounds=(lower, upper)))
    gradient = BY_HAND.gradient(found.x)
    assert found.x[0] == pytest.approx(free[0] / 2, abs=1e-12)
    assert lower[1] < found.x[1] < upper[1]
    assert gradient[0] * np.sign(free[0]) < -1e-3
    assert abs(gradient[1]) < 1e-7
    assert found.gradient_norm < 1e-7  # of the projected gradient


def test_the_optimum_from_another_start() -> None:
    found = hb.optimum(PROBLEM, x0=np.array([30.0, -40.0]))
    np.testing.assert_allclose(found.x, BY_HAND.solution(), atol=1e-6)


def test_curvature_is_the_range_of_eigenvalues() -> None:
    values = np.linalg.eigvalsh(BY_HAND.A)
    found = hb.curvature(PROBLEM)
    assert found.smallest == pytest.approx(values[0], rel=1e-12)
    assert found.largest == pytest.approx(values[-1], rel=1e-12)


def test_curvature_elsewhere() -> None:
    problem, x, y = logistic(), np.array([0.5, 1.0, 2.0]), np.array([0.3, 0.0, -2.0])
    arrays: Any = problem.inner_data.arrays
    margins = arrays["a"] @ y
    weights = 1 / (2 + 2 * np.cosh(margins)) / (3 * np.repeat([5, 9, 7], [5, 9, 7]))
    hessian = (arrays["a"].T * weights) @ arrays["a"] + np.diag(np.exp(x))
    values = np.linalg.eigvalsh(hessian)
    found = hb.curvature(problem, x, y)
    np.testing.assert_allclose(found, (values[0], values[-1]), rtol=1e-12)


def flat_where_x_is_zero() -> hb.Problem:
    def inner(x: Any, y: Any, b: Any) -> Any:
        return jnp.sum(x * y**2) / 2 - jnp.mean(b) * y[0]

    def outer(x: Any, y: Any, b: Any) -> Any:
        return jnp.mean((y - b) ** 2)

    data = [np.ones((2, 1))] * 2
    return hb.Problem(outer, inner, np.ones(2), np.zeros(2), data, data)


def test_where_the_inner_problem_is_flat() -> None:
    problem = flat_where_x_is_zero()
    np.testing.assert_allclose(hb.exact(problem, np.array([2.0, 1.0])).y, [0.5, 0])
    assert hb.curvature(problem, np.array([3.0, 0.0])) == (0, 3)
    with pytest.raises(hb.ProblemError, match=r"smallest curvature at \(x, y0\) is 0\. It must be"):
        hb.exact(problem, np.array([3.0, 0.0]))
    with pytest.raises(hb.ProblemError, match=r"smallest curvature at \(x, y0\) is -1\."):
        hb.exact(problem, np.array([3.0, -1.0]))


def test_only_what_can_be_measured_is() -> None:
    source = hb.Simulator([np.zeros(1)] * 2, lambda key, p: p + jax.random.normal(key, (1,)))

    def loss(x: Any, y: Any, b: Any) -> Any:
        return jnp.sum((y - x - b) ** 2)

    problem = hb.Problem(loss, loss, np.zeros(1), np.zeros(1), source, source)
    assert not pooled.affordable(problem)
    with pytest.raises(hb.ProblemError, match="expected="):
        hb.exact(problem, np.zeros(1))
    assert pooled.affordable(PROBLEM)
