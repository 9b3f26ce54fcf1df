"""Mixing: each of its forms is W times the stack, alone and inside a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hobnob as hb
from hobnob.runtimes.simulate import mixing
from hobnob.runtimes.simulate.mixing import mixed, mixing_tables
from tests.simulated import simulated

FORMS = ("table", "dense", "hubs", "edges")
CROWD = hb.exponential(2**14)
EPS = {"float32": 2e-6, "float64": 1e-14}
SHAPES = ((), (3,), (2, 1, 2), (2, 0))


def form_of(tables: dict[str, jax.Array]) -> str:
    names = "dense", "hubs", "edges", "table"
    return next(name for name in names if name in tables)


def tables_in(form: str, network: hb.Network, dtype: str) -> dict[str, jax.Array]:
    """The tables of the given form, if the network's rows differ in length."""
    narrow, dense, cost = {
        "table": (10**6, 0, 2),
        "dense": (0, 10**6, 2),
        "hubs": (0, 0, 10**6),
        "edges": (0, 0, 0),
    }[form]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "_NARROW_TABLE", narrow)
        patch.setattr(mixing, "_WIDEST_TABLE", 2)
        patch.setattr(mixing, "_LARGEST_DENSE", dense)
        patch.setattr(mixing, "_EDGE_COST", cost)
        tables = mixing_tables(network.sparse, dtype)
    longest = np.diff(network.sparse.indptr).max()
    apart = longest > {"hubs": 2, "edges": 1}.get(form, 0)  # with free edges, all rows
    assert form_of(tables) == (form if apart else "table")
    return tables


@st.composite
def connected(draw: st.DrawFn) -> hb.Network:
    """A random tree and some more links, so that rows differ in length."""
    size = draw(st.sampled_from([1, 2, 5, 11]))  # few, since every shape is compiled
    graph = nx.empty_graph(size)
    graph.add_edges_from((k, draw(st.integers(0, k - 1))) for k in range(1, size))
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    graph.add_edges_from((i, j) for i, j in draw(st.lists(pairs, max_size=20)) if i != j)
    return hb.Network(graph, draw(st.sampled_from(["metropolis", "lazy", "max-degree"])))


@given(connected(), st.sampled_from(SHAPES), st.sampled_from(list(EPS)), st.integers(0, 2**32 - 1))
@settings(derandomize=True, deadline=None, max_examples=10)
def test_every_form_is_w_times_the_stack(network, shape, dtype, seed):
    stack = np.random.default_rng(seed).normal(size=(network.size, *shape)).astype(dtype)
    expected = np.tensordot(network.matrix, stack.astype(np.float64), 1)
    with jax.enable_x64(dtype == "float64"):
        for form in FORMS:
            answer = mixed(tables_in(form, network, dtype), jnp.asarray(stack))
            assert answer.dtype == dtype, form
            np.testing.assert_allclose(answer, expected, rtol=0, atol=10 * EPS[dtype], err_msg=form)


SCALE_FREE = hb.Network(nx.barabasi_albert_graph(2000, 2, seed=0))


@pytest.mark.parametrize(
    ("network", "form"), [(hb.star(2000), "hubs"), (SCALE_FREE, "edges")], ids=["star", "free"]
)
@pytest.mark.parametrize("dtype", EPS)
def test_a_few_long_rows_do_not_make_all_of_them_long(dtype, network, form):
    stack = np.random.default_rng(0).normal(size=(2000, 4)).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        tables = mixing_tables(network.sparse, dtype)
        answer = mixed(tables, jnp.asarray(stack))
    assert form_of(tables) == form
    # Fewer numbers than four times the edges; padded rows would need a hundred times as many.
    assert sum(table.size for table in tables.values()) < 4 * network.sparse.nnz
    np.testing.assert_allclose(answer, network.matrix @ stack, rtol=0, atol=100 * EPS[dtype])


