"""Methods for one agent that are newer than the paper: their promises and their costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.problems.quadratic import quadratic
from tests.reference import saba
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

ALONE = hb.complete(1)
STEADY = quadratic(1, condition=4.0, seed=1)  # nothing is random
NOISY = quadratic(1, condition=4.0, seed=1, noise=0.3, records=32, batch_size=1)
STEPS: dict[str, Any] = {"alpha": 0.0125, "beta": 0.025, "gamma": 0.025}


def suggested(name: str) -> Any:
    return hb.algorithms.get(name).suggest(Scale(4.0, 1.0))


def held(problem: hb.Problem, algorithm: Algorithm, steps: int) -> dict[str, np.ndarray]:
    """The agent's state after `steps` steps."""
    with problem.precision():
        run = simulated(problem, ALONE, algorithm, SEED)
        state = run.advance(run.initial_state(), 0, steps).state
        return {name: np.asarray(value[0]) for name, value in state._asdict().items()}


def gradient(problem: Any, algorithm: Algorithm, steps: int) -> float:
    x = hb.solve(problem, ALONE, algorithm, steps=steps, metrics=None).x
    return float(np.linalg.norm(problem.closed_form(x).gradient))


# --- SABA's memory -----------------------------------------------------------------------------


def test_saba_forgets_the_noise_that_soba_stops_at() -> None:
    """Same batches of one record, same constant steps."""
    floor = [gradient(NOISY, hb.SOBA(**STEPS), steps) for steps in (3000, 6000)]
    assert min(floor) > 0.05
    assert gradient(NOISY, hb.SABA(**STEPS), 6000) <= 1e-8


@pytest.mark.parametrize("size", [1, 7])
def test_saba_equals_its_reference_where_a_batch_repeats_records(size: int) -> None:
    """Shards of 3 and 6 records, so that a batch of 7 draws some twice."""
    given, steps = logistic_problem([3], size), 60
    found = held(given, suggested("saba"), steps)
    expected = saba.run(Logistic(given, ALONE, steps), suggested("saba"))
    for variable, (value,) in expected.items():
        np.testing.assert_allclose(found[variable], value, rtol=0, atol=1e-12, err_msg=variable)


def test_saba_with_whole_shards_is_soba() -> None:
    given = logistic_problem([5], None)
    one, other = (held(given, kind(**STEPS), 200) for kind in (hb.SABA, hb.SOBA))
    for variable in "xyz":
        np.testing.assert_allclose(one[variable], other[variable], rtol=0, atol=1e-13)
    assert one["inner"].shape == (1, 12)


def test_saba_needs_records() -> None:
    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch - y) ** 2)

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch + x - y) ** 2)

    simulator = hb.Simulator([np.ones(2)], lambda key, mean: mean + jax.random.normal(key, (3, 2)))
    records = [np.ones((4, 2))]
    for data, named in (((records, simulator), "inner_data"), ((simulator, records), "outer_data")):
        problem = hb.Problem(outer, inner, np.zeros(2), np.zeros(2), *data)
        with pytest.raises(hb.SettingError) as caught:
            hb.solve(problem, ALONE, hb.SABA(**STEPS), steps=2)
        assert str(caught.value) == (
            f"SABA remembers something of every record, and {named} is a simulator, which has "
            f"none: each of its samples is new. Use SOBA, which remembers nothing, or give {named} "
            f"as records."
        )
        assert hb.solve(problem, ALONE, hb.SOBA(**STEPS), steps=2, metrics=None).success


# --- special cases -----------------------------------------------------------------------------


def test_soba_is_dsoba_at_one_agent_without_an_average() -> None:
    given = logistic_problem([5])
    one, other = (held(given, kind, 100) for kind in (hb.SOBA(**STEPS), hb.DSOBA(**STEPS, theta=1)))
    for variable in "xyz":
        np.testing.assert_allclose(one[variable], other[variable], rtol=0, atol=1e-13)


