"""Step sizes: the paper's rules by hand, and any user's schedule."""

from __future__ import annotations

from functools import cache
from math import ceil, log, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hobnob as hb
from hobnob.core import schedules
from hobnob.core.schedules import bound, value_at


def test_the_rule_for_nonconvex_problems() -> None:
    rule = schedules.nonconvex(0.1).bind(agents=5, steps=2000)
    assert [rule(step) for step in (0, 1, 1999)] == [pytest.approx(0.1 * sqrt(5 / 2000))] * 3
    assert str(rule) == "0.1 sqrt(K/T)"
    assert schedules.nonconvex().bind(4, 16)(0) == 0.5


def test_a_rule_that_is_not_bound_says_so() -> None:
    with pytest.raises(hb.SettingError, match=r"10 sqrt\(K/T\) needs K and T"):
        schedules.nonconvex(10)(0)


@pytest.mark.parametrize(
    ("scale", "most", "steps"), [(10, 1, 500), (1, 1, 5), (10, 0.5, 2000), (3, 1, 45)]
)
def test_the_advice_is_the_shortest_run(scale: float, most: float, steps: int) -> None:
    rule = schedules.nonconvex(scale)
    assert f"T >= {steps}." in rule.bind(5, 1).advice(most)
    assert rule.bind(5, steps)(0) <= most < rule.bind(5, steps - 1)(0)


def test_the_rules_under_the_pl_condition_start_at_t_1() -> None:
    alpha, average = schedules.pl_outer(mu=0.5, offset=7), schedules.pl_average(offset=7)
    assert [alpha(step) for step in (0, 1, 12)] == [4 / 8, 4 / 9, 4 / 20]
    assert [average(step) for step in (0, 1, 12)] == [7 / 8, 7 / 9, 7 / 20]
    assert str(alpha) == "4 / (7 + t)"


def test_the_capped_rule_starts_at_t_1() -> None:
    rule = schedules.capped(0.5, 50)
    assert [rule(step) for step in (0, 98, 99, 100, 199)] == [0.5, 0.5, 0.5, 50 / 101, 0.25]
    assert schedules.capped(10, 2)(0) == 2
    assert str(rule) == "min(0.5, 50 / t)"


def test_powers_start_at_t_1() -> None:
    rule = schedules.power(0.5, 2 / 5)
    assert [rule(step) for step in (0, 31, 1023)] == pytest.approx([0.5, 0.125, 0.03125])
    assert str(rule) == "0.5 / t^0.4"
    bounded = schedules.power(2, 0.5, most=1)
    assert [bounded(step) for step in (0, 3, 15)] == [1, 1, 0.5]
    assert str(bounded) == "min(1, 2 / t^0.5)"
    assert schedules.power(3, 1)(5) == schedules.capped(9, 3)(5)


@pytest.mark.parametrize(
    "rule",
    [
        schedules.pl_outer(0.5, 7),
        schedules.pl_average(7),
        schedules.capped(0.5, 50),
        schedules.power(0.5, 3 / 5),
    ],
)
def test_rules_are_the_same_when_traced(rule: Any) -> None:
    with jax.enable_x64(True):
        steps = jnp.arange(0, 300, 37)
        np.testing.assert_allclose(jax.jit(jax.vmap(rule))(steps), [rule(int(s)) for s in steps])


def test_binding() -> None:
    rule = schedules.nonconvex(2)
    assert bound(rule, 3, 12) == rule.bind(3, 12)
    assert value_at(bound(rule, 3, 12), 5) == 1
    assert bound(0.25, 3, 12) == 0.25
    capped = schedules.capped(0.5, 50)
    assert bound(capped, 3, 12) is capped
    assert value_at(0.25, 5) == 0.25


def dsbo(**changes: Any) -> hb.DSBO:
    rates: dict[str, Any] = {"alpha": 0.05, "beta": 0.5, "gamma": 0.05} | changes
    return hb.DSBO(**rates, terms=5, smoothness=20.0, strong_convexity=1.0)


def test_an_algorithm_binds_its_rules_and_leaves_the_original_alone() -> None:
    algorithm = dsbo(beta=schedules.nonconvex(0.5))
    bound_to = algorithm.bind(agents=4, steps=100)
    assert bound_to.beta == schedules.RootRule(0.5, agents=4, steps=100)
    assert algorithm.beta == schedules.RootRule(0.5)
    assert bound_to.alpha == 0.05


@cache
def quadratic() -> hb.Problem:
    return hb.problems.get("quadratic")(agents=3, dim_x=2, dim_y=2)


@cache
def run(algorithm: hb.DSBO) -> Any:
    return hb.solve(quadratic(), hb.ring(3), algorithm, steps=20, metrics=None).x


def test_a_rule_in_a_run_is_its_number() -> None:
    ruled = run(dsbo(beta=schedules.nonconvex(1)))
    np.testing.assert_allclose(ruled, run(dsbo(beta=sqrt(3 / 20))), rtol=1e-14)
    assert np.abs(ruled - run(dsbo())).max() > 1e-6


def test_optax_schedules_work_as_they_are() -> None:
    constant = run(dsbo(alpha=optax.constant_schedule(0.05)))
    np.testing.assert_allclose(constant, run(dsbo()), rtol=1e-14)

    # A decay by hand and optax's own: the same values at the same steps, counted from 0.
    decaying = run(dsbo(gamma=optax.piecewise_constant_schedule(0.05, {10: 0.1})))
    by_hand = run(dsbo(gamma=lambda step: jnp.where(step < 10, 0.05, 0.005)))
    np.testing.assert_allclose(decaying, by_hand, rtol=1e-6)  # optax rounds to float32
    assert np.abs(decaying - constant).max() > 1e-5


def test_the_number_of_terms() -> None:
    # kappa = 1/10: 3 ceil(log 1000 / log(10/9)) = 3 ceil(65.56)
    assert schedules.neumann_terms(1000, smoothness=10, strong_convexity=1) == 198
    # kappa = 1/2: 3 ceil(log2 1000) = 3 * 10
    assert schedules.neumann_terms(1000, smoothness=2, strong_convexity=1) == 30
    assert schedules.neumann_terms(1000, 5, 5) == 1
    assert schedules.neumann_terms(1, 2, 1) == schedules.neumann_terms(2, 2, 1) == 3


@pytest.mark.parametrize("steps", [10, 777, 10**6])
@pytest.mark.parametrize("kappa", [0.5, 0.1, 0.003])
def test_the_number_of_terms_keeps_its_promise(steps: int, kappa: float) -> None:
    terms = schedules.neumann_terms(steps, 1.0, kappa)
    assert terms == 3 * ceil(log(steps) / log(1 / (1 - kappa)))
    assert (1 - kappa) ** terms <= 1 / steps**3


@pytest.mark.parametrize("mu", [0, -1, 11])
def test_the_number_of_terms_of_an_impossible_problem(mu: float) -> None:
    with pytest.raises(hb.SettingError, match=f"strong_convexity = {mu} must be above 0 and at"):
        schedules.neumann_terms(100, smoothness=10, strong_convexity=mu)


def test_schedules_of_optax_may_touch_zero() -> None:
    problem = hb.problems.get("quadratic")(agents=3)
    for schedule in (
        optax.warmup_cosine_decay_schedule(0.0, 0.01, 3, 12),
        optax.cosine_decay_schedule(0.01, 10),
    ):
        dsbo = hb.DSBO(
            alpha=schedule, beta=0.1, gamma=0.05, terms=3, smoothness=20.0, strong_convexity=1.0
        )
        assert hb.solve(problem, hb.ring(3), dsbo, steps=12, metrics=None).status == "finished"
