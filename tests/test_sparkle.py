"""SPARKLE: all members, alone and mixed, against the primal-dual form that defines them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.core.schedules import InverseRule, settling
from hobnob.problems.quadratic import quadratic
from tests.reference import sparkle
from tests.reference.world import SEED, Logistic, logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

PLAIN = hb.SPARKLE.suggest(Scale(3.0, 0.5))
MEMBERS = ("ed", "extra", "gt", "semi-atc-gt", "atc-gt")
# Levels are independent, so it is enough that each member occurs at x, y and z.
MIXED = [("ed", "extra", "semi-atc-gt"), ("extra", "gt", "atc-gt")]


def with_members(x: str, y: str, z: str) -> Any:
    return replace(PLAIN, x=x, y=y, z=z)


def falling(first: float) -> InverseRule:
    return InverseRule(20 * first, offset=19)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("members", MIXED, ids="/".join)
def test_equals_the_primal_dual_form(members: tuple[str, str, str], momentum: float) -> None:
    """With changing step sizes, so that each gradient must be paired with its own step size.

    The second case has separate networks for y and z.
    """
    given, network, steps = logistic_problem([5, 2, 9, 4]), hb.path(4), 40
    if members == MIXED[1]:
        network = network.with_levels(y=hb.star(4), z=hb.ring(4))
    sizes = {size: falling(getattr(PLAIN, size)) for size in ("alpha", "beta", "gamma")}
    algorithm = replace(with_members(*members), **sizes, momentum=momentum)
    with given.precision():
        run = simulated(given, network, algorithm, SEED)
        state = run.advance(run.initial_state(), 0, steps).state._asdict()
    expected = sparkle.run(Logistic(given, network, steps), algorithm)
    assert {"x", "y", "z", "r"} <= set(expected)
    for variable, value in expected.items():
        np.testing.assert_allclose(state[variable], value, rtol=0, atol=1e-11, err_msg=variable)


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_finds_the_solution(member: str) -> None:
    problem = quadratic(8, 3, 4, condition=2.0, seed=1)
    algorithm = replace(hb.SPARKLE.suggest(Scale(2.0, 1.0)), x=member, y=member, z=member)
    result = hb.solve(
        problem, hb.ring(8), algorithm, steps=2000, record_every=2000, metrics=["consensus"]
    )
    assert np.linalg.norm(problem.closed_form(result.x).gradient) <= 1e-9
    assert max(result.history[f"consensus_{w}"][-1] for w in "xyz") <= 1e-12


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_finds_the_solution_in_a_box(member: str) -> None:
    """A correction must not mistake the effect of a bound for disagreement."""
    problem = quadratic(8, 3, 4, condition=2.0, seed=1)
    least = problem.solution + np.array([-1.0, 0.3, -1.0])  # the second entry is at its bound
    problem.x0, problem.x_bounds = least + 0.5, (least, np.full(3, np.inf))
    # With falling step sizes, differing agents push against the bound a little.
    for rule, reached in ((float, 1e-9), (settling, 1e-2)):
        size = rule(0.2)
        algorithm = hb.SPARKLE(alpha=size, beta=size, gamma=size, theta=0.5, x=member)
        result = hb.solve(problem, hb.ring(8), algorithm, steps=3000, record_every=3000)
        assert result.history["gradient_norm"][-1] <= reached
        assert result.x[1] - least[1] <= reached


def test_momentum_takes_fewer_steps_where_the_inner_problem_is_badly_conditioned() -> None:
    problem = quadratic(8, 3, 4, condition=200.0, seed=1)
    still = replace(PLAIN, alpha=0.1, beta=3e-3, gamma=3e-3, theta=1.0)
    steps = {}
    for m in (0.0, 0.8):
        found = hb.solve(
            problem,
            hb.complete(8),
            replace(still, momentum=m),
            steps=20_000,
            record_every=20,
            tolerance=1e-3,
            metrics=["gradient_norm"],
        )
        assert found.status == "converged"
        steps[m] = found.steps
    assert steps[0.8] < steps[0.0] / 2


@pytest.mark.parametrize(("value", "match"), [(1.0, "below 1"), (-0.1, "at least 0")])
def test_a_momentum_that_would_grow_for_ever_is_refused(value: float, match: str) -> None:
    with pytest.raises(hb.SettingError, match=match):
        replace(PLAIN, momentum=value)


def test_in_float32_tracking_members_come_nearer() -> None:
    problem = quadratic(8, 3, 4, condition=2.0, seed=1, dtype="float32")
    truth = quadratic(8, 3, 4, condition=2.0, seed=1)
    error = {}
    for member in ("ed", "gt"):
        algorithm = replace(hb.SPARKLE.suggest(Scale(2.0, 1.0)), x=member, y=member, z=member)
        x = hb.solve(problem, hb.ring(8), algorithm, steps=3000, metrics=None).x
        error[member] = np.linalg.norm(truth.closed_form(x).gradient)
    assert error["gt"] < 1e-4
    assert error["ed"] > 10 * error["gt"]


# rounds and vectors of one level in one iteration
@pytest.mark.parametrize(
    ("member", "rounds", "vectors"),
    [("ed", 1, 1), ("extra", 1, 1), ("gt", 1, 2), ("semi-atc-gt", 1, 2), ("atc-gt", 2, 2)],
)
def test_what_a_member_sends(member: str, rounds: int, vectors: int) -> None:
    problem = quadratic(8, 3, 4)
    with problem.precision():
        run = simulated(problem, hb.ring(8), with_members("ed", member, "ed"), 0)
        costs = {column: int(values[0]) for column, values in run.costs.until(1).items()}
    assert costs["rounds"] == 2 + rounds
    assert costs["bytes"] == 2 * 8 * (3 + 4 + 4 * vectors)
    assert costs["matrices"] == 0


@pytest.mark.parametrize("level", ["x", "y", "z"])
def test_unknown_members_are_refused(level: str) -> None:
    with pytest.raises(hb.SettingError) as caught:
        replace(PLAIN, **{level: "ED"})
    assert str(caught.value) == (
        f'{level} = \'ED\' must be "ed", "extra", "gt", "semi-atc-gt" or "atc-gt".'
    )


def test_levels_on_networks_of_their_own() -> None:
    """They find the solution, and an agent's traffic follows its links at each level."""
    problem = quadratic(8, 3, 4, condition=2.0, seed=1)
    network = hb.ring(8).with_levels(y=hb.complete(8), z=hb.star(8))
    algorithm = hb.SPARKLE.suggest(Scale(2.0, 1.0))
    result = hb.solve(problem, network, algorithm, steps=2000, metrics=None)
    assert np.linalg.norm(problem.closed_form(result.x).gradient) <= 1e-9
    links = 3 * hb.ring(8).degrees + 4 * hb.complete(8).degrees + 4 * hb.star(8).degrees
    np.testing.assert_array_equal(result.ledger["bytes"], 2000 * 8 * links)


