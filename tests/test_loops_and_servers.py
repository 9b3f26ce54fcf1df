"""Loops of an agent, messages to a server, and the methods that use both.

Random draws are tested with fixed seeds; the limits say how rarely a correct implementation would
fail with a random seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import hobnob as hb
from hobnob.algorithms import _series as inverse
from hobnob.core.algorithm import Scale
from hobnob.ground import keys
from tests.reference import fedsbo
from tests.reference.world import (
    SEED,
    Logistic,
    Nested,
    compositional_problem,
    logistic_problem,
)
from tests.simulated import simulated
from tests.test_agent import (
    AGENTS,
    DIM_X,
    DIM_Y,
    INNER,
    LENGTHS,
    X,
    Y,
    Z,
    answers,
    by_agent,
    costs,
    explicit,
    inner,
    problem,
    same,
    simulation,
)

pytestmark = pytest.mark.slow


def at_step(ask: Callable[[hb.Agent], Any], step: int, given: hb.Problem | None = None) -> Any:
    """Every agent's results in one step."""
    given = given or problem()
    with given.precision():
        run = simulation(ask, given)
        state = run.advance(run.initial_state(), step, step + 1).state
        return jax.tree.map(np.asarray, state.found)


# --- repeating ---------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [0, 1, 5])
def test_the_value_of_a_loop(times: int) -> None:
    def ask(agent: hb.Agent) -> Any:
        return agent.repeat(times, lambda agent, i, v: 2 * v + i, agent.x0)

    expected = X
    for i in range(times):
        expected = 2 * expected + i
    same(answers(ask), [expected] * AGENTS)


def test_the_value_of_loops_in_loops_by_the_step() -> None:
    def ask(agent: hb.Agent) -> Any:
        def outside(agent: hb.Agent, i: Any, v: Any) -> Any:
            v = {"a": v["a"] + i, "b": v["b"] * v["a"]}
            return agent.repeat(
                lambda step: step % 3, lambda agent, j, v: {**v, "a": v["a"] - j + 1}, v
            )

        return agent.repeat(lambda step: step + 1, outside, {"a": agent.x0, "b": agent.y0[:2]})

    for step in (0, 2, 4):
        a, b = X, Y[:2]
        for i in range(step + 1):
            a, b = a + i, b * a
            for j in range(step % 3):
                a = a - j + 1
        found = at_step(ask, step)
        same(found["a"], [a] * AGENTS)
        same(found["b"], [b] * AGENTS)


def test_agents_mix_inside_a_loop() -> None:
    network = hb.star(AGENTS)

    def ask(agent: hb.Agent) -> Any:
        own = agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("own"))
        return own, agent.repeat(3, lambda agent, i, v: agent.mix(v), own)

    own, heard = answers(ask, network=network)
    expected = np.linalg.matrix_power(network.matrix, 3) @ own
    np.testing.assert_allclose(heard, expected, rtol=1e-12)
    assert np.abs(heard - own).max() > 1e-2


def test_a_loop_counts_as_often_as_it_runs() -> None:
    def ask(agent: hb.Agent) -> Any:
        def outside(agent: hb.Agent, i: Any, y: Any) -> Any:
            agent.draw_outer("zeta")
            y = agent.mix(y)

            def inside(agent: hb.Agent, j: Any, y: Any) -> Any:
                return y - agent.inner_gradient(agent.x0, y, agent.draw_inner("xi", 2)[0])

            return agent.repeat(5, inside, y)

        y = agent.repeat(3, outside, agent.y0)
        agent.draw_inner("last")
        return agent.mix(y)

    degrees = [3, 1, 1, 1]
    assert costs(ask) == {
        "samples": [(3 + 3 * 5 * 2 + 1) * n for n in LENGTHS],
        "gradients": [15] * AGENTS,
        "rounds": [4] * AGENTS,
        "messages": [4 * d for d in degrees],
        "bytes": [4 * 8 * DIM_Y * d for d in degrees],
    }


