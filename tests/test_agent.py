"""Agent: each method against JAX and plain NumPy, and what the ledger counts for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.run.run import Run
from tests.simulated import simulated

AGENTS, DIM_X, DIM_Y = 4, 2, 3
LENGTHS = (2, 5, 3, 4)
X, Y = np.array([0.3, -0.8]), np.array([1.0, 0.2, -0.5])
Z = np.array([0.7, -1.1, 0.4])


def outer(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean(jnp.sin(batch @ y)) * x[0] + jnp.sum(x**2 * y[:2])


def inner(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean(jnp.cosh(batch @ y)) + jnp.exp(x[1]) * y @ y + x[0] * jnp.sin(y[0] * x[1])


def shards(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, DIM_Y)) for n in LENGTHS]


OUTER, INNER = shards(1), shards(2)


def problem(batch_size: int | None = None, **options: Any) -> hb.Problem:
    return hb.Problem(outer, inner, X, Y, OUTER, INNER, batch_size, **options)


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    found: Any


@dataclass(frozen=True, kw_only=True)
class Probe(hb.Algorithm):
    """Calls an agent's methods as a test asks, at the start, and keeps the results."""

    exact = False
    ask: Any  # in a tuple, or it would count as a schedule

    def init(self, agent: hb.Agent) -> State:
        shapes = jax.eval_shape(lambda: self.ask[0](Silent(agent)))
        found = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return State(agent.x0, agent.y0, found)

    def step(self, agent: hb.Agent, state: State) -> State:
        return state._replace(found=self.ask[0](agent))


class Silent(hb.Agent):
    """The same agent for finding shapes, with its slots free to be drawn again."""

    def __init__(self, agent: hb.Agent):
        self.__dict__.update(agent.__dict__)
        self._slots = set()


def simulation(
    ask: Callable[[hb.Agent], Any], given: hb.Problem | None = None, network: Any = None
) -> Run:
    return simulated(given or problem(), network or hb.star(AGENTS), Probe(ask=(ask,)), 0)


def answers(
    ask: Callable[[hb.Agent], Any], given: hb.Problem | None = None, network: Any = None
) -> Any:
    """The results of all agents, stacked."""
    given = given or problem()
    with given.precision():
        run = simulation(ask, given, network)
        return jax.tree.map(np.asarray, run.advance(run.initial_state(), 0, 1).state.found)


def costs(ask: Callable[[hb.Agent], Any], given: hb.Problem | None = None) -> dict[str, list[int]]:
    """The costs of one step for each agent, without zeros."""
    given = given or problem()
    with given.precision():
        found = simulation(ask, given).costs.until(1)
    return {name: amounts.tolist() for name, amounts in found.items() if amounts.any()}


def by_agent(derivative: Callable[[np.ndarray], Any], data: list[np.ndarray]) -> list[Any]:
    with jax.enable_x64(True):
        found = jax.jit(lambda shards: [derivative(shard) for shard in shards])(data)
        return jax.tree.map(np.asarray, found)


def same(found: Any, expected: list[Any], part: Callable[[Any], Any] = lambda e: e) -> None:
    np.testing.assert_allclose(found, np.stack([part(e) for e in expected]), rtol=1e-12, atol=1e-14)


# --- derivatives -------------------------------------------------------------------------------


def test_what_it_knows() -> None:
    def ask(agent: hb.Agent) -> Any:
        assert (agent.dim_x, agent.dim_y) == (DIM_X, DIM_Y)
        rates = agent.rates(0.25, lambda step: 1.0 / (step + 4))
        return agent.x0, agent.y0, agent.zeros(2, 3), rates

    x0, y0, zeros, rates = answers(ask)
    same(x0, [X] * AGENTS)
    same(y0, [Y] * AGENTS)
    assert zeros.shape == (AGENTS, 2, 3)
    assert zeros.dtype == np.float64
    same(rates[0], [np.array(0.25)] * AGENTS)
    same(rates[1], [np.array(0.25)] * AGENTS)


def test_gradients() -> None:
    def ask(agent: hb.Agent) -> Any:
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        x, y = agent.x0, agent.y0
        f = agent.outer_gradients(x, y, zeta)
        return f, agent.inner_gradient(x, y, xi), agent.inner_gradients(x, y, xi)

    f, g, both = answers(ask)
    expected_f = by_agent(lambda b: jax.grad(outer, (0, 1))(X, Y, b), OUTER)
    expected_g = by_agent(lambda b: jax.grad(inner, (0, 1))(X, Y, b), INNER)
    for i in (0, 1):
        same(f[i], expected_f, lambda e, i=i: e[i])
        same(both[i], expected_g, lambda e, i=i: e[i])
    same(g, expected_g, lambda e: e[1])