def test_levels_that_do_not_fit_are_refused() -> None:
    problem, ring = quadratic(8, 3, 4), hb.ring(8)
    with pytest.raises(hb.NetworkError, match="level y has 7 agents and this one 8"):
        ring.with_levels(y=hb.ring(7))
    with pytest.raises(hb.SettingError, match="level w, which SPARKLE does not know: its levels"):
        hb.solve(problem, ring.with_levels(w=hb.star(8)), PLAIN)
    with pytest.raises(hb.SettingError, match="level y, which DSOBA does not know: it has no"):
        hb.solve(problem, ring.with_levels(y=hb.star(8)), hb.DSOBA.suggest(Scale(2.0, 1.0)))
    with pytest.raises(hb.SettingError, match="Links can't fail where levels"):
        hb.solve(problem, ring.with_levels(y=hb.star(8)), PLAIN, links=hb.Drop(0.1))


def test_a_checkpoint_knows_the_networks_of_levels(tmp_path: Path) -> None:
    problem, ring = quadratic(8, 3, 4), hb.ring(8)
    hb.solve(problem, ring, PLAIN, steps=10, checkpoint=tmp_path)
    with pytest.raises(hb.CheckpointError, match="network"):
        hb.solve(
            problem,
            ring.with_levels(y=hb.star(8)),
            PLAIN,
            steps=20,
            checkpoint=tmp_path,
            resume=True,
        )
