"""Problems in which every agent has its own inner problem: what is exact, measured and refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.analysis.exact import affordable, check_strong_convexity
from hobnob.testing.trial import trial_of
from hobnob.testing.worlds import logistic
from tests.reference import lopa
from tests.reference.world import Logistic

K, RAGGED = 4, [5, 2, 9, 3]
TUNED = hb.LoPA(alpha=0.03, beta=0.05, gamma=0.05, theta=0.5)


def quadratic(**more: Any) -> Any:
    return hb.problems.get("quadratic")(agents=K, personal=True, **more)


def alone(problem: hb.Problem, k: int) -> hb.Problem:
    """Agent k's part as a common problem of one agent."""
    outer, inner = (s.hosted([k]) for s in (problem.outer_data, problem.inner_data))
    return hb.Problem(problem.outer, problem.inner, problem.x0, problem.y0, outer, inner)


# --- what is exact -----------------------------------------------------------------------------

# With a batch size, shards lie one after the other; without, those of equal length are stacked.
SHARDS = [(RAGGED, 2), (RAGGED, None), ([4] * K, 2), ([4] * K, None)]


@pytest.mark.slow
@pytest.mark.parametrize(("lengths", "batch_size"), SHARDS)
def test_f_is_the_mean_of_what_each_agent_finds_alone(
    lengths: list[int], batch_size: int | None
) -> None:
    problem = logistic(lengths, batch_size, personal=True)
    x = np.linspace(-1, 0.5, 4)
    found = hb.exact(problem, x)
    each = [hb.exact(alone(problem, k), x) for k in range(K)]
    assert found.y.shape == (K, 4)
    np.testing.assert_allclose(found.y, [one.y for one in each], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.value, np.mean([one.value for one in each]), atol=1e-13)
    mean = np.mean([one.gradient for one in each], axis=0)
    np.testing.assert_allclose(found.gradient, mean, rtol=0, atol=1e-12)
    assert np.ptp(found.y, axis=0).min() > 1e-2, "agents hardly differ, so this compares nothing"


def test_exact_is_the_closed_form_of_quadratics() -> None:
    problem = quadratic(records="ragged", noise=0.1)
    for x in np.random.default_rng(0).normal(size=(3, 5)):
        for found, known in zip(hb.exact(problem, x), problem.closed_form(x), strict=True):
            np.testing.assert_allclose(found, known, rtol=0, atol=1e-12)
    best = hb.optimum(problem)
    np.testing.assert_allclose(best.x, problem.solution, rtol=0, atol=1e-7)
    np.testing.assert_allclose(best.y, problem.closed_form(best.x).y, rtol=0, atol=1e-10)
    common = hb.problems.get("quadratic")(agents=K, records="ragged", noise=0.1)
    assert np.abs(common.solution - problem.solution).max() > 0.1


def test_the_gradient_is_the_slope_of_the_value() -> None:
    problem, x, step = logistic(RAGGED, personal=True), np.full(4, -0.3), 1e-5
    for i, along in enumerate(np.eye(4)):
        above, below = (hb.exact(problem, x + s * step * along).value for s in (1, -1))
        slope = (above - below) / (2 * step)
        assert abs(hb.exact(problem, x).gradient[i] - slope) <= 1e-9


def test_a_simulators_expectation_is_each_agents_own() -> None:
    problem = simulated(expected=True)
    # f_k = |y - c_k|^2 / 2 + |x|^2 / 2 and g_k = |y - x - c_k|^2 / 2, so y*_k = x + c_k
    x = np.array([0.3, -0.2])
    found = hb.exact(problem, x)
    np.testing.assert_allclose(found.y, x + CENTRES, atol=1e-12)
    np.testing.assert_allclose([found.value, *found.gradient], [x @ x, *(2 * x)], atol=1e-12)


def test_curvature_is_over_the_agents_own_hessians() -> None:
    problem = quadratic()
    values = np.linalg.eigvalsh(problem.inner_data.arrays["A"])
    np.testing.assert_allclose(hb.curvature(problem), (values.min(), values.max()), rtol=1e-12)
    common = hb.curvature(hb.problems.get("quadratic")(agents=K))
    assert values.min() < 0.9 * common.smallest


