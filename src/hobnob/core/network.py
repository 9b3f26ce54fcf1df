"""Network: who talks to whom, with what weight, and how fast they agree.

All matrices are sparse, so a hundred thousand agents on a ring take a few megabytes. Weight rules
and rho are in mixing_matrix.py, checks in graph_checks.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import Any

import networkx as nx
import numpy as np

from hobnob.core.graph_checks import check_connected, check_regular, read_matrix
from hobnob.core.mixing_matrix import (
    CSR,
    RULES,
    SMALL,
    links_of,
    rho,
    row_numbers,
    shown,
    store,
    weigh,
)
from hobnob.ground.errors import NetworkError

DENSE_LIMIT = 20_000  # agents: a dense matrix of them takes 3.2 GB


class Network:
    """Agents, their links, and the mixing matrix W.

    Give a networkx graph and the rule that weights its links:

        "metropolis"  w_ij = 1 / (1 + max(d_i, d_j)), for any graph
        "lazy"        (I + metropolis) / 2: no negative eigenvalues, for methods that need that
        "max-degree"  w_ij = 1 / (1 + max of all d)
        "uniform"     w_ij = 1 / (1 + d), for regular graphs: the paper's 1/3 on a ring

    or give W itself. `Network(network.graph, weights="lazy")` changes the weights of a network.

    size      the number of agents K
    sparse    W as a scipy CSR array: float64, sorted, every diagonal entry stored
    labels    the graph's own names of the agents; 0 .. K-1 for a matrix
    levels    separate networks for some levels of an algorithm, see `with_levels`
    name, weights   for reports

    Args:
        graph_or_matrix: an undirected networkx graph, whose self-loops and edge attributes are
            ignored. Nodes 0 to K - 1 are the agents of that number; other nodes are numbered in
            their order. Or W (NumPy, JAX, lists, scipy.sparse): symmetric, nonnegative, doubly
            stochastic. Or a `Network`, which is copied.
        weights: the rule; used for graphs only.

    Example:
        >>> import hobnob as hb
        >>> import networkx as nx
        >>> hb.Network(nx.cycle_graph(5), weights="lazy")
        Network('graph': 5 agents, 5 links, weights='lazy', rho=0.59)
    """

    size: int
    sparse: CSR
    labels: Sequence[Any]
    levels: Mapping[str, Network] = MappingProxyType({})
    name: str
    weights: str

    def __init__(self, graph_or_matrix: Any, weights: str = "metropolis"):
        given = graph_or_matrix
        if isinstance(given, Network):
            self.__dict__.update(given.__dict__)
        elif isinstance(given, nx.Graph):
            if given.is_directed():
                raise NetworkError(
                    f"The graph is directed ({given.number_of_edges()} arcs): its weights could "
                    "not be symmetric and the mean would drift. Use graph.to_undirected()."
                )
            labels = _in_order(given)
            number = {label: k for k, label in enumerate(labels)}
            ends = np.array([(number[a], number[b]) for a, b in given.edges()], int).reshape(-1, 2)
            rows, cols = ends.T
            self._weigh(len(labels), rows, cols, weights, given.name or "graph", labels)
        else:
            self.sparse = store(*read_matrix(given))
            self.size = self.sparse.shape[0]
            self.weights, self.name, self.labels = "given", "matrix", range(self.size)

    @classmethod
    def _from_edges(
        cls, size: int, rows: np.ndarray, cols: np.ndarray, weights: str, name: str
    ) -> Network:
        """From arrays of edges, in any order; repeats and loops are allowed."""
        network = cls.__new__(cls)
        network._weigh(size, rows, cols, weights, name, range(size))
        return network

    def _weigh(
        self,
        size: int,
        rows: np.ndarray,
        cols: np.ndarray,
        weights: str,
        name: str,
        labels: Sequence[Any],
    ) -> None:
        if weights not in RULES:
            known = ", ".join(RULES)
            raise NetworkError(f"There is no weight rule {weights!r}. There are: {known}.")
        if size == 0:
            raise NetworkError("The graph has no nodes: a network needs at least one agent.")
        links = links_of(size, rows, cols)
        check_connected(links, labels, weights)
        if weights == "uniform":
            check_regular(np.diff(links.indptr), labels)
        self.sparse, self.size = weigh(links, weights), size
        self.weights, self.name, self.labels = weights, name, labels

    def with_levels(self, **levels: Any) -> Network:
        """The same agents, with separate links and weights for some levels of an algorithm.

        `hb.ring(8).with_levels(y=hb.complete(8))` mixes y on the complete graph and the rest on the
        ring. Only algorithms with levels take it, such as SPARKLE with x, y and z.
        """
        made = {name: g if isinstance(g, Network) else Network(g) for name, g in levels.items()}
        for name, network in made.items():
            if network.size != self.size:
                raise NetworkError(
                    f"The network of level {name} has {network.size} agents and this one "
                    f"{self.size}: all levels have the same agents."
                )
            if network.levels:
                raise NetworkError(f"The network of level {name} has levels itself.")
        together = copy(self)
        together.levels = {**self.levels, **made}
        return together

    def at_level(self, level: str | None) -> Network:
        """The network that carries a level's messages."""
        return self if level is None else self.levels.get(level, self)

    @cached_property
    def matrix(self) -> np.ndarray:
        """W, dense and read-only."""
        if self.size > DENSE_LIMIT:
            raise NetworkError(
                f"network.matrix of {self.size:,} agents would take {8e-9 * self.size**2:.1f} GB. "
                f"Use network.sparse, which has {self.sparse.nnz:,} entries."
            )
        dense = self.sparse.toarray()
        dense.flags.writeable = False
        return dense

    @cached_property
    def degrees(self) -> np.ndarray:
        """The number of neighbours of each agent, without itself."""
        return np.diff(self.sparse.indptr) - 1

    @property
    def most_links(self) -> int:
        """The number of neighbours of the agent that has most."""
        return int(self.degrees.max())

    @cached_property
    def ends(self) -> np.ndarray:
        """[links, 2]: the agents at the ends of each link, smaller number first, in order."""
        rows, columns = row_numbers(self.sparse), self.sparse.indices
        return np.stack([rows, columns], axis=1)[rows < columns].astype(np.int64)

    @cached_property
    def graph(self) -> nx.Graph:
        """The links as a networkx graph on 0 .. K-1; frozen, so copy it to change it."""
        graph = nx.Graph(name=self.name)
        graph.add_nodes_from(range(self.size))
        graph.add_edges_from(map(tuple, self.ends.tolist()))
        return nx.freeze(graph)

    @cached_property
    def rho(self) -> float:
        """The *squared* norm of W - 11'/K: how much disagreement one round leaves; 0 is best."""
        return rho(self.sparse)

    def neighbours(self, k: int) -> list[int]:
        """The agents that k is linked to, in order."""
        if not 0 <= k < self.size:
            raise NetworkError(f"There is no agent {k}: they go from 0 to {self.size - 1}.")
        heard = self.sparse.indices[self.sparse.indptr[k] : self.sparse.indptr[k + 1]]
        return heard[heard != k].tolist()

    def fingerprint(self) -> str:
        """The sha256 of W, and of each level's: equal for equal matrices on every machine."""
        # Fixed widths and byte order: scipy's vary from machine to machine.
        parts = (self.sparse.indptr, "<i8"), (self.sparse.indices, "<i8"), (self.sparse.data, "<f8")
        own = hashlib.sha256(b"".join(a.astype(t).tobytes() for a, t in parts)).hexdigest()
        levels = [f"{name} {self.levels[name].fingerprint()}" for name in sorted(self.levels)]
        return ", ".join([own, *levels])

    def __repr__(self) -> str:
        # Printing must not start a long computation: show a large network's rho only if cached.
        known = self.size <= SMALL or "rho" in self.__dict__
        rho = f", rho={shown(self.rho)}" if known else ""
        links = int(self.degrees.sum()) // 2
        levels = "".join(f", {name}: {network!r}" for name, network in self.levels.items())
        return (
            f"Network({self.name!r}: {self.size:,} agents, {links:,} links, "
            f"weights={self.weights!r}{rho}{levels})"
        )


def _in_order(graph: nx.Graph[Any]) -> list[Any]:
    """Nodes as agents: by number if they are 0 .. K - 1, else in the order they were added.

    nx.Graph([(0, 2), (1, 2)]) lists its nodes as 0, 2, 1, which nobody means.
    """
    numbered = set(graph.nodes) == set(range(len(graph)))
    return sorted(graph.nodes) if numbered else list(graph.nodes)