def explicit(b: np.ndarray) -> tuple[Any, Any]:
    """J = grad_xy g, (d_x, d_y), and H = grad_yy g, by JAX's dense derivatives."""
    whole = jax.hessian(inner, argnums=(0, 1))(X, Y, b)
    return whole[0][1], whole[1][1]


def test_products_are_those_of_the_matrices() -> None:
    def ask(agent: hb.Agent) -> Any:
        gradient, products = agent.inner_products(agent.x0, agent.y0, agent.draw_inner("xi"))
        return gradient, products(jnp.asarray(Z)), products(gradient)

    gradient, once, again = answers(ask)
    expected = by_agent(explicit, INNER)
    same(gradient, by_agent(lambda b: jax.grad(inner, 1)(X, Y, b), INNER))
    same(once[0], expected, lambda e: e[0] @ Z)
    same(once[1], expected, lambda e: e[1] @ Z)
    for k in range(AGENTS):
        np.testing.assert_allclose(again[0][k], expected[k][0] @ gradient[k], rtol=1e-12)
        np.testing.assert_allclose(again[1][k], expected[k][1] @ gradient[k], rtol=1e-12)


def test_matrices() -> None:
    def ask(agent: hb.Agent) -> Any:
        xi, xis = agent.draw_inner("xi"), agent.draw_inner("xi_i", 3)
        x, y = agent.x0, agent.y0
        return agent.cross(x, y, xi), agent.hessian(x, y, xi), agent.hessians(x, y, xis)

    cross, hessian, hessians = answers(ask)
    expected = by_agent(explicit, INNER)
    assert cross.shape == (AGENTS, DIM_X, DIM_Y)
    assert hessians.shape == (AGENTS, 3, DIM_Y, DIM_Y)
    same(cross, expected, lambda e: e[0])
    same(hessian, expected, lambda e: e[1])
    for i in range(3):  # without noise, every batch is the whole shard
        same(hessians[:, i], expected, lambda e: e[1])


def test_several_batches_have_a_hessian_each() -> None:
    def ask(agent: hb.Agent) -> Any:
        xis = agent.draw_inner("xi_i", 5)
        return xis, agent.hessians(agent.x0, agent.y0, xis)

    given = problem(batch_size=2)
    rows, hessians = answers(ask, given)
    batches = np.concatenate(INNER)[rows.reshape(-1, 2)]
    with jax.enable_x64(True):
        _, expected = jax.jit(jax.vmap(explicit))(batches)
    np.testing.assert_allclose(hessians.reshape(expected.shape), expected, rtol=1e-12)
    assert len(np.unique(rows[1], axis=0)) > 1


# --- mixing ------------------------------------------------------------------------------------


def test_mixing_is_the_product_with_w() -> None:
    network = hb.star(AGENTS)

    def ask(agent: hb.Agent) -> Any:
        own = agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("xi"))
        tree = {"vector": own, "matrix": jnp.outer(own, own)}
        return tree, agent.mix(tree)

    said, heard = answers(ask, network=network)
    for name, stack in said.items():
        expected = np.tensordot(network.matrix, stack, 1)
        np.testing.assert_allclose(heard[name], expected, rtol=1e-13)
        assert np.abs(expected - stack).max() > 1e-3


@pytest.mark.parametrize(
    "network", [hb.star(AGENTS), hb.star(20), hb.star(600)], ids=["table", "dense", "hubs"]
)
def test_mixing_under_a_vmap_of_the_algorithm_is_mixing_each(network: hb.Network) -> None:
    """For each way of multiplying by W."""
    size = network.size
    data = [np.full((1, 1), float(k)) for k in range(size)]

    def loss(x: Any, y: Any, b: Any) -> Any:
        return jnp.mean((y - x - b) ** 2)

    def ask(agent: hb.Agent) -> Any:
        own = agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("xi"))
        stack = jnp.stack([own, own**2, jnp.cos(own)])
        each = jnp.stack([agent.mix(row) for row in stack])
        return stack, each, jax.vmap(agent.mix)(stack), jax.vmap(agent.mix, 1, 1)(stack)

    given = hb.Problem(loss, loss, np.zeros(1), np.zeros(1), data, data, None)
    stack, each, mapped, other_axis = answers(ask, given, network)
    assert mapped.shape == (size, 3, 1)
    np.testing.assert_allclose(each, np.tensordot(network.matrix, stack, 1), rtol=1e-12)
    np.testing.assert_allclose(mapped, each, rtol=1e-13)
    np.testing.assert_allclose(other_axis, each, rtol=1e-13)