def test_a_loop_that_never_runs_costs_nothing() -> None:
    def ask(agent: hb.Agent) -> Any:
        return agent.repeat(0, lambda agent, i, y: agent.mix(y), agent.y0)

    assert costs(ask) == {}


def test_costs_of_loops_that_depend_on_the_step() -> None:
    """Asked for in any order, against the sum over all iterations."""

    def ask(agent: hb.Agent) -> Any:
        def outside(agent: hb.Agent, i: Any, y: Any) -> Any:
            y = agent.mix(y)

            def inside(agent: hb.Agent, j: Any, y: Any) -> Any:
                return y - agent.inner_gradient(agent.x0, y, agent.draw_inner("xi"))

            return agent.repeat(lambda step: step % 4, inside, y)

        y = agent.repeat(lambda step: step + 1, outside, agent.y0)
        return agent.outer_gradients(agent.x0, y, agent.draw_outer("zeta"))

    def by_hand(steps: int) -> dict[str, int]:
        found = {"rounds": 0, "gradients": 0, "samples": 0}
        for t in range(steps):
            for _ in range(t + 1):
                found["rounds"] += 1
                for _ in range(t % 4):
                    found["gradients"] += 1
                    found["samples"] += 6
            found["gradients"] += 1
            found["samples"] += 6
        return found

    given = problem(batch_size=6)
    with given.precision():
        run = simulation(ask, given)
        for steps in (1, 7, 7, 30, 3, 0, 12):
            found, expected = run.costs.until(steps), by_hand(steps)
            for column, amount in expected.items():
                assert found[column].tolist() == [amount] * AGENTS, (column, steps)
            sent = [expected["rounds"] * d for d in (3, 1, 1, 1)]
            assert found["messages"].tolist() == sent
            assert found["bytes"].tolist() == [8 * DIM_Y * n for n in sent]
            for column, mean in run.costs.mean_until(steps).items():
                assert mean == found[column].mean(), (column, steps)


def test_the_mean_costs_of_steps_that_are_alike() -> None:
    def ask(agent: hb.Agent) -> Any:
        return agent.mix(agent.outer_gradients(agent.x0, agent.y0, agent.draw_outer("zeta"))[1])

    given = problem(batch_size=6)
    with given.precision():
        costs = simulation(ask, given).costs
        for steps in (0, 1, 7, 10**9):
            found, means = costs.until(steps), costs.mean_until(steps)
            assert {name: cost.mean() for name, cost in found.items()} == means
        assert means["messages"] == 1.5e9


# --- drawing in loops --------------------------------------------------------------------------


def rows_by_hand(given: hb.Problem, k: int, step: int, slot: str, *loops: int) -> np.ndarray:
    key = keys.of_slot(keys.of_agent(0, k), step, slot)
    for i in loops:
        key = jax.random.fold_in(key, i)
    place = jax.tree.map(lambda a: a, given.inner_data.place())
    own = place._replace(start=place.start[k], length=place.length[k])
    return np.asarray(given.inner_data.draw(key, own))


def test_every_iteration_draws_anew() -> None:
    given = problem(batch_size=8)

    def ask(agent: hb.Agent) -> Any:
        def one(agent: hb.Agent, i: Any, rows: Any) -> Any:
            return rows.at[i].set(agent.draw_inner("xi"))

        def two(agent: hb.Agent, i: Any, rows: Any) -> Any:
            def inside(agent: hb.Agent, j: Any, rows: Any) -> Any:
                return rows.at[i, j].set(agent.draw_inner("xi"))

            return agent.repeat(2, inside, rows)

        once = agent.repeat(3, one, jnp.zeros((3, 8), jnp.int32))
        nested = agent.repeat(3, two, jnp.zeros((3, 2, 8), jnp.int32))
        return agent.draw_inner("xi"), once, nested

    outside, once, nested = at_step(ask, 4, given)
    with given.precision():
        for k in range(AGENTS):
            np.testing.assert_array_equal(outside[k], rows_by_hand(given, k, 4, "xi"))
            for i in range(3):
                np.testing.assert_array_equal(once[k, i], rows_by_hand(given, k, 4, "xi", i))
                for j in range(2):
                    expected = rows_by_hand(given, k, 4, "xi", i, j)
                    np.testing.assert_array_equal(nested[k, i, j], expected)
    every = np.concatenate([outside[:, None], once, nested.reshape(AGENTS, 6, 8)], axis=1)
    for k in range(1, AGENTS):
        assert len(np.unique(every[k], axis=0)) == 10


