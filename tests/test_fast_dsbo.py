"""The fast steps of DSBO give the numbers of `DSBO.step`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.core.links import Drop, Links, Silent
from hobnob.fast.dsbo_lanes import InLanes
from hobnob.fast.dsbo_shared import SharedHessian, one_hessian
from hobnob.fast.factored import factored_hessians
from tests.reference.world import logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

RAGGED = [5, 2, 9, 3, 4, 7]
IRREGULAR = hb.Network(nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)]))
DSBO = replace(hb.DSBO.suggest(Scale(3.0, 0.5)), terms=7)


def both(
    problem: hb.Problem,
    network: hb.Network = IRREGULAR,
    dsbo: hb.DSBO = DSBO,
    seed: Any = 0,
    links: Any = None,
    steps: int = 30,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], type]:
    """All variables with and without the fast step, and the fast step itself."""
    ends, used = [], type(None)
    with problem.precision():
        failures = Links(links, network, steps) if links else None
        for plain in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("HOBNOB_PLAIN", str(int(plain)))
                run = simulated(problem, network, dsbo.bind(network.size, steps), seed, failures)
            assert (run._fast is None) == plain, "this would compare the plain path with itself"
            used = used if plain else type(run._fast)
            state = run.initial_state()
            for a, b in ((0, 1), (1, 10), (10, steps)):
                state = run.advance(state, a, b).state
            whole = run.layout.unpack(state)
            ends.append({name: np.asarray(value) for name, value in whole._asdict().items()})
    return ends[0], ends[1], used


def assert_equal(ends: Any, tolerance: float = 1e-12, step: type = InLanes) -> None:
    fast, plain, used = ends
    assert used is step
    assert fast.keys() == plain.keys()
    for name, value in plain.items():
        assert fast[name].shape == value.shape
        assert fast[name].dtype == value.dtype
        assert np.abs(fast[name] - value).max() <= tolerance * max(1, np.abs(value).max()), name
    assert np.abs(plain["v"] - plain["v"].flat[0]).max() > 1e-3, "v does not move"


@pytest.mark.parametrize(
    ("batch_size", "lengths"),
    [(1, RAGGED), (3, [4] * 6), (None, [4] * 6), (None, RAGGED)],
    ids=["one", "three", "whole shards", "whole ragged shards"],
)
def test_batches_and_shards(batch_size: int | None, lengths: list[int]) -> None:
    assert_equal(both(logistic_problem(lengths, batch_size)))


@pytest.mark.parametrize(
    ("network", "links", "seed"),
    [
        (hb.ring(6), None, 3),
        (hb.ring(6), Drop(0.4), [3, 4, 5]),
        (hb.ring(2), None, [3, 4]),
        (hb.star(6), None, [3, 4]),
        (hb.star(6), [Drop(0.2), Silent(1, 3, 9)], [3, 4]),
        (IRREGULAR, Drop(0.4), 3),
        (hb.ring(6), Drop(0.4), range(11)),
    ],
    ids=[
        "ring",
        "failing ring",
        "pairs",
        "stars",
        "failing stars",
        "failing irregular",
        "seed by seed",
    ],
)
def test_networks_links_and_seeds(network: hb.Network, links: Any, seed: Any) -> None:
    problem = logistic_problem(RAGGED[: network.size], 1)
    assert_equal(both(problem, network, seed=seed, links=links))


@pytest.mark.parametrize("seed", [3, [3, 4], range(11)], ids=["one", "together", "seed by seed"])
@pytest.mark.parametrize("step", [InLanes, SharedHessian])
def test_a_state_passes_both_doors_as_it_is(seed: Any, step: type) -> None:
    """A resumed run continues from exactly the bits that were saved."""
    problem = quadratic_in_y(tilted) if step is SharedHessian else logistic_problem(RAGGED, 1)
    network = hb.ring(6)
    with problem.precision():
        run = simulated(problem, network, DSBO.bind(6, 9), seed)
        assert isinstance(run._fast, step)
        state = run.advance(run.initial_state(), 0, 9).state
        again = run.pack(run.gather_unpacked(state))
        assert jax.tree.map(np.shape, run.gather_unpacked(state)) == jax.tree.map(
            np.shape, run.shapes
        )
        for name, value in state._asdict().items():
            np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)


@pytest.mark.parametrize("seed", [3, [3, 4], range(11)], ids=["one", "together", "seed by seed"])
@pytest.mark.parametrize("step", [InLanes, SharedHessian])
def test_agents_disagree_in_a_held_state_as_they_do_in_it(seed: Any, step: type) -> None:
    problem = quadratic_in_y(tilted) if step is SharedHessian else logistic_problem(RAGGED, 1)
    with problem.precision():
        run = simulated(problem, hb.ring(6), DSBO.bind(6, 9), seed)
        state = run.advance(run.initial_state(), 0, 9).state
        found = run.layout.disagreements(state)
        v = np.asarray(run.layout.unpack(state).v)
    deviations = v - v.mean(axis=-4, keepdims=True)
    assert found.keys() == {"v"}
    assert step is SharedHessian or (deviations != 0).any()
    np.testing.assert_allclose(
        found["v"], (deviations**2).sum(axis=(-4, -3, -2, -1)) / 6, rtol=1e-12, atol=1e-30
    )


CURVED = np.array([[2.0, 0.5, 0.0], [0.5, 1.5, -0.3], [0.0, -0.3, 1.0]])
SHIFTS = [np.random.default_rng(k).normal(size=(n, 3)) for k, n in enumerate(RAGGED)]
START = np.zeros(3)


def tilted(x: Any, y: Any, batch: Any) -> Any:
    gaps = y - jnp.tanh(x) - batch
    return jnp.mean(jnp.sum(gaps @ CURVED * gaps, axis=1)) / 2


def outer(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean(jnp.sum(jnp.cosh(y - batch), axis=1)) + jnp.sum(x**2)


def quadratic_in_y(inner: Any) -> hb.Problem:
    return hb.Problem(outer, inner, START, START, SHIFTS, SHIFTS, 2)


@pytest.mark.parametrize(
    ("problem", "network", "links", "seed"),
    [
        (hb.problems.get("policy")(agents=6, states=8, features=3), IRREGULAR, None, [3, 4]),
        (quadratic_in_y(tilted), hb.star(6), [Drop(0.2), Silent(1, 3, 9)], [3, 4]),
        (quadratic_in_y(tilted), hb.ring(6), None, 3),
    ],
    ids=["policy", "tilted, failing stars", "tilted ring"],
)
def test_one_hessian_for_all(problem: hb.Problem, network: Any, links: Any, seed: Any) -> None:
    assert_equal(both(problem, network, seed=seed, links=links), step=SharedHessian)


def straight(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean(jnp.sum((y - x - batch) ** 2, axis=1)) / 2


HESSIANS = {
    "the identity": (straight, True),
    "a matrix": (tilted, True),
    "jitted": (jax.jit(tilted), True),
    "of the batch": (lambda x, y, batch: jnp.mean((batch @ y) ** 2), False),
    "of x": (lambda x, y, batch: jnp.sum(jnp.exp(x) * y**2), False),
    "of y": (lambda x, y, batch: jnp.sum(y**4), False),
    "of y, where it is large": (lambda x, y, batch: jnp.sum(jnp.where(y > 9, y**3, y**2)), False),
    "of the batch, through a loop": (
        lambda x, y, batch: jax.lax.fori_loop(
            0, 2, lambda i, total: total + jnp.mean(batch[:, i]) * (y @ y), 0.0
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_one_hessian_is_claimed_only_where_there_is_one(name: str) -> None:
    inner, claimed = HESSIANS[name]
    problem = quadratic_in_y(inner).loaded()
    with problem.precision():
        H = one_hessian(problem)
    assert (H is not None) == claimed
    if H is not None:
        np.testing.assert_allclose(H, np.eye(3) if inner is straight else CURVED, atol=1e-15)


def test_a_network_whose_rows_do_not_quite_sum_to_one_mixes_all_of_v() -> None:
    W = hb.ring(6).matrix * (1 + 1e-10)
    problem = quadratic_in_y(tilted)
    with problem.precision():
        assert isinstance(simulated(problem, hb.ring(6), DSBO, 0)._fast, SharedHessian)
        assert isinstance(simulated(problem, hb.Network(W), DSBO, 0)._fast, InLanes)


def test_other_losses_other_precision_and_bounds() -> None:
    """A loss that does not separate y and the records, in float32, with x at its bounds."""
    rng = np.random.default_rng(0)
    shards = [rng.normal(size=(n, 3)).astype(np.float32) for n in RAGGED]

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.log(jnp.sum(jnp.exp(y - batch), axis=1))) + jnp.sum((y - x) ** 2)

    start = np.zeros(3, np.float32)
    problem = hb.Problem(inner, inner, start, start, shards, shards, 2, x_bounds=(-0.01, 0.01))
    ends = both(problem)
    assert ends[0]["v"].dtype == np.float32
    assert (np.abs(ends[0]["x"]) <= np.float32(0.01)).all()
    assert_equal(ends, 1e-5)


def test_only_dsbo_itself_with_a_narrow_y_has_a_step() -> None:
    class Other(hb.DSBO):
        pass

    problem = logistic_problem(RAGGED, 1)
    with problem.precision():
        assert simulated(problem, IRREGULAR, DSBO, 0)._fast is not None
        assert simulated(problem, IRREGULAR, Other(**vars(DSBO)), 0)._fast is None


def margin_loss(y: Any, batch: Any) -> Any:
    return jnp.mean(jax.nn.softplus(batch["a"] @ y)) - jnp.cos(batch["a"][0] @ y)


def two_leaves(y: Any, batch: Any) -> Any:
    """Like a pytree of two leaves: one enters through a margin, the other entry by entry."""
    long, short = jnp.split(y, [5])
    return jnp.cos(batch["a"][0, :5] @ long) + jnp.sum(jnp.exp(short - batch["a"][1, 5:]))


LOSSES = {
    "margins of two leaves": (two_leaves, True),
    "margins": (margin_loss, True),
    "margins and a penalty": (lambda y, b: margin_loss(y, b) - jnp.sum(jnp.sin(y)), True),
    "jitted": (jax.jit(lambda y, b: -margin_loss(2 * y, b) + y @ y), True),
    "penalty alone": (lambda y, b: jnp.sum(y**4), True),
    "division by y": (lambda y, b: jnp.sum(b["a"][0, 0] / (3 + y)), False),
    "margins times y": (lambda y, b: margin_loss(y, b) * jnp.sum(y**2), False),
    "all of y at each record": (lambda y, b: jnp.sum(jnp.exp(y - b["a"][0])), False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_factors_are_claimed_only_where_they_are_right(name: str) -> None:
    loss, low_rank = LOSSES[name]
    rng = np.random.default_rng(1)
    y = jnp.asarray(rng.normal(size=6), jnp.float32)
    batches = {"a": jnp.asarray(rng.normal(size=(5, 2, 6)), jnp.float32)}
    found = factored_hessians(loss, y, batches)
    assert (found is not None) == low_rank
    if found is not None:
        H = jnp.einsum("brd,brs,bse->bde", found.A, found.C, found.A) + found.S
        expected = jax.vmap(jax.hessian(loss), (None, 0))(y, batches)
        np.testing.assert_allclose(H, expected, rtol=0, atol=2e-5)
