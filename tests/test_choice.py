"""The default: what it estimates, what it chooses, and that its choices converge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.analysis import estimates
from hobnob.analysis.choose import adaptive_choice, next_choice
from hobnob.analysis.estimates import estimate
from hobnob.analysis.linear_model import LinearModel, Settings
from hobnob.core.schedules import SettlingRule
from hobnob.problems.policy import policy
from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.run.chosen.trouble import trouble_of

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
    result = hb.solve(problem, NETWORKS[number % len(NETWORKS)], record_every=4)
    assert result.status == "converged"
    start = np.linalg.norm(problem.closed_form(problem.x0).gradient)
    assert (
        np.linalg.norm(problem.closed_form(result.x).gradient) <= 1.1e-4 * start
    )  # the tolerance has two digits
    expected = hb.choose(problem, NETWORKS[number % len(NETWORKS)]).expected
    assert expected is not None
    assert expected / 2 <= result.steps <= 2 * expected


def test_estimates_are_those_of_the_matrices() -> None:
    problem = quadratic(8, 3, 5, condition=30.0, scale=2.0, seed=4)
    known = estimate(problem)
    A = problem.inner_data.arrays["A"]  # one record per agent
    H, B = A.mean(0), problem.inner_data.arrays["B"].mean(0)
    Q = problem.outer_data.arrays["Q"].mean(0)
    along = np.vstack([np.eye(3), np.linalg.solve(H, B)])
    H_F = along.T @ Q @ along
    of_F = np.linalg.eigvalsh(H_F)
    assert known.largest == pytest.approx(np.linalg.eigvalsh(A).max(), rel=0.02)
    assert known.outer_largest == pytest.approx(of_F.max(), rel=1e-6)
    assert known.outer_smallest == pytest.approx(of_F.min(), rel=1e-6)
    assert known.model is not None
    np.testing.assert_allclose(known.model.outer_hessian, H_F, rtol=1e-6, atol=1e-9)
    gradient = problem.closed_form(problem.x0).gradient
    assert known.gradient == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
    gap = problem.closed_form(problem.x0).value - problem.closed_form(problem.solution).value
    assert known.model.gain == pytest.approx(gap, rel=1e-3)
    unit = np.linalg.norm(gradient) ** 2 / np.linalg.norm(H_F @ gradient) / np.sqrt(3)
    assert known.unit == pytest.approx(unit, rel=1e-3)
    assert not known.random
    assert known.noise == 0
    # 13 columns of a Jacobian, of the mean and of each agent, and what the solutions took.
    assert 4 * 13 <= known.cost.products <= 200
    assert known.cost.samples == 4  # one record of each level in the mean, and one draw of each


def test_products_alone_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Jacobian, and with a model on fewer unknowns than the problem has."""
    problem, network = quadratic(8, 12, 30, condition=50.0, seed=2), hb.complete(8)
    whole = hb.choose(problem, network)
    dense = estimate(problem)
    monkeypatch.setattr(estimates, "DENSE", 0)
    monkeypatch.setattr(estimates, "X_MODEL", 8)
    monkeypatch.setattr(estimates, "Y_MODEL", 20)
    known = estimate(problem)
    assert known.outer_largest == pytest.approx(dense.outer_largest, rel=0.05)
    assert known.unit == pytest.approx(dense.unit, rel=1e-2)
    assert known.model is not None
    assert (known.model.g.size, known.model.y_start.size) == (8, 20)
    projected = hb.choose(problem, network)
    steps = [
        hb.solve(
            problem,
            network,
            choice.algorithm,
            steps=20_000,
            tolerance=whole.tolerance,
            record_every=10,
            metrics=["gradient_norm"],
        ).steps
        for choice in (whole, projected)
    ]
    assert steps[1] <= 2 * steps[0]