@pytest.mark.parametrize(
    ("network", "form"),
    [
        (hb.ring(5), "table"),
        (hb.torus(20, 40), "table"),
        (hb.complete(40), "dense"),
        (hb.star(100), "dense"),
        (hb.complete(600), "hubs"),
        (hb.Network([[1.0]]), "table"),
        (CROWD, "table"),
        (hb.ring(CROWD.size), "table"),
        (hb.random_regular(CROWD.size, 4), "table"),
    ],
    ids=[
        *("ring", "torus", "complete", "small star", "large complete", "alone"),
        *("crowd", "long ring", "random crowd"),
    ],
)
def test_the_form_fits_the_network(network, form):
    tables = mixing_tables(network.sparse, np.float32)
    assert form_of(tables) == form
    assert form != "hubs" or len(tables["table"]) == 1, "a table for rows that are not in it"
    stack = np.random.default_rng(1).normal(size=(network.size, 2)).astype(np.float32)
    answer = mixed(tables, jnp.asarray(stack))
    np.testing.assert_allclose(answer, network.sparse @ stack, rtol=0, atol=2e-5)


def test_constants_stay_constant():
    for network in (hb.ring(7), hb.complete(30), hb.star(600)):
        answer = mixed(mixing_tables(network.sparse, np.float32), jnp.ones((network.size, 3)))
        np.testing.assert_allclose(answer, 1, atol=1e-5)


class Held(NamedTuple):
    x: jax.Array
    y: jax.Array
    many: jax.Array


@dataclass(frozen=True, kw_only=True)
class Talk(hb.Algorithm):
    """Agents that start at different values and only mix, in two ways per step."""

    exact: ClassVar[bool] = True

    def init(self, agent: hb.Agent) -> Held:
        own = agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("start"))
        return Held(own, 2 * own, jnp.stack([own, -own, own**2]))

    def step(self, agent: hb.Agent, state: Held) -> Held:
        together = agent.mix({"x": state.x, "y": state.y})
        # A vmap inside the algorithm must mix agents, not the rows of its axis.
        return Held(together["x"], together["y"], jax.vmap(agent.mix)(state.many))


def talkers(size: int) -> hb.Problem:
    data = [np.array([[k, k**2 / size]]) / size for k in range(size)]

    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.sum((y - batch) ** 2, axis=-1)) / 2 + jnp.sum(x**2)

    return hb.Problem(loss, loss, np.zeros(2), np.zeros(2), data, data, batch_size=None)


@pytest.mark.parametrize(
    "network",
    [hb.path(6), hb.complete(20), hb.star(600), hb.torus(20, 40), SCALE_FREE, hb.exponential(900)],
    ids=["path", "complete", "star", "torus", "scale-free", "crowd"],
)
@pytest.mark.parametrize("seed", [3, [3, 4]], ids=["one seed", "two seeds"])
def test_agents_of_a_run_hear_w_times_what_was_said(network, seed):
    problem = talkers(network.size)
    with problem.precision():
        run = simulated(problem, network, Talk(), seed)
        first = run.initial_state()
        last = run.advance(first, 0, 3).state
        before, after = (jax.tree.map(np.asarray, state) for state in (first, last))
    thrice = np.linalg.matrix_power(network.matrix, 3)
    for name, old, new in zip(before._fields, before, after, strict=True):
        stacks = zip(old, new, strict=True) if run.setup.many_seeds else [(old, new)]
        for said, heard in stacks:
            assert np.ptp(said, axis=0).max() > 0.1
            expected = np.tensordot(thrice, said, 1)
            np.testing.assert_allclose(heard, expected, rtol=0, atol=1e-12, err_msg=name)


def test_many_agents_with_equally_many_neighbours_are_a_table():
    """Edge by edge, the exponential graph of 2,000 agents took thirty times as long."""
    network = hb.exponential(2000)
    assert max(network.degrees) > 16
    tables = mixing_tables(network.sparse, "float32")
    assert form_of(tables) == "table"
    stack = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)
    np.testing.assert_allclose(mixed(tables, jnp.asarray(stack)), network.sparse @ stack, atol=1e-6)
