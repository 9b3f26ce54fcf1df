"""SimFBO: settings that all differ, and what local steps do to where it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.problems.quadratic import quadratic
from tests.reference import simfbo
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

PLAIN = hb.SimFBO.suggest(hb.Scale(smoothness=4.0, strong_convexity=1.0))
LOCAL = ("local_alpha", "local_beta", "local_gamma")
SERVER = ("alpha", "beta", "gamma")


def scaled(names: tuple[str, ...], factor: float) -> hb.SimFBO:
    return replace(PLAIN, **{name: factor * getattr(PLAIN, name) for name in names})


def test_equals_its_reference_with_settings_that_differ() -> None:
    """What is suggested has equal step sizes for y and z, agents and server, and equal weights."""
    given, network, steps = logistic_problem([5, 2, 9]), hb.star(3), 40
    algorithm = hb.SimFBO(
        alpha=0.05,
        beta=0.06,
        gamma=0.07,
        local_alpha=0.2,
        local_beta=0.1,
        local_gamma=0.15,
        local_steps=4,
        decay=0.7,
    )
    with given.precision():
        run = simulated(given, network, algorithm, SEED)
        state = run.advance(run.initial_state(), 0, steps).state._asdict()
    expected = simfbo.run(Logistic(given, network, steps), algorithm)
    for variable, value in expected.items():
        np.testing.assert_allclose(state[variable], value, rtol=0, atol=1e-11, err_msg=variable)


def test_one_local_step_alone_is_soba() -> None:
    given, steps = logistic_problem([9], None), 50
    sizes = {"alpha": 0.1, "beta": 0.2, "gamma": 0.3}
    local = dict.fromkeys(LOCAL, 0.9)
    algorithm = hb.SimFBO(**sizes, **local, local_steps=1, decay=0.5)
    found = hb.solve(given, hb.complete(1), algorithm, steps=steps)
    expected = hb.solve(given, hb.complete(1), hb.SOBA(**sizes), steps=steps)
    np.testing.assert_allclose(found.x, expected.x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.y, expected.y, rtol=0, atol=1e-13)
    assert np.abs(found.x - given.x0).max() > 0.01


def test_messages_do_not_depend_on_the_number_of_local_steps() -> None:
    given = logistic_problem([5, 2, 9])
    for tau in (1, 5):
        algorithm = replace(PLAIN, local_steps=tau)
        ledger = hb.solve(given, hb.star(3), algorithm, steps=10).ledger
        assert ledger["bytes"].tolist() == [10 * 2 * 8 * 3 * 4] * 3
        assert ledger["samples"].tolist() == [10 * 2 * tau * 2] * 3


def test_local_steps_stay_within_the_bounds() -> None:
    """Outside them this problem is not defined."""

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - batch) ** 2) / 2

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - jnp.log(x) - batch) ** 2) / 2

    targets = [np.full((1, 1), -9.0), np.full((1, 1), -7.0)]  # far below log 0.5
    shifts = [np.zeros((1, 1)), np.ones((1, 1))]
    bounds = np.array([0.5]), np.array([np.inf])
    problem = hb.Problem(outer, inner, np.ones(1), np.zeros(1), targets, shifts, x_bounds=bounds)
    algorithm = replace(PLAIN, local_alpha=1.0, local_steps=5)
    result = hb.solve(problem, hb.star(2), algorithm, steps=200)
    np.testing.assert_allclose(result.x, 0.5, rtol=0, atol=1e-12)


def left(algorithm: hb.SimFBO, heterogeneity: float = 1.0) -> float:
    problem = quadratic(8, condition=4.0, seed=1, heterogeneity=heterogeneity)
    x = hb.solve(problem, hb.star(8), algorithm, steps=4000, metrics=None).x
    return float(np.linalg.norm(problem.closed_form(x).gradient))


def test_one_local_step_or_agents_alike_find_the_solution() -> None:
    assert left(replace(PLAIN, local_steps=1)) < 1e-9
    assert left(PLAIN, heterogeneity=0.0) < 1e-9


def test_drift_grows_with_local_steps_and_not_with_the_steps_of_the_server() -> None:
    once = left(replace(PLAIN, local_steps=2))
    assert once > 0.01
    for tau in (3, 5):
        np.testing.assert_allclose(
            left(replace(PLAIN, local_steps=tau)), (tau - 1) * once, rtol=0.1
        )
    np.testing.assert_allclose(left(scaled(LOCAL, 0.1)), left(PLAIN) / 10, rtol=0.05)
    for factor in (0.5, 2.0):
        np.testing.assert_allclose(left(scaled(SERVER, factor)), left(PLAIN), rtol=1e-9)