def test_projection() -> None:
    def ask(agent: hb.Agent) -> Any:
        return agent.project(agent.x0 + jnp.array([10.0, -10.0]))

    same(answers(ask), [X + np.array([10, -10])] * AGENTS)
    same(answers(ask, problem(x_bounds=(-2.0, 3.0))), [np.array([3.0, -2.0])] * AGENTS)


# --- the ledger --------------------------------------------------------------------------------

DEGREES = [3, 1, 1, 1]  # of a star


def test_samples_of_ragged_shards() -> None:
    def ask(agent: hb.Agent) -> Any:
        agent.draw_outer("zeta")
        agent.draw_inner("xi")
        agent.draw_inner("xi_i", 4)
        return agent.x0

    assert costs(ask) == {"samples": [6 * n for n in LENGTHS]}
    assert costs(ask, problem(batch_size=7)) == {"samples": [6 * 7] * AGENTS}


def test_derivatives_are_counted() -> None:
    def ask(agent: hb.Agent) -> Any:
        zeta, xi, xis = agent.draw_outer("a"), agent.draw_inner("b"), agent.draw_inner("c", 5)
        x, y = agent.x0, agent.y0
        agent.outer_gradients(x, y, zeta)
        agent.inner_gradient(x, y, xi)
        agent.inner_gradients(x, y, xi)
        gradient, products = agent.inner_products(x, y, xi)
        products(gradient)
        products(gradient)
        agent.cross(x, y, xi)
        agent.hessian(x, y, xi)
        agent.hessians(x, y, xis)
        return x

    assert costs(ask) == {
        "samples": [7 * n for n in LENGTHS],
        "gradients": [4] * AGENTS,
        "products": [4] * AGENTS,
        "matrices": [7] * AGENTS,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_go_to_every_neighbour(dtype: Any) -> None:
    def ask(agent: hb.Agent) -> Any:
        agent.mix({"x": agent.x0, "H": agent.zeros(DIM_Y, DIM_Y)})
        agent.mix(agent.y0)
        return agent.x0

    given = problem().in_precision(dtype)
    numbers = (DIM_X + DIM_Y * DIM_Y) + DIM_Y
    size = np.dtype(dtype).itemsize
    assert costs(ask, given) == {
        "rounds": [2] * AGENTS,
        "messages": [2 * d for d in DEGREES],
        "bytes": [numbers * size * d for d in DEGREES],
    }
    with given.precision():
        parts = dict(simulation(ask, given).ledger.message_parts)
    assert parts == {"x": DIM_X * size, "H": DIM_Y**2 * size, "array": DIM_Y * size}


def test_a_run_adds_up_its_steps() -> None:
    def ask(agent: hb.Agent) -> Any:
        agent.draw_inner("xi")
        return agent.mix(agent.x0)

    result = hb.solve(
        problem(), hb.star(AGENTS), Probe(ask=(ask,)), steps=10, record_every=4, metrics=None
    )
    assert result.ledger["samples"].tolist() == [10 * n for n in LENGTHS]
    assert result.ledger["bytes"].tolist() == [10 * 8 * DIM_X * d for d in DEGREES]
    assert result.history["step"].tolist() == [0, 4, 8, 10]
    mean_of_agents = np.array([0, 4, 8, 10]) * np.mean(LENGTHS)
    assert result.history["samples"].tolist() == mean_of_agents.tolist()


def test_an_agent_at_a_later_step_draws_other_batches() -> None:
    def ask(agent: hb.Agent) -> Any:
        return agent.draw_inner("xi", 20), jnp.asarray(agent.step)

    given = problem(batch_size=3)
    with given.precision():
        run = simulation(ask, given)
        start = run.initial_state()
        first = run.advance(start, 0, 1).state
        second = run.advance(first, 1, 2).state
        straight = run.advance(start, 0, 2).state
    assert (first.found[1] == 0).all()
    assert (second.found[1] == 1).all()
    assert (np.asarray(second.found[0]) == np.asarray(straight.found[0])).all()
    assert (np.asarray(first.found[0]) != np.asarray(second.found[0])).any()
