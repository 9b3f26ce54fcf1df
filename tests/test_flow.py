"""agent.flow: W times what agents say, and what flowed over each link, on every kind of network."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.links import Links
from hobnob.ground import keys
from hobnob.problems.quadratic import quadratic
from hobnob.run.run import Run
from hobnob.runtimes.apart.halo import Halo
from hobnob.runtimes.apart.host_call import call_by_io
from hobnob.testing.flows import by_link
from tests.simulated import simulated

DIM = 3


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    x_flows: jax.Array
    y_flows: jax.Array


@dataclass(frozen=True, kw_only=True)
class Flows(hb.Algorithm):
    """x and y flow in one message, or y on a network of its own."""

    exact = False
    flows: ClassVar[tuple[str, ...]] = ("x_flows", "y_flows")

    def init(self, agent: hb.Agent) -> State:
        return State(
            agent.x0,
            agent.y0,
            agent.zeros(agent.links(), agent.dim_x),
            agent.zeros(agent.links(self.level), agent.dim_y),
        )

    @property
    def level(self) -> str | None:
        return self.levels[0] if self.levels else None

    def step(self, agent: hb.Agent, state: State) -> State:
        x, y, x_flows, y_flows = state
        if self.levels:
            x, x_flows = agent.flow(x, x_flows)
            y, y_flows = agent.flow(y, y_flows, self.level)
        else:
            (x, y), (x_flows, y_flows) = agent.flow((x, y), (x_flows, y_flows))
        return State(x, y, x_flows, y_flows)


class OnLevels(Flows):
    levels = ("y",)


def problem_of(agents: int, **options: Any) -> hb.Problem:
    return quadratic(agents, DIM, DIM + 1, **options)


def started(run: Run, seed: int = 0) -> State:
    """Random numbers for x, y and what has flowed so far."""
    rng, shapes = np.random.default_rng(seed), run.shapes
    first = State(*(jnp.asarray(rng.normal(size=s.shape), s.dtype) for s in shapes))
    return first._replace(
        x_flows=jnp.zeros_like(first.x_flows), y_flows=jnp.zeros_like(first.y_flows)
    )


def flowed(W: np.ndarray, stack: np.ndarray) -> np.ndarray:
    """[agents, agents, ...]: w_kj (v_k - v_j)."""
    return W[..., None] * (stack[:, None] - stack[None])


NETWORKS = {
    "ring": hb.ring(6),
    "star": hb.star(6),
    "irregular": hb.Network(nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)])),
    "dense": hb.complete(20),
    "hub": hb.star(600),
    "alone": hb.complete(1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_two_steps_are_those_of_numpy(name: str) -> None:
    network = NETWORKS[name]
    problem, W = problem_of(network.size), network.matrix
    with problem.precision():
        run = simulated(problem, network, Flows())
        first = started(run)
        end = run.advance(first, 0, 2).state
    for now, start, kept in (
        (end.x, first.x, end.x_flows),
        (end.y, first.y, end.y_flows),
    ):
        once = W @ np.asarray(start)
        np.testing.assert_allclose(now, W @ once, rtol=0, atol=1e-13)
        expected = flowed(W, np.asarray(start)) + flowed(W, once)
        found = by_link(network, np.asarray(kept))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
        assert (found == -found.swapaxes(0, 1)).all()
        assert kept.shape[1] == network.degrees.max()


def test_beside_a_faster_mixing() -> None:
    network = hb.exponential(2**14)
    problem, size = problem_of(network.size), network.size
    with problem.precision():
        run = simulated(problem, network, Flows())
        assert not isinstance(run.world.tables.weights[""], dict)
        first = started(run)
        end = run.advance(first, 0, 1).state
    np.testing.assert_allclose(end.x, network.sparse @ np.asarray(first.x), rtol=0, atol=1e-13)
    left = np.asarray(end.x_flows).sum(axis=1) - (np.asarray(first.x) - np.asarray(end.x))
    assert np.abs(left).max() <= 1e-13
    assert end.x_flows.shape == (size, network.degrees.max(), DIM)


def test_levels_have_their_own_links() -> None:
    network = hb.ring(6).with_levels(y=hb.star(6))
    problem = problem_of(6)
    with problem.precision():
        run = simulated(problem, network, OnLevels())
        first = started(run)
        end = run.advance(first, 0, 1).state
    for level, now, start, kept in (
        (None, end.x, first.x, end.x_flows),
        ("y", end.y, first.y, end.y_flows),
    ):
        at = network.at_level(level)
        np.testing.assert_allclose(now, at.matrix @ np.asarray(start), rtol=0, atol=1e-14)
        found = by_link(at, np.asarray(kept))
        np.testing.assert_allclose(found, flowed(at.matrix, np.asarray(start)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("seeds", [7, (7, 8)], ids=["one-seed", "two-seeds"])
def test_nothing_flows_over_links_that_are_down(seeds: Any) -> None:
    network = NETWORKS["irregular"]
    problem, links = problem_of(6), Links(hb.Drop(0.5), network, 1)
    with problem.precision():
        run = simulated(problem, network, Flows(), seeds, links)
        first = started(run)
        end = run.advance(first, 0, 1).state
        every = (seeds,) if isinstance(seeds, int) else seeds
        downs = [
            np.asarray(links.down(keys.of_round(keys.of_links(seed), 0, (1,)), 0)) for seed in every
        ]
    for i, down in enumerate(downs):
        assert 0 < down.sum() < len(down)
        now, start, kept = (
            np.asarray(part if isinstance(seeds, int) else part[i])
            for part in (end.x, first.x, end.x_flows)
        )
        W = network.matrix.copy()
        for k, j in network.ends[down]:
            W[k, j] = W[j, k] = 0
        flows = flowed(W, start)
        np.testing.assert_allclose(by_link(network, kept), flows, rtol=0, atol=1e-14)
        np.testing.assert_allclose(now, start - flows.sum(axis=1), rtol=0, atol=1e-14)


def test_a_matrix_that_is_symmetric_only_to_rounding() -> None:
    W = hb.ring(5).matrix.copy()
    W[0, 1] += 1e-10
    network, problem = hb.Network(W), problem_of(5)
    with problem.precision():
        run = simulated(problem, network, Flows())
        kept = by_link(network, np.asarray(run.advance(started(run), 0, 3).state.x_flows))
    assert kept.any()
    assert (kept == -kept.swapaxes(0, 1)).all()


def test_it_costs_what_mixing_does() -> None:
    problem, network = problem_of(6), NETWORKS["irregular"]
    with problem.precision():
        costs = simulated(problem, network, Flows()).costs.until(10)
    assert (costs["rounds"] == 10).all()
    assert (costs["messages"] == 10 * network.degrees).all()
    assert (costs["bytes"] == 10 * 8 * (2 * DIM + 1) * network.degrees).all()


def test_under_a_vmap_of_the_algorithm() -> None:
    class Twice(Flows):
        def step(self, agent: hb.Agent, state: State) -> State:
            both = jnp.stack([state.x, 2 * state.x]), jnp.stack([state.x_flows, state.x_flows])
            x, flows = jax.vmap(agent.flow)(*both)
            return state._replace(x=x[1] - x[0], x_flows=flows[1] - flows[0])

    problem, network = problem_of(6), NETWORKS["irregular"]
    with problem.precision():
        run = simulated(problem, network, Twice())
        first = started(run)
        end = run.advance(first, 0, 1).state
    start = np.asarray(first.x)
    np.testing.assert_allclose(end.x, network.matrix @ start, rtol=0, atol=1e-14)
    found = by_link(network, np.asarray(end.x_flows))
    np.testing.assert_allclose(found, flowed(network.matrix, start), rtol=0, atol=1e-14)


def test_memories_must_be_named() -> None:
    class Unnamed(Flows):
        flows = ()

    with pytest.raises(hb.SettingError, match=r"flows = \(\"x_flows\", \.\.\.\)"):
        hb.solve(problem_of(4), hb.ring(4), Unnamed(), steps=1)


def test_a_memory_needs_one_row_a_neighbour() -> None:
    class Short(Flows):
        def init(self, agent: hb.Agent) -> State:
            return super().init(agent)._replace(x_flows=agent.zeros(agent.dim_x))

    with pytest.raises(hb.SettingError, match=r"has the shape \[3\] and needs \[2, 3\], one row"):
        hb.solve(problem_of(4), hb.ring(4), Short(), steps=1)


# --- agents in several processes -----------------------------------------------------------------


class LossyWire:
    """A wire to which only agents of rank 1 answer, and whose last link went away by itself."""

    rank, loses = 0, True

    def __init__(self, heard: np.ndarray, gone: np.ndarray):
        self._heard, self._gone = heard, gone

    def neighbourhood(self, neighbours: np.ndarray) -> None:
        pass

    def round(self, neighbourhood: Any, plan: Any) -> LossyWire:
        return self

    gathered = False

    def called(self, inputs: Any, outputs: Any) -> None:
        for array, into in zip((self._heard, self._gone), outputs, strict=False):
            ctypes.memmove(into, array.ctypes.data, array.nbytes)

    def reduction(self, width: int, dtype: Any) -> Any:
        raise AssertionError("nobody asks for a server")


def test_a_link_that_a_wire_lost_carries_nothing() -> None:
    network, parts = hb.ring(4), [np.array([0, 1]), np.array([2, 3])]  # links 01, 03, 12, 23
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(2, DIM)), rng.normal(size=(2, DIM))  # of agents 0, 1 and 2, 3
    lost = np.array([False, True, False, False])  # 03
    with jax.enable_x64(True):
        halo = Halo(network, parts, LossyWire(far, lost), None, np.float64, call_by_io, flows=True)
        assert halo.neighbours is not None
        (weights, theirs), _ = halo.hear(
            halo.neighbours, None, jnp.zeros((), jnp.int32), jnp.asarray(near)
        )
        weights, theirs = np.asarray(weights), np.asarray(theirs)
    third = 1 / 3
    np.testing.assert_allclose(weights, [[third, 0], [third, third]])
    np.testing.assert_array_equal(theirs[0, 0], near[1])
    np.testing.assert_array_equal(theirs[1], [near[0], far[0]])
