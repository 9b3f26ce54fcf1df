"""Agents on a circle are mixed by distances, as a table would mix them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hobnob as hb
from hobnob import fast
from hobnob.core.links import Links
from hobnob.core.mixing_matrix import circulant_row
from hobnob.fast import circulant as by
from tests.simulated import simulated

EPS = {"float32": 2e-5, "float64": 1e-13}
SHAPES = ((), (3,), (2, 1, 2), (2, 0))


def first_row(network: hb.Network) -> np.ndarray:
    row = circulant_row(network.sparse)
    assert row is not None
    return row


@st.composite
def circles(draw: st.DrawFn) -> hb.Network:
    """Links of the same lengths around a circle whose size is no multiple of a block."""
    size = draw(st.sampled_from([3, 7, 37]))
    lengths = draw(st.sets(st.integers(1, size // 2), max_size=12)) | {1}
    graph = nx.circulant_graph(size, sorted(lengths))
    return hb.Network(graph, draw(st.sampled_from(["metropolis", "lazy"])))


@given(
    circles(),
    st.sampled_from([0, 2, 100]),
    st.sampled_from(SHAPES),
    st.sampled_from(list(EPS)),
    st.integers(0, 2**32 - 1),
)
@settings(derandomize=True, deadline=None, max_examples=20)
def test_it_is_w_times_the_stack(network, near, shape, dtype, seed):
    stack = np.random.default_rng(seed).normal(size=(2, network.size, *shape)).astype(dtype)
    expected = np.einsum("ij,sj...->si...", network.matrix, stack.astype(np.float64))
    row = first_row(network)
    with jax.enable_x64(dtype == "float64"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(by, "_NEAR", near)
        patch.setattr(by, "_BLOCK", 10)
        patch.setattr(by, "_STREAMS", 4)
        W = by.by_distances(row, dtype)
        alone = W.mixed(jnp.asarray(stack[0]))
        together = jax.vmap(W.mixed)(jnp.asarray(stack))
    np.testing.assert_allclose(alone, expected[0], rtol=0, atol=EPS[dtype])
    np.testing.assert_allclose(together, expected, rtol=0, atol=EPS[dtype])


def test_an_agent_may_have_no_weight_of_its_own():
    row = np.array([0, 0.5, 0, 0, 0, 0, 0, 0, 0.5])
    stack = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    expected = (np.roll(stack, 1, axis=0) + np.roll(stack, -1, axis=0)) / 2
    W = by.by_distances(row, "float32")
    np.testing.assert_allclose(W.mixed(jnp.asarray(stack)), expected, atol=1e-6)


def test_whole_numbers_are_mixed_too():
    stack = np.arange(10).reshape(5, 2)
    W = by.by_distances(first_row(hb.ring(5)), "float32")
    answer = W.mixed(jnp.asarray(stack, jnp.int32))
    np.testing.assert_allclose(answer, hb.ring(5).matrix @ stack, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "found"),
    [
        (hb.exponential(2**14), True),
        (hb.exponential(900), False),  # few agents
        (hb.ring(2**14), False),  # few neighbours
        (hb.random_regular(2**14, 4), False),  # no circle
    ],
    ids=["crowd", "few", "ring", "random"],
)
def test_it_is_taken_where_it_pays(network, found):
    faster = fast.enter()
    assert faster is not None
    assert (faster.mixing(network.sparse, "float32") is not None) is found


def test_a_run_gives_the_same_with_it_and_without(monkeypatch):
    monkeypatch.setattr(by, "_FEWEST_AGENTS", 20)
    problem = hb.problems.get("quadratic")(agents=40)
    algorithm = hb.DSOBA(alpha=0.01, beta=0.1, gamma=0.1, theta=0.2).bind(40, 30)
    ends = []
    for plain in ("0", "1"):
        monkeypatch.setenv("HOBNOB_PLAIN", plain)
        with problem.precision():
            run = simulated(problem, hb.exponential(40), algorithm, [0, 1])
            assert isinstance(run.world.tables.weights[""], dict) == (plain == "1")
            ends.append(run.advance(run.initial_state(), 0, 30).state)
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_links_that_fail_are_taken_out_of_a_table(monkeypatch):
    monkeypatch.setattr(by, "_FEWEST_AGENTS", 20)
    problem = hb.problems.get("quadratic")(agents=40)
    with problem.precision():
        network = hb.exponential(40)
        links = Links(hb.Drop(0.5), network, 5)
        dsoba = hb.DSOBA(alpha=0.01, beta=0.1, gamma=0.1, theta=0.2)
        run = simulated(problem, network, dsoba, 0, links)
        assert isinstance(run.world.tables.weights[""], dict)
