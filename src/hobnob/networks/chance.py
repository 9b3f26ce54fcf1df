"""Random networks. The same seed gives the same network."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from hobnob.core.network import Network
from hobnob.ground.errors import NetworkError
from hobnob.networks._size import whole

Edges = tuple[np.ndarray, np.ndarray]
TRIES = 50


def erdos_renyi(
    size: int, probability: float, seed: int = 0, weights: str = "metropolis"
) -> Network:
    """Each pair linked with the same probability; rho falls as probability * K grows.

    A disconnected draw is discarded and the next seed tried. Below the threshold ln K / K hardly
    any draw is connected.

    Args:
        size: the number of agents K.
        probability: of each link, in [0, 1].
        seed: of the draw.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.erdos_renyi(20, 0.3, seed=1).size
        20
    """
    size = whole(size, "The number of agents of a random graph")
    if not 0 <= probability <= 1:
        raise NetworkError(f"A probability lies between 0 and 1: {probability!r} does not.")

    def draw(rng: np.random.Generator) -> Edges:
        pairs = size * (size - 1) // 2
        drawn = rng.choice(pairs, rng.binomial(pairs, probability), replace=False, shuffle=False)
        # Pair number c is (i, j) with i < j and c = j (j - 1) / 2 + i.
        j = ((1 + np.sqrt(1 + 8.0 * drawn)) / 2).astype(np.int64)
        return drawn - j * (j - 1) // 2, j

    edges = _connected(size, draw, whole(seed, "A seed", least=0))
    if edges is None:
        raise NetworkError(
            f"No connected graph of {size:,} agents with link probability {probability:g} came up "
            f"in {TRIES} draws: those who are left out could never agree with the others. Above "
            f"the threshold ln K / K = {log(size) / size:.2g} most draws are connected. "
            "Use a larger probability, or random_regular."
        )
    return Network._from_edges(size, *edges, weights, "erdos_renyi")


def random_regular(
    size: int, degree: int = 4, seed: int = 0, weights: str = "metropolis"
) -> Network:
    """Random neighbours, equally many for each agent: an expander, so rho does not grow with K.

    rho stays near ((1 + 2 sqrt(d - 1)) / (1 + d))^2, which is 0.80 for degree 4.

    Args:
        size: the number of agents K.
        degree: d, the number of neighbours of each agent. It must be below K, and K d even.
        seed: of the draw.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> set(hb.random_regular(20, degree=4, seed=1).degrees.tolist())
        {4}
    """
    size = whole(size, "The number of agents of a random regular graph")
    degree = whole(degree, "A degree", least=0)
    if degree >= size or size * degree % 2:
        raise NetworkError(
            f"{size} agents cannot have {degree} neighbours each: the degree must be below the "
            "number of agents, and one of the two must be even."
        )
    if degree < 2 and size > degree + 1:
        raise NetworkError(
            f"{size} agents with {degree} neighbours each fall apart: they can never agree. "
            "Use a degree of at least 2."
        )

    def draw(rng: np.random.Generator) -> Edges:
        if degree == 2:  # only a ring is connected, and shuffling hardly ever makes one
            agents = rng.permutation(size)
            return agents, np.roll(agents, 1)
        return _shuffled(*_circulant(size, degree), size, rng)

    edges = _connected(size, draw, whole(seed, "A seed", least=0))
    if edges is None:
        raise NetworkError(
            f"No connected graph of {size:,} agents and degree {degree} came up in {TRIES} draws. "
            "Use a larger degree."
        )
    return Network._from_edges(size, *edges, weights, "random_regular")


def _connected(size: int, draw: Callable[[np.random.Generator], Edges], seed: int) -> Edges | None:
    for attempt in range(seed, seed + TRIES):
        rows, cols = draw(np.random.default_rng(attempt))
        links = sp.coo_array((np.ones(rows.size), (rows, cols)), shape=(size, size))
        if connected_components(links, directed=False)[0] == 1:
            return rows, cols
    return None


def _circulant(size: int, degree: int) -> Edges:
    """Links to the nearest agents on a circle, and to the opposite one if the degree is odd."""
    agents = np.arange(size)
    hops = np.arange(1, degree // 2 + 1)
    rows, cols = np.repeat(agents, hops.size), np.add.outer(agents, hops).ravel() % size
    if degree % 2:
        half = agents[: size // 2]
        rows, cols = np.concatenate([rows, half]), np.concatenate([cols, half + size // 2])
    return rows, cols


def _shuffled(rows: np.ndarray, cols: np.ndarray, size: int, rng: np.random.Generator) -> Edges:
    """Swap ends of pairs of edges, a-b and c-d to a-d and c-b, until the layout is random.

    Unlike pairing loose ends at random, this needs no repair: degrees stay the same, and swaps that
    would link a pair twice or an agent to itself are skipped. All edges swap at once.
    """

    def code(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.minimum(i, j) * size + np.maximum(i, j)

    for _ in range(20):
        flip = rng.random(rows.size) < 0.5
        rows, cols = np.where(flip, cols, rows), np.where(flip, rows, cols)
        one, other = rng.permutation(rows.size)[: rows.size // 2 * 2].reshape(2, -1)
        new = np.stack([code(rows[one], cols[other]), code(rows[other], cols[one])])
        # A proposal counts as taken if it is an edge now or is proposed more than once.
        taken = np.concatenate([code(rows, cols), new.ravel()])
        _, which, times = np.unique(taken, return_inverse=True, return_counts=True)
        single = (times[which][rows.size :] == 1).reshape(2, -1).all(axis=0)
        loopless = (rows[one] != cols[other]) & (rows[other] != cols[one])
        one, other = one[single & loopless], other[single & loopless]
        cols[one], cols[other] = cols[other], cols[one]
    return rows, cols