def test_a_slot_twice_in_one_iteration_is_refused() -> None:
    def ask(agent: hb.Agent) -> Any:
        def body(agent: hb.Agent, i: Any, y: Any) -> Any:
            agent.draw_inner("xi")
            agent.draw_outer("xi")
            return y

        return agent.repeat(2, body, agent.y0)

    with pytest.raises(hb.SettingError, match="slot 'xi' is drawn twice in one step"):
        answers(ask)


def test_a_slot_in_two_loops_is_refused() -> None:
    """Both would draw the same batches."""

    def body(agent: hb.Agent, i: Any, y: Any) -> Any:
        agent.draw_inner("xi")
        return y

    def twice(agent: hb.Agent) -> Any:
        return agent.repeat(2, body, agent.repeat(3, body, agent.y0))

    def deeper(agent: hb.Agent) -> Any:
        def nest(agent: hb.Agent, i: Any, y: Any) -> Any:
            return agent.repeat(2, body, y)

        return agent.repeat(2, nest, agent.repeat(3, nest, agent.y0))

    def apart(agent: hb.Agent) -> Any:
        def nest(agent: hb.Agent, i: Any, y: Any) -> Any:
            return body(agent, i, agent.repeat(2, body, y))

        return body(agent, 0, agent.repeat(2, nest, agent.y0))

    for ask in (twice, deeper):
        with pytest.raises(hb.SettingError, match="slot 'xi' is drawn twice in one step"):
            answers(ask)
    same(answers(apart), [Y] * AGENTS)  # three depths, three keys


def test_draw_signs_are_fair_and_independent() -> None:
    """Of 20,000 signs the mean, and that of products with the next and with another agent's.

    Each is below 4 / sqrt(20,000), which chance exceeds once in 16,000 tests.
    """
    signs = answers(lambda agent: agent.draw_signs("v", 20_000))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    for products in (signs[0], signs[0, 1:] * signs[0, :-1], signs[0] * signs[1]):
        assert abs(products.mean()) <= 4 / np.sqrt(20_000)


@pytest.mark.parametrize("bound", [1, 7])
def test_draw_below_is_uniform(bound: int) -> None:
    """Chi-square over 20,000 draws at 0.1 %, for each agent, and for pairs of agents."""

    def ask(agent: hb.Agent) -> Any:
        def draw(agent: hb.Agent, i: Any, found: Any) -> Any:
            return found.at[i].set(agent.draw_below("n", bound))

        return agent.repeat(20_000, draw, jnp.zeros(20_000, jnp.int32))

    found = answers(ask)
    assert found.dtype == np.int32
    if bound == 1:
        assert (found == 0).all()
        return
    for draws in found:
        counts = np.bincount(draws, minlength=bound)
        assert counts.size == bound
        assert stats.chisquare(counts).pvalue > 1e-3
    both = np.bincount(found[0] * bound + found[1], minlength=bound**2)
    assert stats.chisquare(both).pvalue > 1e-3
    in_turn = np.bincount(found[2, :-1] * bound + found[2, 1:], minlength=bound**2)
    assert stats.chisquare(in_turn).pvalue > 1e-3


# --- products ----------------------------------------------------------------------------------


