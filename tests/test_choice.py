"""The default algorithm: its estimated constants, and that its choices converge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.analysis.estimates import estimate
from hobnob.problems.policy import policy
from hobnob.problems.quadratic import Quadratic, quadratic

pytestmark = pytest.mark.slow

NETWORKS = (hb.ring(8), hb.path(8), hb.star(8), hb.complete(8))


def random_problem(number: int) -> Quadratic:
    """Curvatures from 1e-2 to 1e3 and condition numbers up to 1e3, over the numbers 0 to 9.

    All have the same shape, so that only the run itself is compiled again.
    """
    rng = np.random.default_rng(number)
    scale = 10 ** (-2 + 0.4 * number)
    condition = min(1e3 ** ((3 * number + 4) % 10 / 9), 1e3 / scale)
    heterogeneity = rng.uniform(0, 3)
    return quadratic(
        8, 4, 9, scale=scale, condition=condition, heterogeneity=heterogeneity, seed=number
    )


def test_the_random_problems_are_what_they_say() -> None:
    curvatures = [hb.curvature(random_problem(number)) for number in range(10)]
    assert min(c.smallest for c in curvatures) <= 1.1e-2
    assert max(c.largest for c in curvatures) >= 0.9e3
    assert max(c.largest / c.smallest for c in curvatures) >= 0.9e3


@pytest.mark.parametrize("number", range(10))
def test_it_converges_without_a_word(number: int) -> None:
    problem = random_problem(number)
    result = hb.solve(problem, NETWORKS[number % len(NETWORKS)])
    assert result.status == "converged"
    start = np.linalg.norm(problem.closed_form(problem.x0).gradient)
    assert (
        np.linalg.norm(problem.closed_form(result.x).gradient) <= 1.1e-4 * start
    )  # the tolerance has two digits


def test_estimates_are_those_of_the_matrices() -> None:
    problem = quadratic(8, 3, 5, condition=30.0, scale=2.0, seed=4)
    known = estimate(problem)
    A = problem.inner_data.arrays["A"]  # one record per agent
    H, B, Q = A.mean(0), problem.inner_data.arrays["B"].mean(0), problem._Q
    slope = np.linalg.solve(H, B)
    along = np.vstack([np.eye(3), slope])
    of_F = np.linalg.eigvalsh(along.T @ Q @ along)
    assert known.largest == pytest.approx(np.linalg.eigvalsh(A).max(), rel=0.02)
    assert known.smallest == pytest.approx(np.linalg.eigvalsh(H).min(), rel=1e-6)
    assert known.outer_largest == pytest.approx(of_F.max(), rel=1e-4)
    assert known.outer_smallest == pytest.approx(of_F.min(), rel=1e-4)
    gradient = problem.closed_form(problem.x0).gradient
    assert known.gradient == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    assert known.noise < 1e-12
    Qxy, Qyy = Q[:3, 3:], Q[3:, 3:]
    P = np.vstack([slope, np.linalg.solve(H, Qxy.T + Qyy @ slope)])
    D = np.block([[H, np.zeros_like(H)], [-Qyy, H]])
    C = np.hstack([Qxy, B.T])
    lag = np.linalg.norm(C @ np.linalg.solve(D, P), 2)
    assert lag / 1.5 <= known.lag <= lag * 1.001


def test_noise_is_that_of_the_draws() -> None:
    """Noise is per step of the whole network: four times the records, a quarter of the variance."""
    few, many = (
        estimate(quadratic(8, noise=0.2, batch_size=size, records=64, seed=1)) for size in (1, 16)
    )
    assert few.noise > 1e-4
    # 16 draws estimate each variance of five entries: 16 within a factor 3.
    assert 16 / 3 <= few.noise / many.noise <= 16 * 3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_noisy_problems_come_near(dtype: str) -> None:
    problem = quadratic(
        8, noise=0.3, batch_size=1, seed=3, condition=20.0, heterogeneity=2.0, dtype=dtype
    )
    result = hb.solve(problem, hb.ring(8))
    best, start = problem.closed_form(problem.solution).value, problem.closed_form(problem.x0).value
    gap = (problem.closed_form(result.x).value - best) / (start - best)
    assert gap <= 2e-3, f"{gap:.1e} of the gap is left"
    assert result.status == "finished"
    assert "Draws are noisy" in result.choice


def test_policy_evaluation_comes_near() -> None:
    problem = policy(agents=5, states=20)
    result = hb.solve(problem, hb.ring(5))
    best, objective = hb.optimum(problem).value, result.history["objective"]
    assert objective[-1] - best <= 0.03 * (objective[0] - best)


def growing_curvature() -> hb.Problem:
    """The inner curvature, exp(x), grows a hundredfold on the way to the solution."""

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((x - batch) ** 2) / 2 + jnp.sum(y**2) / 200

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.sum(jnp.exp(x) * y**2) / 2 - jnp.mean(batch) * jnp.sum(y)

    data = [np.array([[4.5], [4.7]]) for _ in range(3)]
    return hb.Problem(outer, inner, np.zeros(1), np.zeros(1), data, data, batch_size=None)


def test_it_slows_down_where_a_run_diverges(tmp_path: Path) -> None:
    problem, network = growing_curvature(), hb.ring(3)
    first = hb.choose(problem, network)
    with pytest.raises(hb.DivergenceError):
        hb.solve(problem, network, first.algorithm, steps=first.steps)
    result = hb.solve(problem, network, checkpoint=tmp_path)
    assert result.status == "converged"
    assert any(f"All were divided by {factor}" in result.choice for factor in SLOWER[1:])
    again = hb.solve(problem, network, checkpoint=tmp_path, resume=True)
    assert again.choice == result.choice
    np.testing.assert_array_equal(again.x, result.x)


def test_what_the_user_says_stands() -> None:
    problem = quadratic(4, 2, 3)
    result = hb.solve(problem, hb.ring(4), steps=50, metrics=["outer_loss"], seed=[0, 1])
    assert result.steps == 50
    assert result.status == "finished"
    assert result.choice.startswith("SPARKLE was chosen")
    assert hb.solve(problem, hb.ring(4), tolerance=1e-2).status == "converged"


def test_it_says_what_it_chose_where_somebody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    problem = quadratic(4, 2, 3)
    result = hb.solve(problem, hb.ring(4), steps=20, progress=True)
    assert result.choice in capsys.readouterr().err


def test_an_inner_problem_without_a_solution_is_refused() -> None:
    problem = hb.Problem(
        lambda x, y, batch: jnp.mean((y - batch) ** 2),
        lambda x, y, batch: jnp.mean(batch * jnp.sum(y * x)),
        np.ones(2),
        np.ones(2),
        [np.ones((3, 1))] * 2,
        [np.ones((3, 1))] * 2,
    )
    with pytest.raises(hb.ProblemError, match="Is it strongly convex in y"):
        hb.solve(problem, hb.complete(2))


def test_shards_that_are_not_read_yet_are_read() -> None:
    def shard(agent: int) -> np.ndarray:
        return np.arange(6.0).reshape(3, 2) + agent

    problem = hb.Problem(
        lambda x, y, batch: jnp.mean((y - batch) ** 2),
        lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
        np.ones(2),
        np.ones(2),
        shard,
        shard,
        batch_size=None,
        agents=3,
    )
    assert hb.choose(problem, hb.ring(3)).steps >= 1000
