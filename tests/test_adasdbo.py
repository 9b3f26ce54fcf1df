"""AdaSDBO: settings that all differ, and what its docstring says of its step sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.problems.quadratic import Quadratic, quadratic
from tests.reference import adasdbo
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

ONES = hb.AdaSDBO(alpha=1.0, beta=1.0, gamma=1.0)


@pytest.mark.parametrize("larger", ["S_y", "S_z"])
def test_equals_its_reference_with_settings_that_differ(larger: str) -> None:
    """What is suggested has beta = gamma. Here either sum is once the larger one."""
    given, network, steps = logistic_problem([5, 2, 9, 4]), hb.path(4), 60
    gamma = 0.7 if larger == "S_z" else 0.02  # y far from its solution keeps S_y growing
    algorithm = hb.AdaSDBO(alpha=0.9, beta=0.4, gamma=gamma, initial=0.3)
    with given.precision():
        run = simulated(given, network, algorithm, SEED)
        state = run.advance(run.initial_state(), 0, steps).state._asdict()
    expected = adasdbo.run(Logistic(given, network, steps), algorithm)
    for variable, value in expected.items():
        np.testing.assert_allclose(state[variable], value, rtol=0, atol=1e-11, err_msg=variable)
    _, S_y, S_z = expected["S"].T
    assert ((S_y > S_z) if larger == "S_y" else (S_z > S_y)).all()


def test_gossip_makes_step_sizes_agree() -> None:
    given, network, steps = logistic_problem([5, 2, 9, 4]), hb.ring(4), 300
    world = Logistic(given, network, steps)
    mixed = adasdbo.run(world, ONES)["S"]
    world.W = np.eye(4)
    apart = adasdbo.run(world, ONES)["S"]
    spread = {name: np.ptp(S, axis=0) / S.mean(axis=0) for name, S in (("m", mixed), ("a", apart))}
    assert (spread["m"] < 0.02).all()
    assert (spread["a"] > 0.2).all()


def ended(problem: Quadratic, algorithm: Any, steps: int) -> tuple[float, np.ndarray]:
    """|grad F| over that at the start, and the mean S."""
    with problem.precision():
        run = simulated(problem, hb.ring(8), algorithm)
        state: Any = run.gather_unpacked(run.advance(run.initial_state(), 0, steps).state)
    x = np.asarray(state.x).mean(axis=0)
    left, first = (np.linalg.norm(problem.closed_form(at).gradient) for at in (x, problem.x0))
    return float(left / first), np.asarray(state.S).mean(axis=0)


def test_identical_agents_find_the_solution_with_any_constants() -> None:
    problem = quadratic(8, condition=4.0, seed=1, heterogeneity=0.0)
    for factor in (0.3, 1.0, 3.0):
        algorithm = hb.AdaSDBO(alpha=factor, beta=factor, gamma=factor)
        left, _ = ended(problem, algorithm, 20_000)
        assert left < 1e-9, factor


def test_where_agents_differ_the_sums_grow_and_x_stays_behind() -> None:
    problem = quadratic(8, condition=4.0, seed=1)
    early, sums = ended(problem, ONES, 2000)
    late, later = ended(problem, ONES, 8000)
    assert 0.2 < late < early < 0.6
    np.testing.assert_allclose(later / sums, 4, rtol=0.2)
    assert ended(problem, hb.AdaSDBO.suggest(hb.Scale(4.0, 1.0)), 8000)[0] < 0.03


def test_noise_has_the_same_effect_on_identical_agents() -> None:
    problem = quadratic(
        8, condition=4.0, seed=1, heterogeneity=0.0, noise=0.5, records=32, batch_size=1
    )
    left, sums = ended(problem, ONES, 3000)
    assert 0.2 < left < 0.6
    assert (sums > 1000).all()