def test_single_products_are_those_of_the_matrices() -> None:
    def ask(agent: hb.Agent) -> Any:
        xi, z = agent.draw_inner("xi"), jnp.asarray(Z)
        x, y = agent.x0, agent.y0
        return agent.hessian_product(x, y, xi, z), agent.cross_product(x, y, xi, z)

    Hz, Jz = answers(ask)
    expected = by_agent(explicit, INNER)
    same(Hz, expected, lambda e: e[1] @ Z)
    same(Jz, expected, lambda e: e[0] @ Z)
    found = costs(ask)
    assert found == {"samples": list(LENGTHS), "products": [2] * AGENTS}


@pytest.mark.parametrize("batch_size", [3, None], ids=["batches", "ragged shards"])
def test_mapping_and_its_jacobian(batch_size: int | None) -> None:
    lengths = [2, 5, 3, 4]
    given = compositional_problem(lengths, batch_size)
    world = Nested(given, hb.star(AGENTS), 1)
    x, z = np.array([0.3, -0.2, 0.5, 0.1]), np.array([0.7, -1.1, 0.4, 0.2, -0.6])

    def ask(agent: hb.Agent) -> Any:
        xi = agent.draw_inner("xi")
        value, transposed = agent.mapping(jnp.asarray(x), xi)
        return xi, value, transposed(jnp.asarray(z))

    rows, value, back = answers(ask, given)
    source = given.inner_data
    assert isinstance(source, hb.Records)
    for k in range(AGENTS):
        whole = np.arange(source.starts[k], source.starts[k] + source.lengths[k])
        batch = whole if batch_size is None else rows[k]
        np.testing.assert_allclose(value[k], world.h(x, batch), rtol=1e-12)
        np.testing.assert_allclose(back[k], world.grad_h(x, batch) @ z, rtol=1e-11)
    found = costs(ask, given)
    assert found["gradients"] == found["products"] == [1] * AGENTS


# --- servers -----------------------------------------------------------------------------------


def test_a_server_knows_the_mean_over_agents() -> None:
    """The mean over agents, not over records: every agent counts once."""

    def ask(agent: hb.Agent) -> Any:
        own = agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("xi"))
        bar = agent.to_server({"g": own, "gg": jnp.outer(own, own)})
        return own, bar, agent.from_server(bar["g"])

    own, bar, told = answers(ask)
    with jax.enable_x64(True):
        every = np.stack([np.asarray(jax.grad(inner, 1)(X, Y, shard)) for shard in INNER])
    np.testing.assert_allclose(own, every, rtol=1e-12)
    same(bar["g"], [every.mean(axis=0)] * AGENTS)
    same(bar["gg"], [(every[:, :, None] * every[:, None, :]).mean(axis=0)] * AGENTS)
    same(told, [every.mean(axis=0)] * AGENTS)
    assert np.ptp(own, axis=0).max() > 0.1


def test_messages_to_and_from_a_server() -> None:
    """One message each way, whatever the network, with the bytes of its arrays."""

    def ask(agent: hb.Agent) -> Any:
        x, y = agent.from_server((agent.x0, agent.y0))
        bar = agent.to_server({"H": jnp.outer(y, y), "g": x})
        alone = agent.to_server(x)

        def body(agent: hb.Agent, i: Any, y: Any) -> Any:
            return agent.from_server(agent.to_server(y))

        return agent.repeat(3, body, y), bar, alone

    up = DIM_Y**2 + DIM_X + DIM_X + 3 * DIM_Y
    down = DIM_X + DIM_Y + 3 * DIM_Y
    assert costs(ask) == {
        "rounds": [3 + 6] * AGENTS,
        "messages": [3 + 6] * AGENTS,
        "bytes": [8 * (up + down)] * AGENTS,
    }
    given = problem()
    with given.precision():
        parts = dict(simulation(ask, given).ledger.message_parts)
    assert parts == {
        "down 0": 8 * DIM_X,
        "down 1": 8 * DIM_Y,
        "up H": 8 * DIM_Y**2,
        "up g": 8 * DIM_X,
        "up": 8 * (DIM_X + DIM_Y),
        "down": 8 * DIM_Y,
    }