def test_a_model_counts_the_steps_of_the_run_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is random: the model of the network is the run, if both look at |grad F| alone."""
    problem, network = quadratic(4, 3, 5, condition=30.0, seed=4), hb.path(4)
    known = estimate(problem)
    assert known.network is not None
    tried = Settings(*(np.array(v) for v in ([0.05, 0.1, 5.0], [0.01, 0.01, 0.2], [0.0, 0.5, 0.0])))
    cautious = known.network.race(network.matrix, tried, 1e-3)
    monkeypatch.setattr(
        LinearModel,
        "slope",
        lambda self, x, G_x: np.linalg.norm(self.g + x @ self.outer_hessian, axis=1),
    )
    found = known.network.race(network.matrix, tried, 1e-3)
    assert np.isinf(found).tolist() == [False, False, True]
    # The race itself also asks that x has come to rest.
    assert (found <= cautious).all()
    assert (cautious[:2] <= 2 * found[:2]).all()
    for i, expected in enumerate(found):
        alpha, gamma, m = (float(field[i]) for field in tried)
        algorithm = hb.SPARKLE(alpha=alpha, beta=gamma, gamma=gamma, theta=1.0, momentum=m)
        run = {"steps": 5_000, "tolerance": 1e-3 * known.gradient, "record_every": 4}
        if np.isinf(expected):
            with pytest.raises(hb.DivergenceError):
                hb.solve(problem, network, algorithm, **run)
        else:
            steps = hb.solve(problem, network, algorithm, **run).steps
            assert abs(steps - expected) <= 4


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
    assert "draws are noisy" in result.choice


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


def test_another_method_takes_over_where_a_run_diverges(tmp_path: Path) -> None:
    problem, network = growing_curvature(), hb.ring(3)
    first = hb.choose(problem, network)
    with pytest.raises(hb.DivergenceError) as diverged:
        hb.solve(problem, network, first.algorithm, steps=first.steps)
    result = hb.solve(problem, network, checkpoint=tmp_path)
    assert result.status == "converged"
    assert result.choice.startswith("SPARKLE was chosen")
    assert "Adaptive was chosen. SPARKLE diverged" in result.choice
    assert f"stage 2, from step {diverged.value.step} on" in result.message
    # One history, one bill: both stages, and what was estimated.
    assert (np.diff(result.history["step"]) > 0).all()
    assert result.history["step"][-1] == result.steps
    sent = 24 * diverged.value.step + 48 * (result.steps - diverged.value.step)
    assert result.traffic.bytes.tolist() == [2 * sent] * 3
    assert result.ledger["bytes"].tolist() == [2 * sent] * 3
    assert result.history["bytes"][-1] == 2 * sent
    assert result.history["products"][0] == first.cost.products
    again = hb.solve(problem, network, checkpoint=tmp_path, resume=True)
    assert again.choice == result.choice
    np.testing.assert_array_equal(again.x, result.x)


@pytest.mark.parametrize("stop_at", [2, 60], ids=["first stage", "second stage"])
def test_a_run_of_two_stages_resumes_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    problem, network = growing_curvature(), hb.ring(3)
    whole = hb.solve(problem, network, record_every=1)
    seen = 0

    def stop(run: Any, state: Any) -> bool:
        nonlocal seen
        seen += 1
        return seen == stop_at

    options = {"checkpoint": tmp_path, "record_every": 1}
    part = hb.solve(problem, network, callback=stop, **options)
    assert part.status == "interrupted"
    rest = hb.solve(problem, network, resume=True, **options)
    assert rest.status == "converged"
    np.testing.assert_array_equal(rest.x, whole.x)
    for name in set(whole.history) - {"seconds"}:
        np.testing.assert_array_equal(rest.history[name], whole.history[name], err_msg=name)


ROWS = {
    "step": np.array([0, 100, 200, 300]),
    "objective": np.array([1.0, 0.5, 0.4, 0.3]),
    "gradient_norm": np.array([1.0, 0.1, 0.01, 0.001]),
}


@pytest.mark.parametrize(
    ("changes", "of_choice", "said"),
    [
        ({}, {}, None),
        ({"objective": [1.0, 0.5, 0.4, 1.1]}, {}, "diverged"),
        ({"objective": [1.0, 0.5, 0.4, 1.1]}, {"steps": 2_000}, None),  # too early to tell
        ({"objective": [1, 0.5, 0.4, 1.1], "step": [0, 50, 100, 150]}, {"steps": 200}, None),
        ({}, {"gain": 6.9}, None),
        ({}, {"gain": 7.1}, "stalled"),
        (
            {"gradient_norm": [1.0, 0.1, 0.01, 0.004]},
            {"expected": 100, "tolerance": 1e-9},
            "stalled",
        ),
        ({"gradient_norm": [1.0, 0.1, 0.01, 0.003]}, {"expected": 100, "tolerance": 1e-9}, None),
        ({"gradient_norm": [1.0, 0.1, 0.01, 0.004]}, {"expected": 200, "tolerance": 1e-9}, None),
    ],
)
def test_trouble_is_noticed(changes: Any, of_choice: Any, said: str | None) -> None:
    algorithm = hb.Adaptive(alpha=0.1, gamma=0.1, theta=0.2)
    choice = hb.Choice(algorithm, 1_000, None, "")._replace(**of_choice)
    history = ROWS | {name: np.array(values) for name, values in changes.items()}
    assert trouble_of(history, choice) == said
    several = {name: np.stack([values] * 3) for name, values in history.items()}
    assert trouble_of(several, choice) == said


def test_step_sizes_shrink_until_nothing_is_left_to_try() -> None:
    problem, choice, slower = growing_curvature(), None, []
    choice = adaptive_choice(problem, 2.0, None, "")
    while choice is not None:
        assert isinstance(choice.algorithm, hb.Adaptive)
        assert isinstance(choice.algorithm.gamma, SettlingRule)
        slower.append(choice.algorithm.gamma.first)
        choice = next_choice(choice, "diverged", problem, 2.0, None)
    assert slower == pytest.approx([0.1, 0.1 / 4, 0.1 / 16, 0.1 / 64])
    assert next_choice(adaptive_choice(problem, 2.0, None, ""), "stalled", problem, 2.0, 9) is None


def rescaled(problem: hb.Problem, factor: float) -> hb.Problem:
    """The same problem, with x in other units."""
    outer, inner = problem.outer, problem.inner
    assert problem.x_bounds is not None
    lower, upper = problem.x_bounds
    return hb.Problem(
        lambda x, y, batch: outer(factor * x, y, batch),
        lambda x, y, batch: inner(factor * x, y, batch),
        problem.x0 / factor,
        problem.y0,
        problem.outer_data,
        problem.inner_data,
        x_bounds=(lower / factor, upper / factor),
    )


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_units_of_x_do_not_matter(factor: float) -> None:
    """Where F is not convex at the start: the same run, up to three digits of alpha."""
    problem = hb.problems.get("hyperopt")("iris", 4, positive="virginica", batch_size=4)
    ends = []
    for one in (problem, rescaled(problem, factor)):
        result = hb.solve(one, hb.ring(4), steps=1_500)
        assert result.settings["algorithm"] == "Adaptive"
        ends.append(result.history["objective"])
    assert ends[1][0] == pytest.approx(ends[0][0], rel=1e-9)
    gap = ends[0][0] - ends[0].min()
    assert abs(ends[1][-1] - ends[0][-1]) <= 0.05 * gap
    assert ends[0][-1] <= ends[0][0] - 0.9 * gap


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_agents_with_their_own_y_get_a_method_of_their_own(noise: float) -> None:
    batch = {"noise": noise, "records": 32, "batch_size": 4} if noise else {}
    problem = quadratic(6, 3, 4, condition=10.0, seed=5, personal=True, **batch)
    result = hb.solve(problem, hb.ring(6))
    assert result.choice.startswith("LoPA was chosen")
    best, start = problem.closed_form(problem.solution).value, problem.closed_form(problem.x0).value
    gap = (problem.closed_form(result.x).value - best) / (start - best)
    assert gap <= (5e-3 if noise else 1e-6), f"{gap:.1e} of the gap is left"
    assert result.status == ("finished" if noise else "converged")


def test_estimates_of_agents_with_their_own_y() -> None:
    problem = quadratic(3, 2, 3, condition=10.0, seed=5, personal=True)
    known = estimate(problem)
    assert known.model is not None
    x = np.array([0.3, -0.2])
    there = problem.closed_form(problem.x0 + x).gradient
    slope = known.model.g + known.model.outer_hessian @ x  # F is quadratic
    np.testing.assert_allclose(slope, there, rtol=1e-4, atol=1e-6)


def test_float32_works_where_jax_is_set_to_float64() -> None:
    problem = quadratic(4, 2, 3, dtype="float32")
    with jax.enable_x64(True):
        assert hb.choose(problem, hb.ring(4)).tolerance is not None


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
    assert hb.solve(problem, hb.ring(3)).status == "converged"
