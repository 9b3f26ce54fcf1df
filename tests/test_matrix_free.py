"""Methods that send only vectors: their accuracy, their consensus, and what they send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg

import hobnob as hb
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.problems.quadratic import quadratic
from tests.reference import dsoba
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

DIM_X, DIM_Y = 3, 4
PROBLEM = quadratic(8, DIM_X, DIM_Y, condition=2.0, seed=1)  # agents differ; nothing is random
RING = hb.ring(8)


class End(NamedTuple):
    gradient: float  # |grad F| at the mean x
    consensus: float  # the largest mean_k |w_k - mean w|^2, over x, y and z


def suggested(name: str) -> Any:
    return hb.algorithms.get(name).suggest(Scale(2.0, 1.0))


def end(algorithm: Algorithm, steps: int) -> End:
    result = hb.solve(
        PROBLEM, RING, algorithm, steps=steps, record_every=steps, metrics=["consensus"]
    )
    columns = {f"consensus_{w}" for w in "xyz"} & set(result.history)  # not all have a z
    spread = max(float(result.history[column][-1]) for column in columns)
    return End(float(np.linalg.norm(PROBLEM.closed_form(result.x).gradient)), spread)


START = float(np.linalg.norm(PROBLEM.closed_form(PROBLEM.x0).gradient))


@pytest.mark.parametrize("name", ["sparkle", "madsbo_gt", "storm"])
def test_constant_steps_find_the_solution(name: str) -> None:
    found = end(suggested(name), 3000)
    assert found.gradient <= 1e-9
    assert found.consensus <= 1e-12


@pytest.mark.parametrize("name", ["dsoba", "madsbo"])
def test_without_corrections_a_floor_is_left_that_shrinks_with_the_steps(name: str) -> None:
    coarse = suggested(name)
    sizes = {step: getattr(coarse, step) / 4 for step in ("alpha", "beta", "gamma", "theta")}
    high, low = end(coarse, 1500), end(replace(coarse, **sizes), 6000)
    assert 1e-3 < high.gradient < START / 4
    assert 1e-3 < low.gradient < high.gradient / 2
    assert low.consensus < high.consensus / 8


def test_local_hypergradients_lead_to_consensus_on_a_wrong_point() -> None:
    found = end(suggested("mdbo"), 3000)
    assert found.consensus <= 1e-20
    assert found.gradient > START / 50


def test_the_bias_of_the_penalty_method_is_in_proportion_to_its_parameter() -> None:
    def bias(p: float) -> float:
        found = end(hb.Penalty(alpha=0.1 * p, gamma=0.05 * p, penalty=p), int(400 / p))
        assert found.consensus <= 1e-12
        return found.gradient

    large, middle, small = bias(0.08), bias(0.04), bias(0.02)
    assert large > 1e-3
    assert large / middle == pytest.approx(2, rel=0.05)
    assert middle / small == pytest.approx(2, rel=0.05)


PENALTIES = (0.1, 0.03, 0.01)


def slope(errors: list[float]) -> float:
    """Of log(error) against log(p)."""
    return float(np.polyfit(np.log(PENALTIES), np.log(errors), 1)[0])


@pytest.mark.parametrize(("difference", "order"), [("one-sided", 1), ("central", 2)])
def test_the_order_of_the_penalty_method_s_bias(difference: str, order: int) -> None:
    """Of |grad F|, and of the distance of the y that is reported from the inner solution."""
    gradients, distances = [], []
    for p in PENALTIES:
        algorithm = hb.Penalty(alpha=0.1 * p, gamma=0.05 * p, penalty=p, difference=difference)
        steps = int(400 / p)
        result = hb.solve(
            PROBLEM, RING, algorithm, steps=steps, record_every=steps, metrics=["consensus"]
        )
        assert max(result.history[f"consensus_{w}"][-1] for w in "xyz") <= 1e-12
        found = PROBLEM.closed_form(result.x)
        gradients.append(float(np.linalg.norm(found.gradient)))
        distances.append(float(np.linalg.norm(result.y - found.y)))
    assert slope(gradients) == pytest.approx(order, abs=0.05)
    assert slope(distances) == pytest.approx(order, abs=0.05)
    if difference == "central":
        assert gradients[0] < 0.003  # one-sided: 0.026


def test_a_central_penalty_has_a_limit() -> None:
    """Up to it g - p f is convex in y. x moves slowly, so that it can't hold y back."""
    A = PROBLEM.inner_data.arrays["A"].mean(axis=0)  # one record an agent
    Q = PROBLEM.outer_data.arrays["Q"].mean(axis=0)[DIM_X:, DIM_X:]
    limit = 1 / scipy.linalg.eigh(Q, A, eigvals_only=True)[-1]

    def largest(factor: float, difference: str) -> float:
        p = float(factor * limit)
        algorithm = hb.Penalty(alpha=1e-4, gamma=0.05, penalty=p, difference=difference)
        return np.abs(hb.solve(PROBLEM, RING, algorithm, steps=50_000, metrics=None).y).max()

    assert largest(0.95, "central") < 10
    assert largest(1.05, "central") > 1e10
    assert largest(1.05, "one-sided") < 10


