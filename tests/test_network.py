"""Networks: the weights by hand, rho against NumPy, bad input, properties of any graph."""

from __future__ import annotations

from math import cos, pi
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob import networks
from hobnob.core import mixing_matrix as spectrum
from hobnob.core.mixing_matrix import RULES
from hobnob.core.network import Network
from hobnob.ground.errors import ConfigError, NetworkError
from hobnob.networks.chance import erdos_renyi, random_regular
from hobnob.networks.exponential import exponential
from hobnob.networks.grids import torus
from hobnob.networks.hubs import complete, star
from hobnob.networks.lines import path, ring

PATH_3 = nx.path_graph(3)
SWAP = [[0.0, 1.0], [1.0, 0.0]]


def rho_by_definition(w):
    return np.linalg.norm(w - 1 / len(w), 2) ** 2


# Weight rules


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("metropolis", np.array([[4, 2, 0], [2, 2, 2], [0, 2, 4]]) / 6),
        ("lazy", np.array([[5, 1, 0], [1, 4, 1], [0, 1, 5]]) / 6),
        ("max-degree", np.array([[4, 2, 0], [2, 2, 2], [0, 2, 4]]) / 6),
    ],
)
def test_rules_by_hand_on_a_path_of_three(rule, expected):
    np.testing.assert_allclose(Network(PATH_3, rule).matrix, expected, atol=1e-15)


def test_metropolis_and_max_degree_differ_where_degrees_do():
    graph = nx.Graph([(0, 1), (1, 2), (1, 3), (3, 4)])  # degrees 1, 3, 1, 2, 1
    assert Network(graph).matrix[3, 4] == pytest.approx(1 / 3)
    assert Network(graph, "max-degree").matrix[3, 4] == pytest.approx(1 / 4)
    assert Network(graph, "lazy").matrix[3, 4] == pytest.approx(1 / 6)


def test_uniform_is_the_papers_third_on_a_ring():
    w = ring(5, weights="uniform").matrix
    assert w[0, [4, 0, 1]] == pytest.approx([1 / 3] * 3)
    assert w[0, 2] == 0


# What a network is made of


def test_agents_are_numbered_in_the_order_of_the_nodes():
    graph = nx.Graph()
    graph.add_nodes_from(["cat", ("a", 1), 7])
    graph.add_edges_from([("cat", 7), (7, ("a", 1))])
    network = Network(graph)
    assert network.labels == ["cat", ("a", 1), 7]
    assert network.neighbours(2) == [0, 1]
    assert network.degrees.tolist() == [1, 1, 2]
    assert sorted(network.graph.edges) == [(0, 2), (1, 2)]


def test_self_loops_and_parallel_edges_do_not_count():
    graph = nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 2)])
    assert Network(graph).fingerprint() == Network(PATH_3).fingerprint()


@pytest.mark.parametrize(
    "form", [np.array, lambda w: w.tolist(), sp.csr_matrix, sp.coo_array, jnp.asarray, np.float32]
)
def test_a_matrix_may_come_in_any_form(form):
    w = star(4).matrix
    network = Network(form(w))
    np.testing.assert_allclose(network.matrix, w, atol=1e-7)
    assert (network.weights, network.name) == ("given", "matrix")
    assert network.degrees.tolist() == [3, 1, 1, 1]


def test_a_float64_matrix_is_kept_to_the_bit():
    w = torus(12).matrix
    np.testing.assert_array_equal(Network(w).matrix, w)
    assert Network(w).fingerprint() == torus(12).fingerprint() != ring(12).fingerprint()


def test_single_precision_is_accepted_as_such_and_not_from_doubles():
    w = np.full((3, 3), 1 / 3) + np.diag([3e-6, 0, 0])
    assert Network(w.astype(np.float32)).size == 3
    with pytest.raises(NetworkError, match=r"row 0 sums to 1\.000003"):
        Network(w)


def test_rounding_dust_is_no_link_and_links_go_both_ways():
    w = path(3).matrix.copy()
    w[0, 2] = w[2, 0] = -1e-17
    assert Network(w).degrees.tolist() == [1, 2, 1]
    w[0, 2] = 5e-9  # within the tolerance, but a link: both ends must know it
    w[2, 0] = 0
    network = Network(w)
    assert network.neighbours(0) == [1, 2]
    assert network.neighbours(2) == [0, 1]


def test_a_zero_diagonal_is_stored():
    network = Network(np.ones((3, 3)) / 2 - np.eye(3) / 2)
    assert network.sparse.nnz == 9
    assert network.degrees.tolist() == [2, 2, 2]
    assert network.rho == pytest.approx(1 / 4)