def test_ttsa_is_alset_with_one_inner_step() -> None:
    """Without noise, since one batch has another name."""
    known = {"alpha": 0.01, "beta": 0.1, "terms": 6, "smoothness": 4.0}
    one = held(STEADY, hb.TTSA(**known), 100)
    other = held(STEADY, hb.ALSET(**known, inner_steps=1), 100)
    for variable in "xy":
        np.testing.assert_allclose(one[variable], other[variable], rtol=0, atol=1e-13)


# --- F2SA's bias -------------------------------------------------------------------------------


def test_the_bias_of_f2sa_is_in_proportion_to_its_penalty() -> None:
    found = [gradient(STEADY, replace(suggested("f2sa"), penalty=p), 3000) for p in (0.08, 0.04)]
    assert found[0] > 0.05
    assert found[0] / found[1] == pytest.approx(2, rel=0.05)


def test_the_bias_of_f2sa_goes_as_its_multiplier_grows() -> None:
    """With p of order t^-1/3, eight times the steps halve the bias."""
    growing = replace(suggested("f2sa"), penalty=hb.schedules.power(0.5, 1 / 3))
    found = [gradient(STEADY, growing, steps) for steps in (2000, 16_000)]
    assert found[0] / found[1] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(("difference", "order"), [("one-sided", 1), ("central", 2)])
def test_the_order_of_f2sa_s_bias(difference: str, order: int) -> None:
    penalties, gradients, distances = (0.1, 0.03, 0.01), [], []
    for p in penalties:
        algorithm = replace(suggested("f2sa"), penalty=p, difference=difference)
        result = hb.solve(STEADY, ALONE, algorithm, steps=3000, metrics=None)
        found = STEADY.closed_form(result.x)
        gradients.append(np.linalg.norm(found.gradient))
        distances.append(np.linalg.norm(result.y - found.y))
    for errors in (gradients, distances):
        slope = np.polyfit(np.log(penalties), np.log(errors), 1)[0]
        assert slope == pytest.approx(order, abs=0.05)


# --- averages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"), [("masoba", {"r": 0.2**2}), ("sustain", {"u": 1, "v": 1})]
)
def test_averages_have_the_noise_of_theta(name: str, first: dict[str, float]) -> None:
    """At a fixed point, an average of weight theta has theta / (2 - theta) of the variance.

    `first` is its share of the variance after one step. 500 seeds determine each of the two
    variances, of five entries or more, to a tenth at 99% confidence.
    """
    still = {size: 1e-12 for size in ("alpha", "beta", "gamma") if hasattr(suggested(name), size)}
    few = {"terms": 4} if name == "sustain" else {}
    algorithm = replace(suggested(name), theta=0.2, **still, **few)
    with NOISY.precision():
        run = simulated(NOISY, ALONE, algorithm, list(range(500)))
        early = run.advance(run.initial_state(), 0, 1).state
        late = run.advance(early, 1, 40).state
    for variable, share in first.items():
        before, after = (
            float(np.asarray(getattr(state, variable)).var(axis=0).sum()) for state in (early, late)
        )
        assert after / (before / share) == pytest.approx(0.2 / 1.8, rel=0.2), variable


# --- costs -------------------------------------------------------------------------------------

# batches, gradients and products of one iteration; N = 3 steps of AmIGO, 2 of F2SA, 16 terms
COSTS = {
    "soba": (2, 2, 2),
    "saba": (2, 2, 2),
    "masoba": (2, 2, 2),
    "amigo": (8, 4, 4),
    "f2sa": (6, 9, 0),
    "ttsa": (18, 2, 16),
    "sustain": (18, 4, 32),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_as_documented_and_no_matrix_is_formed(name: str) -> None:
    with NOISY.precision():
        costs = simulated(NOISY, ALONE, suggested(name), 0).costs.until(1)
    found = {column: int(values[0]) for column, values in costs.items()}
    assert (found["samples"], found["gradients"], found["products"]) == COSTS[name]
    assert found["matrices"] == found["rounds"] == found["bytes"] == 0