def test_curvature_at_one_y_and_at_each_agents_own() -> None:
    problem, x = logistic(RAGGED, personal=True), np.zeros(4)
    y = np.random.default_rng(1).normal(size=(K, 4))
    each = [hb.curvature(alone(problem, k), x, y[k]) for k in range(K)]
    expected = min(c.smallest for c in each), max(c.largest for c in each)
    np.testing.assert_allclose(hb.curvature(problem, x, y), expected, rtol=1e-10)
    same = hb.curvature(problem, x, np.tile(y[0], (K, 1)))
    np.testing.assert_allclose(hb.curvature(problem, x, y[0]), same, rtol=1e-12)
    with pytest.raises(hb.ProblemError, match="leading axis of 4 agents"):
        hb.curvature(problem, x, y[:3])


# --- where an agent's own problem is flat ------------------------------------------------------


def flat_for_agent_2(weight: float = 0.0) -> hb.Problem:
    """The mean of the inner losses is strongly convex; agent 2's data spans one direction only."""
    shards = [np.eye(2), np.eye(2), np.array([[1.0, 0.0], [2.0, 0.0]]), np.eye(2)]

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch @ y - x) ** 2) + weight * y @ y

    return hb.Problem(
        lambda x, y, batch: jnp.mean((batch @ y - 1) ** 2) + jnp.sum(x**2),
        inner,
        np.zeros(1),
        np.zeros(2),
        shards,
        shards,
        None,
        personal=True,
    )


def test_the_agent_whose_inner_problem_is_flat_is_named() -> None:
    problem = flat_for_agent_2()
    with pytest.raises(hb.ProblemError) as caught:
        hb.solve(problem, hb.ring(K), TUNED, steps=2)
    assert str(caught.value).startswith(
        "The inner problem of agent 2 is not strongly convex at x0: the smallest curvature is 0, "
        "the largest 5,"
    )
    with pytest.raises(hb.ProblemError, match="inner problem of agent 2 could not be solved"):
        hb.exact(problem, np.ones(1))
    check_strong_convexity(flat_for_agent_2(weight=0.1))
    hb.exact(flat_for_agent_2(weight=0.1), np.ones(1))


# --- what is measured --------------------------------------------------------------------------