def test_a_network_of_a_network_is_its_copy():
    network = ring(6, weights="lazy")
    copy = Network(network)
    assert copy is not network
    assert repr(copy) == repr(network)
    assert copy.fingerprint() == network.fingerprint()
    assert Network(network.graph).weights == "metropolis"


def test_what_is_cached_cannot_be_changed():
    network = ring(5)
    for array in (network.matrix, network.sparse.data, network.sparse.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(nx.NetworkXError, match="Frozen"):
        network.graph.add_edge(0, 2)


def test_repr_tells_the_essentials():
    assert repr(ring(5)) == "Network('ring': 5 agents, 5 links, weights='metropolis', rho=0.29)"
    assert "rho" not in repr(path(600))
    assert "rho=1 - 5.3e-05" in repr(path(353))


# Topologies

TOPOLOGIES = {
    "ring": lambda: ring(13),
    "path": lambda: path(12),
    "star": lambda: star(9),
    "complete": lambda: complete(7),
    "torus": lambda: torus(4, 5),
    "exponential": lambda: exponential(21),
    "erdos_renyi": lambda: erdos_renyi(20, 0.3, seed=1),
    "random_regular": lambda: random_regular(16, 3, seed=2),
}


def test_every_topology_is_registered_and_tested():
    assert networks.names() == sorted(TOPOLOGIES)
    assert networks.get("ring") is ring
    with pytest.raises(ConfigError, match=r"no network 'wheel'.*exponential"):
        networks.get("wheel")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_rho_is_the_squared_norm(name):
    network = TOPOLOGIES[name]()
    assert network.name == name
    assert network.rho == pytest.approx(rho_by_definition(network.matrix), abs=1e-12)


@pytest.mark.parametrize(("size", "rho"), [(5, 0.29), (10, 0.76), (20, 0.94)])
def test_the_papers_rings(size, rho):
    assert round(ring(size).rho, 2) == rho
    assert ring(size).rho == pytest.approx((1 / 3 + 2 / 3 * cos(2 * pi / size)) ** 2)


@pytest.mark.parametrize("name", sorted(set(TOPOLOGIES) - {"complete"}))
@pytest.mark.parametrize("lazy", [False, True])
def test_the_ways_to_rho_agree(name, lazy):
    network = TOPOLOGIES[name]()
    network = Network(network.graph, "lazy") if lazy else network
    w = network.sparse
    expected = spectrum.by_eigenvalues(w)
    assert spectrum.by_lanczos(w) == pytest.approx(expected, abs=1e-12)
    assert spectrum.by_inverse(w) == pytest.approx(expected, abs=1e-12)
    row = spectrum.circulant_row(w)
    assert (row is not None) == (name in ("ring", "exponential"))
    if row is not None:
        assert spectrum.by_fourier(row) == pytest.approx(expected, abs=1e-12)


def test_rho_may_be_set_by_the_other_end():
    # An even ring with small self-weights: almost periodic, with the eigenvalue -0.96.
    network = Network(0.49 * nx.to_numpy_array(nx.cycle_graph(10)) + 0.02 * np.eye(10))
    assert network.rho == pytest.approx(0.96**2)
    assert spectrum.by_lanczos(network.sparse) == pytest.approx(0.96**2)
    assert spectrum.by_inverse(network.sparse) == pytest.approx(0.96**2)


@pytest.mark.parametrize("size", [600, 3000])
def test_rho_of_long_thin_networks(size):
    assert 1 - path(size).rho == pytest.approx(1 - (1 / 3 + 2 / 3 * cos(pi / size)) ** 2, rel=1e-6)
    side = size // 3  # three rows of this many
    expected = 1 - (3 / 5 + 2 / 5 * cos(2 * pi / side)) ** 2
    assert 1 - torus(3, side).rho == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("make", [ring, path, star, complete, exponential, torus])
def test_one_and_two_agents(make, size):
    network = make(size)
    np.testing.assert_allclose(network.matrix, np.full((size, size), 1 / size))
    assert network.rho == pytest.approx(0, abs=1e-15)


def test_the_shapes_are_what_their_names_say():
    assert nx.utils.graphs_equal(nx.cycle_graph(7), nx.Graph(ring(7).graph.edges))
    assert nx.is_isomorphic(torus(4, 5).graph, nx.grid_2d_graph(4, 5, periodic=True))
    assert torus(12).fingerprint() == torus(3, 4).fingerprint()
    assert exponential(16).neighbours(0) == [1, 2, 4, 8, 12, 14, 15]
    assert star(4).neighbours(0) == [1, 2, 3]
    assert complete(5).sparse.nnz == 25
    for degree in (0, 1, 2, 3, 4, 5):
        network = random_regular(degree + 1 if degree < 2 else 6, degree)
        assert set(network.degrees) == {degree}
    assert erdos_renyi(6, 1.0).fingerprint() == complete(6).fingerprint()


def test_a_seed_fixes_a_draw():
    assert erdos_renyi(30, 0.2, 5).fingerprint() == erdos_renyi(30, 0.2, 5).fingerprint()
    assert erdos_renyi(30, 0.2, 5).fingerprint() != erdos_renyi(30, 0.2, 6).fingerprint()
    assert random_regular(30).fingerprint() == random_regular(30).fingerprint()
    assert random_regular(30).fingerprint() != random_regular(30, seed=1).fingerprint()


def test_random_graphs_link_each_pair_equally_often():
    # 400 draws; each pair's count is binomial. A correct one of 28 pairs exceeds 5 standard
    # deviations with probability below 2e-5.
    def counts(draw):
        links = np.array([draw(1000 * s).matrix > 0 for s in range(400)])
        return links.sum(axis=0)[np.triu_indices(8, 1)]

    for found, p in [
        (counts(lambda s: erdos_renyi(8, 0.7, s)), 0.7),
        (counts(lambda s: random_regular(8, 3, s)), 3 / 7),
    ]:
        assert abs(found - 400 * p).max() < 5 * (400 * p * (1 - p)) ** 0.5


LARGE = {
    "ring": (ring, (), 300_000),
    "path": (path, (), 299_998),
    "star": (star, (), 299_998),
    "exponential": (exponential, (), 3_500_000),
    "random_regular": (random_regular, (4,), 500_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_thousand_agents_stay_sparse(name):
    make, options, entries = LARGE[name]
    network = make(100_000, *options)
    assert network.sparse.nnz == entries
    np.testing.assert_allclose(network.sparse.sum(axis=1), 1, atol=1e-12)
    with pytest.raises(NetworkError, match=r"100,000 agents would take 80\.0 GB.*network\.sparse"):
        _ = network.matrix


# Bad input: the messages


def bad(message, *args, **kwargs):
    with pytest.raises(NetworkError, match=message):
        Network(*args, **kwargs)


def changed(*entries):
    w = ring(5).matrix.copy()
    for i, j, value in entries:
        w[i, j] = value
    return w


def test_unusable_input():
    bad("no weight rule 'best'.*metropolis, lazy, max-degree, uniform", PATH_3, weights="best")
    bad(r"directed \(2 arcs\).*to_undirected", nx.DiGraph([(0, 1), (1, 0)]))
    bad("has no nodes", nx.Graph())
    bad("W is empty", np.zeros((0, 0)))
    bad(r"not square: its shape is \(2, 3\)", np.ones((2, 3)))
    bad(r"not square: its shape is \(\)", 5)
    bad("not of this str: ring", "ring")
    bad("not of this list", [[1.0], [0.5, 0.5]])
    bad("not of this NoneType", None)
    bad("real numbers", np.eye(2) * 1j)


def test_unusable_entries():
    bad(r"not finite: w\[1, 2\] = nan", changed((1, 2, np.nan)))
    bad(r"not finite: w\[0, 0\] = inf", changed((0, 0, np.inf)))
    bad(r"symmetric: w\[0, 1\] = 0\.5 but w\[1, 0\] = 0\.3333", changed((0, 1, 0.5), (2, 3, 0.4)))
    bad(r"w\[0, 1\] = 0\.3333334333 but w\[1, 0\] = 0\.33333333", changed((0, 1, 1 / 3 + 1e-7)))
    bad(r"negative entry: w\[0, 2\] = -0\.1\.", changed((0, 2, -0.1), (2, 0, -0.1)))
    bad(
        r"not doubly stochastic: row 4 sums to 0\.9167\. The mean would drift and no guarantee "
        r'applies\.\nUse weights="metropolis", or hb\.Network\(graph\)',
        changed((4, 4, 0.25)),
    )


def test_weights_that_never_mix():
    bad(r"never mixes: rho = 1.*\(I \+ W\) / 2", SWAP)
    bad("never mixes", nx.to_numpy_array(nx.cycle_graph(4)) / 2)
    assert Network(nx.to_numpy_array(nx.cycle_graph(5)) / 2).rho < 1
    assert Network((np.eye(2) + SWAP) / 2).rho == pytest.approx(0)


def test_uniform_needs_a_regular_graph():
    bad(r"degrees are 1 \(1, 2, 3\) and 3 \(0\)", nx.star_graph(3), weights="uniform")
    bad(r"1 \(1, 2, 3, 4, 5, 6, \.\.\. 93 more\)", nx.star_graph(99), weights="uniform")


def test_a_disconnected_graph_names_its_parts():
    graph = nx.Graph([(0, 1), (1, 2), (3, 4)])
    message = (
        r"two parts, \{0, 1, 2\} and \{3, 4\}: they can never agree\. "
        r"An edge 2-3 would join them \(rho = 0\.76 with metropolis weights\)"
    )
    bad(message, graph)
    bad(r"2-3 would join them \(rho = 0\.88 with lazy", graph, weights="lazy")
    blocks = sp.block_diag([path(3).sparse, path(2).sparse])
    bad(message, blocks)
    bad(r"\{ann, bob\} and \{cid\}", nx.Graph([("ann", "bob"), ("cid", "cid")]))
    bad(r"three parts, \{0\}, \{1\} and \{2\}.*edges 0-1 and 1-2 would", np.eye(3))


def test_a_large_disconnected_graph_is_told_in_short():
    graph = nx.disjoint_union_all([nx.path_graph(300)] * 7)
    bad(r"7 parts, \{0, 1, 2, 3, 4, 5, \.\.\. 294 more\}.* and 3 more: .* and 3 more such", graph)


def test_a_link_too_weak_for_float64_is_none():
    bad(r"two parts, \{0\} and \{1\}", [[1.0, 1e-18], [1e-18, 1.0]])


def test_unusable_topologies():
    sizes: list[Any] = [0, -1, 2.0, "8", True, None]
    for make in (ring, path, star, complete, torus, exponential, random_regular):
        for size in sizes:
            with pytest.raises(NetworkError, match="whole number of at least 1"):
                make(size)
    with pytest.raises(NetworkError, match=r"7 is prime.*ring"):
        torus(7)
    with pytest.raises(NetworkError, match="columns must be a whole"):
        torus(3, 1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(NetworkError, match=r"4,999,950,000 links.*120 GB"):
        complete(100_000)
    with pytest.raises(NetworkError, match=r"ln K / K = 0\.046"):
        erdos_renyi(100, 0.001)
    with pytest.raises(NetworkError, match=r"1\.5 does not"):
        erdos_renyi(10, 1.5)
    with pytest.raises(NetworkError, match="5 agents cannot have 3 neighbours"):
        random_regular(5, 3)
    with pytest.raises(NetworkError, match="fall apart"):
        random_regular(6, 1)
    with pytest.raises(NetworkError, match=r"no agent 5.*0 to 4"):
        ring(5).neighbours(5)


# Properties of any connected graph


@st.composite
def connected_graphs(draw):
    """A random tree, so that it is connected, with random links added."""
    size = draw(st.integers(1, 12))
    graph = nx.empty_graph(size)
    graph.add_edges_from((k, draw(st.integers(0, k - 1))) for k in range(1, size))
    agent = st.integers(0, size - 1)
    graph.add_edges_from(draw(st.lists(st.tuples(agent, agent), max_size=2 * size)))
    return graph


rules = st.sampled_from(sorted(set(RULES) - {"uniform"}))
quick = settings(derandomize=True, max_examples=60, deadline=None)


@quick
@given(connected_graphs(), rules)
def test_any_graph_gives_a_mixing_matrix(graph, rule):
    network = Network(graph, rule)
    w = network.matrix
    np.testing.assert_array_equal(w, w.T)
    assert w.min() >= 0
    np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-12)
    assert 0 <= network.rho < 1
    assert network.rho == pytest.approx(rho_by_definition(w), abs=1e-10)
    links = {(i, j) for i, j in zip(*np.nonzero(w), strict=True) if i < j}
    assert links == {(min(e), max(e)) for e in graph.edges if e[0] != e[1]}
    assert Network(w).fingerprint() == network.fingerprint()


@quick
@given(connected_graphs(), rules, st.randoms(use_true_random=False))
def test_relabelling_the_nodes_permutes_w(graph, rule, random):
    order = list(graph.nodes)
    random.shuffle(order)
    shuffled = nx.Graph()
    shuffled.add_nodes_from(str(node) for node in order)
    shuffled.add_edges_from((str(a), str(b)) for a, b in graph.edges)
    w = Network(graph, rule).matrix
    np.testing.assert_allclose(Network(shuffled, rule).matrix, w[np.ix_(order, order)], atol=1e-15)


def test_numbered_nodes_are_the_agents_of_that_number():
    graph = nx.Graph([(0, 2), (1, 2)])
    assert list(graph.nodes) == [0, 2, 1]
    network = Network(graph)
    assert network.neighbours(2) == [0, 1]
    assert list(network.labels) == [0, 1, 2]


@quick
@given(st.integers(3, 30), st.sampled_from([ring, complete, exponential]))
def test_uniform_equals_metropolis_on_regular_graphs(size, make):
    assert make(size, weights="uniform").fingerprint() == make(size).fingerprint()


@quick
@given(st.integers(2, 8), st.integers(0, 100))
def test_longer_lines_mix_more_slowly(size, more):
    for make in (ring, path):
        assert make(size + 2).rho < make(size + 3 + more).rho
