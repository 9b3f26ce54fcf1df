"""Inner problems that are convex, but not strongly: a vanishing ridge, and what is measured."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.analysis.newton import solve_flat_inner
from hobnob.core.algorithm import Scale
from hobnob.problems.quadratic import Quadratic, _inner, _outer, quadratic
from tests.reference import madsbo_gt
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

AGENTS, DIM_X, DIM_Y = 8, 3, 5
RING = hb.ring(AGENTS)
FLAT = np.linalg.qr(np.random.default_rng(0).normal(size=(DIM_Y, 2)))[0]  # all agents' null space
STEPS: dict[str, Any] = {"alpha": 0.02, "beta": 0.05, "gamma": 0.05, "theta": 0.2, "inner_steps": 2}
VANISHING = hb.schedules.power(1.0, 1 / 2)


class Known:
    """A quadratic whose agents are all flat along FLAT, solved by NumPy's pseudoinverse.

    It starts with a y that has a part along FLAT. With `slope` its inner loss falls for ever there.
    """

    def __init__(self, slope: float = 0.0, seed: int = 1):
        made = quadratic(AGENTS, DIM_X, DIM_Y, condition=4.0, seed=seed)
        (Q, q), (A, B, c) = made.outer_data.arrays.values(), made.inner_data.arrays.values()
        steep = np.eye(DIM_Y) - FLAT @ FLAT.T
        A, B, c = steep @ A @ steep, steep @ B, c @ steep + slope * FLAT[:, 0]
        self.problem = hb.Problem(
            _outer,
            _inner,
            np.zeros(DIM_X),
            FLAT @ np.array([1.0, -2.0]),
            [{"Q": Q[k : k + 1], "q": q[k : k + 1]} for k in range(AGENTS)],
            [{"A": A[k : k + 1], "B": B[k : k + 1], "c": c[k : k + 1]} for k in range(AGENTS)],
            None,
        )
        self.Q, self.q = Q.mean(axis=0), q.mean(axis=0)
        inverse = np.linalg.pinv(A.mean(axis=0), rcond=1e-10)
        self.slope, self.offset = inverse @ B.mean(axis=0), inverse @ c.mean(axis=0)
        self.along = np.vstack([np.eye(DIM_X), self.slope])  # how (x, y) moves with x
        at_zero = np.concatenate([np.zeros(DIM_X), self.offset])
        self.x = np.linalg.solve(
            self.along.T @ self.Q @ self.along, self.along.T @ (self.q - self.Q @ at_zero)
        )
        self.y = self.smallest(self.x)

    def smallest(self, x: np.ndarray) -> np.ndarray:
        """The inner solution of the smallest norm."""
        return self.slope @ x + self.offset

    def value(self, x: np.ndarray) -> float:
        z = np.concatenate([x, self.smallest(x)])
        return float(z @ self.Q @ z / 2 - self.q @ z)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.along.T @ (self.Q @ np.concatenate([x, self.smallest(x)]) - self.q)


@cache
def known() -> Known:
    return Known()


def solved(ridge: Any, steps: int, problem: hb.Problem | None = None, **more: Any) -> hb.Result:
    algorithm = hb.MADSBOGT(**STEPS, ridge=ridge)
    return hb.solve(problem or known().problem, RING, algorithm, steps=steps, **more)


# --- the solution ------------------------------------------------------------------------------


def test_a_vanishing_ridge_leads_to_the_solution_of_the_smallest_norm() -> None:
    """With a ridge of order t^-1/2, four times the steps halve the error."""
    short, long = solved(VANISHING, 4000, metrics=None), solved(VANISHING, 16_000, metrics=None)
    for of_x in (True, False):
        found, truth = ("x", known().x) if of_x else ("y", known().y)
        errors = [np.linalg.norm(getattr(result, found) - truth) for result in (short, long)]
        assert errors[1] < 0.01
        assert errors[0] / errors[1] == pytest.approx(2, rel=0.15), found


def test_a_ridge_that_is_next_to_nothing_leaves_y_where_it_began() -> None:
    """Along flat directions, so that x ends elsewhere: the ridge makes the choice."""
    found = solved(1e-13, 4000, metrics=None)
    np.testing.assert_allclose(FLAT.T @ found.y, [1, -2], rtol=1e-6)
    assert np.linalg.norm(found.x - known().x) > 0.1


def test_a_constant_ridge_finds_the_solution_with_that_ridge() -> None:
    """On a problem that is strongly convex, too."""
    problem, ridge = quadratic(AGENTS, DIM_X, DIM_Y, condition=4.0, seed=1), 0.3
    (Q, q), (A, B, c) = problem.outer_data.arrays.values(), problem.inner_data.arrays.values()
    wider = Quadratic(
        [{"Q": Q[k : k + 1], "q": q[k : k + 1]} for k in range(AGENTS)],
        [
            {"A": A[k : k + 1] + ridge * np.eye(DIM_Y), "B": B[k : k + 1], "c": c[k : k + 1]}
            for k in range(AGENTS)
        ],
    )
    result = solved(ridge, 4000, problem, metrics=None)
    np.testing.assert_allclose(result.x, wider.solution, rtol=0, atol=1e-9)
    assert np.linalg.norm(result.x - problem.solution) > 0.01
    assert "inner solutions" not in result.settings


def test_a_slow_ridge_equals_the_reference() -> None:
    """At the last of 200 steps it is still 0.07: the one of the conformance suite is gone."""
    given, network, steps = logistic_problem([5, 2, 9]), hb.ring(3), 200
    algorithm = replace(hb.MADSBOGT.suggest(Scale(3.0, 0.5)), ridge=VANISHING)
    with given.precision():
        run = simulated(given, network, algorithm, SEED)
        held = run.advance(run.initial_state(), 0, steps).state._asdict()
        state = {name: np.asarray(value) for name, value in held.items()}
    expected = madsbo_gt.run(Logistic(given, network, steps), algorithm)
    assert set(state) == set(expected)
    for variable, value in expected.items():
        np.testing.assert_allclose(state[variable], value, rtol=0, atol=1e-10, err_msg=variable)


# --- what is measured --------------------------------------------------------------------------


def test_exact_f_is_that_of_the_solution_of_the_smallest_norm() -> None:
    result = solved(VANISHING, 200, record_every=200)
    last = {name: column[-1] for name, column in result.history.items()}
    assert last["objective"] == pytest.approx(known().value(result.x), abs=1e-7)
    gradient = np.linalg.norm(known().gradient(result.x))
    assert gradient > 0.01
    assert last["gradient_norm"] == pytest.approx(gradient, abs=1e-7)
    distance = np.linalg.norm(result.y - known().smallest(result.x))
    assert last["inner_distance"] == pytest.approx(distance, abs=1e-6)
    assert "smallest norm" in result.settings["inner solutions"]


def test_in_float32() -> None:
    """Where rounded data curves flat directions a little, up or down."""
    result = solved(VANISHING, 2000, known().problem.in_precision(np.float32), record_every=2000)
    x = result.x.astype(np.float64)
    assert result.history["objective"][-1] == pytest.approx(known().value(x), abs=1e-3)
    gradient = np.linalg.norm(known().gradient(x))
    assert result.history["gradient_norm"][-1] == pytest.approx(gradient, abs=1e-3)
    assert np.linalg.norm(x - known().x) < 0.05


def test_a_user_s_metric_sees_the_same() -> None:
    def own(view: Any) -> float:
        return view.exact.value

    result = solved(VANISHING, 20, record_every=20, metrics={"own": own})
    np.testing.assert_allclose(
        result.history["own"], result.history["objective"], rtol=0, atol=1e-8
    )


def test_a_tolerance_ends_such_a_run() -> None:
    result = solved(VANISHING, 16_000, tolerance=0.05)
    assert result.status == "converged"
    assert np.linalg.norm(known().gradient(result.x)) <= 0.05 + 1e-6


def test_the_gradient_where_flat_directions_turn_with_x() -> None:
    """g = (a(x)' y - 1)^2 / 2 is smallest, at the smallest norm, at y = a / |a|^2."""

    def a(x: Any) -> Any:
        return jnp.stack([jnp.cos(x[0]), jnp.sin(x[0]) + x[1], 1 + x[0] * x[1]])

    def outer(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(y)) + y[0] * x[1]

    def inner(x: Any, y: Any) -> Any:
        return (a(x) @ y - 1) ** 2 / 2

    def truth(x: Any) -> Any:
        return outer(x, a(x) / (a(x) @ a(x)))

    with jax.enable_x64(True):
        x = jnp.array([0.3, -0.7])
        value, gradient, y, left = solve_flat_inner(outer, inner, x, jnp.array([1.0, 2.0, 3.0]))
        assert left < 1e-8
        np.testing.assert_allclose(y, a(x) / (a(x) @ a(x)), rtol=0, atol=1e-7)
        np.testing.assert_allclose(value, truth(x), rtol=0, atol=1e-7)
        np.testing.assert_allclose(gradient, jax.grad(truth)(x), rtol=0, atol=1e-7)


def test_no_f_is_claimed_where_the_inner_problem_has_no_solution() -> None:
    result = solved(VANISHING, 20, Known(slope=0.1).problem)
    for column in ("objective", "gradient_norm", "inner_distance"):
        assert np.isnan(result.history[column]).all()


@pytest.mark.parametrize("seed", range(8))
def test_without_a_ridge_there_is_no_exact_f(seed: int) -> None:
    """Whatever rounding errors make of the Hessian's smallest eigenvalues."""
    problem = Known(seed=seed).problem
    for ask in (lambda: hb.exact(problem, np.ones(DIM_X)), lambda: hb.optimum(problem)):
        with pytest.raises(hb.ProblemError, match="strongly convex"):
            ask()


# --- who copes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["madsbo_gt", "sparkle", "penalty"])
def test_without_a_ridge_flat_problems_are_refused(name: str) -> None:
    algorithm = hb.algorithms.get(name).suggest(Scale(4.0, 1.0))
    with pytest.raises(hb.ProblemError, match=r"not strongly convex.*hb\.MADSBOGT with a ridge"):
        hb.solve(known().problem, RING, algorithm, steps=2)


def test_a_problem_that_is_not_convex_is_refused_with_a_ridge_too() -> None:
    def saddle(x: Any, y: Any, batch: Any) -> Any:
        return _inner(x, y, batch) - 0.1 * jnp.sum((FLAT.T @ y) ** 2)

    given = known().problem
    problem = hb.Problem(
        _outer, saddle, given.x0, given.y0, given.outer_data, given.inner_data, None
    )
    with pytest.raises(hb.ProblemError, match=r"smallest curvature of the mean is -0\.2"):
        solved(VANISHING, 2, problem)


@pytest.mark.parametrize("ridge", [-0.1, float("nan"), lambda step: 1.0 - step, "large"])
def test_other_ridges_are_refused(ridge: Any) -> None:
    with pytest.raises(hb.SettingError, match="ridge = "):
        solved(ridge, 10)