@pytest.mark.slow
def test_metrics_by_hand() -> None:
    problem = logistic(RAGGED, None, personal=True)
    result = hb.solve(problem, hb.ring(K), TUNED, steps=30, record_every=15)
    columns = [c for c in result.history if c.startswith("consensus")]
    assert columns == ["consensus_x"]
    last = {name: values[-1] for name, values in result.history.items()}
    x, y = result.agents["x"], result.agents["y"]
    mean = x.mean(axis=0)
    found = hb.exact(problem, mean)
    outer = np.mean([_loss(alone(problem, k), "outer", mean, y[k]) for k in range(K)])
    inner = np.mean([_loss(alone(problem, k), "inner", mean, y[k]) for k in range(K)])
    off = np.sqrt(np.mean(np.sum((y - found.y) ** 2, axis=1)))
    expected = {
        "objective": found.value,
        "gradient_norm": np.linalg.norm(found.gradient),
        "outer_loss": outer,
        "inner_loss": inner,
        "inner_distance": off,
        "consensus_x": np.mean(np.sum((x - mean) ** 2, axis=1)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(last[name], value, rtol=1e-9, atol=1e-13, err_msg=name)
    assert off > 1e-3


def _loss(problem: hb.Problem, which: str, x: np.ndarray, y: np.ndarray) -> float:
    source = getattr(problem, f"{which}_data")
    with problem.precision():
        return float(getattr(problem, which)(x, y, source.arrays))


def test_users_metrics_see_each_agents_own_y() -> None:
    problem = logistic(RAGGED, personal=True)
    seen = {"shape": lambda view: float(view.y.shape == (K, 4) and view.flat_y.shape == (K, 4))}
    result = hb.solve(problem, hb.ring(K), TUNED, steps=4, metrics=seen)
    assert (result.history["shape"] == 1).all()


@pytest.mark.slow
def test_the_result_keeps_each_agents_own_y() -> None:
    problem = logistic(RAGGED, personal=True)
    result = hb.solve(problem, hb.ring(K), TUNED, steps=50)
    assert result.x.shape == (4,)
    np.testing.assert_array_equal(result.y, result.agents["y"])
    assert result.y.shape == (K, 4)
    assert np.ptp(result.y, axis=0).min() > 1e-2
    many = hb.solve(problem, hb.ring(K), TUNED, steps=50, seed=[0, 1])
    assert many.x.shape == (2, 4)
    assert many.y.shape == (2, K, 4)
    np.testing.assert_allclose(many.y[0], result.y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        many.history["objective"][0], result.history["objective"], rtol=0, atol=1e-12
    )


CENTRES = np.array([[0.0, 1.0], [2.0, -1.0], [1.0, 1.0], [-3.0, 0.5]])


def simulated(expected: bool) -> hb.Problem:
    def outer(x: Any, y: Any, centre: Any) -> Any:
        return jnp.sum((y - centre) ** 2) / 2 + jnp.sum(x**2) / 2

    def inner(x: Any, y: Any, centre: Any) -> Any:
        return jnp.sum((y - x - centre) ** 2) / 2

    def draw(key: Any, centre: Any) -> Any:
        return centre + 0.1 * jax.random.normal(key, (2,), centre.dtype)

    f, g = (
        hb.Simulator(list(CENTRES), draw, loss if expected else None) for loss in (outer, inner)
    )
    return hb.Problem(outer, inner, np.full(2, 0.5), np.zeros(2), f, g, personal=True)


def test_without_pooled_losses_a_run_measures_what_it_can() -> None:
    faster = replace(TUNED, alpha=0.05, beta=0.1, gamma=0.1)
    result = hb.solve(simulated(expected=False), hb.ring(K), faster, steps=800)
    assert "objective" not in result.history
    assert "outer_loss" not in result.history
    # Its noise has a standard deviation of 0.1 a draw, and steps average it.
    np.testing.assert_allclose(result.y, result.x + CENTRES, rtol=0, atol=0.15)
    np.testing.assert_allclose(result.x, 0, rtol=0, atol=0.15)


def test_what_is_affordable_counts_a_factorisation_an_agent() -> None:
    def made(agents: int, d: int, personal: bool, lengths: tuple[int, int] = (1, 1)) -> hb.Problem:
        shards = [np.ones((lengths[k == 0], 1)) for k in range(agents)]

        def loss(x: Any, y: Any, batch: Any) -> Any:
            return jnp.mean(batch) * y @ y + jnp.sum(x**2)

        given = loss, loss, np.zeros(1), np.zeros(d), shards, shards
        return hb.Problem(*given, personal=personal)

    assert affordable(made(100, 60, personal=True))
    assert affordable(made(100, 200, personal=False))
    assert not affordable(made(100, 200, personal=True))
    # Padded to the longest shard, 500 agents look at 500 times as much.
    assert affordable(made(500, 20, personal=False, lengths=(1, 20_000)))
    assert not affordable(made(500, 20, personal=True, lengths=(1, 20_000)))


# --- where runs end ----------------------------------------------------------------------------


@pytest.mark.parametrize("heterogeneity", [0.5, 1.0, 3.0])
def test_tracking_is_exact_however_much_agents_differ(heterogeneity: float) -> None:
    problem = quadratic(heterogeneity=heterogeneity)
    tracked = hb.LoPA(alpha=0.03, beta=0.04, gamma=0.04, theta=1.0)
    result = hb.solve(problem, hb.ring(K), tracked, steps=40_000, tolerance=1e-10)
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, problem.solution, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.y, problem.closed_form(result.x).y, rtol=0, atol=1e-8)


def test_local_directions_stop_short_and_smaller_steps_come_closer() -> None:
    problem = quadratic()
    ends = []
    for alpha, steps in ((0.02, 4000), (0.002, 40_000)):
        local = hb.LoPA(alpha=alpha, beta=0.05, gamma=0.05, theta=1.0, direction="lg")
        result = hb.solve(problem, hb.ring(K), local, steps=steps, record_every=steps)
        ends.append(result.history["gradient_norm"][-1])
    assert ends[0] > 1e-3
    assert ends[1] < ends[0] / 5


def test_only_x_and_its_direction_are_sent() -> None:
    problem = logistic(RAGGED, personal=True)
    for direction, numbers in (("gt", 8), ("lg", 4)):
        result = hb.solve(problem, hb.ring(K), replace(TUNED, direction=direction), steps=10)
        assert (result.ledger["bytes"] == 10 * 2 * numbers * 8).all()  # two neighbours, float64
        assert (result.ledger["rounds"] == 10).all()
        assert set(result.traffic.parts) == set("xh"[: numbers // 4])


# --- which run it is ---------------------------------------------------------------------------


def test_it_says_that_it_is_personal() -> None:
    assert repr(logistic(RAGGED, personal=True)) == (
        "Problem('problem': 4 agents, d_x = 4, d_y = 4, float64, personal)"
    )
    assert "personal" not in repr(logistic(RAGGED))
    with pytest.raises(hb.ProblemError, match="personal = 'yes' must be True or False"):
        logistic(RAGGED, personal="yes")  # type: ignore[arg-type]


def test_the_fingerprint_tells_both_kinds_apart() -> None:
    common, personal = logistic(RAGGED).fingerprint, logistic(RAGGED, personal=True).fingerprint
    assert {n for n in personal if personal[n] != common.get(n)} == {"inner problem"}
    narrow = logistic(RAGGED, personal=True).in_precision(np.float32)
    assert narrow.personal
    assert "inner problem" in narrow.fingerprint


def test_a_checkpoint_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    class Either(hb.LoPA):
        """LoPA for both kinds: only the checkpoint can tell them apart."""

        def check_fits(self, problem: Any, network: Any, links: Any = None) -> None:
            pass

    either = Either(alpha=0.03, beta=0.05, gamma=0.05, theta=0.5)
    options: dict[str, Any] = {"checkpoint": tmp_path, "metrics": ["consensus"]}
    hb.solve(logistic(RAGGED, personal=True), hb.ring(K), either, steps=4, **options)
    with pytest.raises(hb.CheckpointError, match="not the same inner problem"):
        hb.solve(logistic(RAGGED), hb.ring(K), either, steps=8, resume=True, **options)


# --- which method for which kind ---------------------------------------------------------------

NAMES = hb.algorithms.names()
PERSONAL = [name for name in NAMES if hb.algorithms.get(name).personal]


def suggested(name: str) -> Any:
    return hb.algorithms.get(name).suggest(hb.Scale(3.0, 0.5))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PERSONAL])
def test_other_methods_refuse_personal_problems(name: str) -> None:
    algorithm = suggested(name)
    with pytest.raises(hb.SettingError) as caught:
        algorithm.check_fits(logistic([3], personal=True), hb.complete(1))
    assert str(caught.value) == (
        f"{type(algorithm).__name__} looks for one y that all agents have in common, and in this "
        f"problem every agent has its own (personal=True): it would solve another problem. Use "
        f"LoPA, or leave personal out."
    )


def test_personal_methods_refuse_common_problems() -> None:
    assert PERSONAL == ["lopa"]
    with pytest.raises(hb.SettingError) as caught:
        hb.solve(logistic(RAGGED), hb.ring(K), suggested("lopa"), steps=2)
    assert str(caught.value) == (
        "LoPA is a method for personal problems, in which every agent has a y of its own, and the "
        "agents of this one have a common y. Use SPARKLE, or describe the problem with "
        "hb.Problem(..., personal=True)."
    )


# --- what the conformance suite finds ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MixesModels(hb.LoPA):
    """It mixes y as methods for common problems do, so no agent solves its own problem."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=agent.mix(after.y))


@dataclass(frozen=True, kw_only=True)
class SaysLocalIsExact(hb.LoPA):
    @classmethod
    def suggest(cls, scale: hb.Scale) -> Any:
        return replace(super().suggest(scale), direction="lg")


@pytest.mark.slow
@pytest.mark.parametrize("cls", [MixesModels, SaysLocalIsExact])
def test_the_suite_refuses_what_solves_another_problem(cls: type[hb.Algorithm]) -> None:
    with pytest.raises(hb.testing.ConformanceError, match="it says that it is exact"):
        hb.testing.check_algorithm(cls, only="solution")


@pytest.mark.slow
def test_local_directions_keep_all_other_promises() -> None:
    checks = [name for name, _ in hb.testing.checks_for(SaysLocalIsExact) if name != "solution"]
    assert hb.testing.check_algorithm(SaysLocalIsExact, only=checks) == checks


@pytest.mark.slow
def test_local_directions_equal_their_numpy_reference() -> None:
    program = trial_of(SaysLocalIsExact).sampled
    world = Logistic(program.problem, program.network, 200)
    expected, found = lopa.run(world, program.algorithm), program.end(200)
    for variable, value in expected.items():
        np.testing.assert_allclose(found[variable], value, rtol=0, atol=1e-10)


def test_without_an_algorithm_one_for_personal_problems_is_chosen() -> None:
    problem = logistic(RAGGED, personal=True)
    result = hb.solve(problem, hb.ring(K), steps=2_000)
    assert result.choice.startswith(
        "LoPA was chosen: it is made for agents that each have their own"
    )
    best, objective = hb.optimum(problem).value, result.history["objective"]
    assert objective[-1] - best <= 0.05 * (objective[0] - best)


def test_a_run_that_diverges_says_so_with_the_largest_curvature() -> None:
    problem = quadratic()
    wild = hb.LoPA(alpha=5.0, beta=5.0, gamma=5.0, theta=1.0)
    largest = f"{hb.curvature(problem).largest:.3g}"
    with pytest.raises(hb.DivergenceError, match=f"inner problem was {largest}"):
        hb.solve(problem, hb.ring(K), wild, steps=400, seed=[0, 1])