# --- what methods refuse -----------------------------------------------------------------------

ALL = hb.algorithms.names()
ALONE = [name for name in ALL if hb.algorithms.get(name).single_agent]
COMPOSITIONAL = [name for name in ALL if hb.algorithms.get(name).compositional]


def suggested(name: str) -> Any:
    return hb.algorithms.get(name).suggest(Scale(3.0, 0.5))


@pytest.mark.parametrize("name", ALONE)
def test_methods_for_one_agent_refuse_a_network(name: str) -> None:
    nested = hb.algorithms.get(name).compositional
    given = (compositional_problem if nested else logistic_problem)([3, 3, 3])
    with pytest.raises(hb.SettingError) as caught:
        hb.solve(given, hb.ring(3), suggested(name), steps=2)
    assert str(caught.value) == (
        f"{hb.algorithms.get(name).__name__} is a method for one agent, and the network has 3. Put "
        f"the records of all into one shard and use hb.complete(1)."
    )


@pytest.mark.parametrize("name", COMPOSITIONAL)
def test_compositional_methods_refuse_other_problems(name: str) -> None:
    with pytest.raises(hb.SettingError) as caught:
        hb.solve(logistic_problem([3]), hb.complete(1), suggested(name), steps=2)
    assert str(caught.value) == (
        f"{hb.algorithms.get(name).__name__} is a method for compositional problems, whose inner "
        f"loss is 1/2 |y - h(x)|^2. Describe yours with hb.Compositional, or use a bilevel method."
    )


def test_there_are_such_methods() -> None:
    assert {"alset", "bsa", "scgd", "nasa", "stocbio"} <= set(ALONE)
    assert {"dsgd", "scgd", "nasa"} <= set(COMPOSITIONAL)
    assert "dsbo" not in {*ALONE, *COMPOSITIONAL}


# --- FedSBO's other inverse --------------------------------------------------------------------


def test_fedsbo_with_an_inverse_equals_its_reference() -> None:
    given, network, steps = logistic_problem([5, 2, 9]), hb.ring(3), 40
    few = replace(suggested("fedsbo"), terms=4)
    found: dict[str, Any] = {}
    for which in ("solve", "series"):
        algorithm = replace(few, inverse=which)
        with given.precision():
            run = simulated(given, network, algorithm, SEED)
            state = run.advance(run.initial_state(), 0, steps).state
            found[which] = {name: np.asarray(v) for name, v in state._asdict().items()}
    expected = fedsbo.run(Logistic(given, network, steps), replace(few, inverse="solve"))
    for variable, value in expected.items():
        np.testing.assert_allclose(found["solve"][variable], value, rtol=0, atol=1e-11)
    assert np.abs(found["solve"]["x"] - found["series"]["x"]).max() > 1e-4


@pytest.mark.parametrize("word", ["Solve", "inverse", "", None, True])
def test_fedsbo_refuses_other_inverses(word: Any) -> None:
    with pytest.raises(hb.SettingError, match=r'inverse = .* must be "series" or "solve"\.'):
        replace(suggested("fedsbo"), inverse=word)


# --- the series --------------------------------------------------------------------------------

L, TERMS, DRAWS = 8.0, 4, 20_000
DIAGONAL = np.random.default_rng(4).uniform(0.2, 3.5, size=(5, 3, 1)) * np.eye(3)
MATRICES = DIAGONAL + 0.15 * np.ones((3, 3))


def curved(batch_size: int | None) -> hb.Problem:
    """Five records, each with its own Hessian."""

    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.einsum("i,nij,j->n", y, batch, y)) / 2 + jnp.sum(x * y[:2])

    return hb.Problem(loss, loss, X, Y, [MATRICES], [MATRICES], batch_size)