# rounds, numbers to each neighbour, gradients and products of one iteration; N = 2 inner steps,
# b = 8 terms
SENT = {
    "dsoba": (1, DIM_X + 2 * DIM_Y, 2, 2),
    "sparkle": (3, DIM_X + 2 * DIM_Y, 2, 2),
    "madsbo": (5, DIM_X + 6 * DIM_Y, 5, 3),
    "madsbo_gt": (5, 2 * DIM_X + 8 * DIM_Y, 5, 3),
    "storm": (1, 2 * DIM_X + 4 * DIM_Y, 4, 4),
    "mdbo": (1, 2 * DIM_X + 2 * DIM_Y, 2, 9),
    "penalty": (1, 2 * DIM_X + 4 * DIM_Y, 3, 0),
}


def costs(algorithm: Algorithm) -> dict[str, int]:
    with PROBLEM.precision():
        run = simulated(PROBLEM, RING, algorithm, 0)
        return {column: int(values[0]) for column, values in run.costs.until(1).items()}


@pytest.mark.parametrize("name", SENT)
def test_vectors_only_and_no_matrix_formed(name: str) -> None:
    rounds, numbers, gradients, products = SENT[name]
    found = costs(suggested(name))
    assert found["matrices"] == 0
    assert (found["rounds"], found["gradients"], found["products"]) == (rounds, gradients, products)
    assert found["bytes"] == 2 * 8 * numbers  # to two neighbours


def test_a_central_penalty_sends_no_more() -> None:
    one_sided = costs(suggested("penalty"))
    central = costs(replace(suggested("penalty"), difference="central"))
    assert central == {**one_sided, "gradients": 4}


def test_the_paper_s_own_experiment_sends_42_numbers_in_place_of_39452() -> None:
    problem = quadratic(5, 14, 14)
    with problem.precision():
        parts = simulated(problem, hb.ring(5), suggested("dsoba"), 0).ledger.message_parts
    assert parts == {"x": 8 * 14, "y": 8 * 14, "z": 8 * 14}


# --- D-SOBA without second derivatives ---------------------------------------------------------


def test_first_order_dsoba_equals_its_reference() -> None:
    given, network, steps = logistic_problem([5, 2, 9]), hb.ring(3), 40
    algorithm = replace(suggested("dsoba"), products="first")
    with given.precision():
        run = simulated(given, network, algorithm, SEED)
        held = run.advance(run.initial_state(), 0, steps).state._asdict()
        state = {name: np.asarray(value) for name, value in held.items()}
    world = Logistic(given, network, steps)
    for variable, value in dsoba.run(world, algorithm).items():
        np.testing.assert_allclose(state[variable], value, rtol=0, atol=1e-10)
    # An approximation: its error is of the order of the width's square.
    products = dsoba.run(world, replace(algorithm, products="second"))
    apart = np.abs(state["x"] - products["x"]).max()
    assert 0 < apart < 1e-6


def test_first_order_dsoba_takes_gradients_only() -> None:
    found = costs(replace(suggested("dsoba"), products="first"))
    assert (found["gradients"], found["products"], found["matrices"]) == (4, 0, 0)


@pytest.mark.parametrize("word", ["third", "", None, True])
def test_dsoba_refuses_other_products(word: Any) -> None:
    with pytest.raises(hb.SettingError, match=r'products = .* must be "second" or "first"\.'):
        replace(suggested("dsoba"), products=word)


@pytest.mark.parametrize("width", [0.0, -1e-3, float("nan")])
def test_dsoba_refuses_widths_that_are_none(width: float) -> None:
    with pytest.raises(hb.SettingError, match="width = "):
        replace(suggested("dsoba"), width=width)
