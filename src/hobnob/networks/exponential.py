"""A network where any two agents are a few hops apart."""

from __future__ import annotations

import numpy as np

from hobnob.core.network import Network
from hobnob.networks._size import whole


def exponential(size: int, weights: str = "metropolis") -> Network:
    """Agent k linked to k ± 1, 2, 4, 8, ...: 1 - rho falls only like 1 / log K.

    Each agent has about 2 log2(K) neighbours. The graph is the same in every round.

    Args:
        size: the number of agents K.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.exponential(16).neighbours(0)
        [1, 2, 4, 8, 12, 14, 15]
    """
    size = whole(size, "The number of agents of an exponential graph")
    agents = np.arange(size)
    hops = 2 ** np.arange((size - 1).bit_length())  # 1, 2, 4, ... below size
    rows = np.repeat(agents, hops.size)
    cols = np.add.outer(agents, hops).ravel() % size
    return Network._from_edges(size, rows, cols, weights, "exponential")