def truncated(H: np.ndarray, terms: int) -> np.ndarray:
    """(1/L) sum_{j < terms} (I - H/L)^j Z."""
    shrink = np.eye(3) - H / L
    return np.sum([np.linalg.matrix_power(shrink, j) @ Z for j in range(terms)], axis=0) / L


def test_a_random_term_is_the_truncated_series_in_the_mean() -> None:
    """4.5 standard errors for each of 3 entries: one seed in 50,000 would fail."""

    def ask(agent: hb.Agent) -> Any:
        def one(agent: hb.Agent, i: Any, found: Any) -> Any:
            term = inverse.random_term(agent, agent.x0, agent.y0, jnp.asarray(Z), TERMS, L)
            return found.at[i].set(term)

        return agent.repeat(DRAWS, one, agent.zeros(DRAWS, 3))

    (found,) = answers(ask, curved(1), hb.complete(1))
    error = found.std(axis=0) / np.sqrt(DRAWS)
    expected = truncated(MATRICES.mean(axis=0), TERMS)
    assert (error > 1e-4).all()
    assert (np.abs(found.mean(axis=0) - expected) < 4.5 * error).all()
    # The test can tell this series from one with a term more or less.
    for terms in (TERMS - 1, TERMS + 1):
        other = truncated(MATRICES.mean(axis=0), terms)
        assert (np.abs(found.mean(axis=0) - other) > 4.5 * error).any()


@pytest.mark.parametrize("terms", [1, 5])
def test_without_noise_a_random_term_is_one_of_the_terms(terms: int) -> None:
    def ask(agent: hb.Agent) -> Any:
        def one(agent: hb.Agent, i: Any, found: Any) -> Any:
            z = jnp.asarray(Z)
            return found.at[i].set(inverse.random_term(agent, agent.x0, agent.y0, z, terms, L))

        return agent.repeat(100, one, agent.zeros(100, 3))

    (found,) = answers(ask, curved(None), hb.complete(1))
    shrink = np.eye(3) - MATRICES.mean(axis=0) / L
    every = [terms / L * np.linalg.matrix_power(shrink, n) @ Z for n in range(terms)]
    gaps = np.abs(found[:, None] - np.stack(every)).max(axis=-1)
    assert (gaps.min(axis=1) < 1e-13).all()
    assert set(gaps.argmin(axis=1)) == set(range(terms))


@pytest.mark.parametrize("terms", [0, 1, 7])
def test_the_whole_series_without_noise(terms: int) -> None:
    def ask(agent: hb.Agent) -> Any:
        return inverse.whole_series(agent, agent.x0, agent.y0, jnp.asarray(Z), terms, L)

    (found,) = answers(ask, curved(None), hb.complete(1))
    H = MATRICES.mean(axis=0)
    shrink = np.eye(3) - H / L
    closed = np.linalg.solve(H, Z - np.linalg.matrix_power(shrink, terms + 1) @ Z)
    np.testing.assert_allclose(found, closed, rtol=1e-12)
    np.testing.assert_allclose(found, truncated(H, terms + 1), rtol=1e-12)


def test_the_whole_series_draws_a_batch_for_every_factor() -> None:
    """Against products of the matrices that were drawn."""
    given, terms = curved(1), 4

    def ask(agent: hb.Agent) -> Any:
        return inverse.whole_series(agent, agent.x0, agent.y0, jnp.asarray(Z), terms, L)

    (found,) = answers(ask, given, hb.complete(1))
    p, rows = Z, []
    with given.precision():
        for i in range(terms):
            (row,) = rows_by_hand(given, 0, 0, "xi_i", i)
            rows.append(int(row))
            p = Z + p - MATRICES[row] @ p / L
    np.testing.assert_allclose(found, p / L, rtol=1e-12)
    assert len(set(rows)) > 1
