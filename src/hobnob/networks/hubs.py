"""Networks where at least one agent talks to all others."""

from __future__ import annotations

import numpy as np

from hobnob.core.network import DENSE_LIMIT, Network
from hobnob.ground.errors import NetworkError
from hobnob.networks._size import whole


def star(size: int, weights: str = "metropolis") -> Network:
    """Agent 0 in the middle, linked to all others: rho = (1 - 1/K)^2, which grows with K.

    Args:
        size: the number of agents K.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.star(4).degrees.tolist()
        [3, 1, 1, 1]
    """
    size = whole(size, "The number of agents of a star")
    others = np.arange(1, size)
    return Network._from_edges(size, np.zeros_like(others), others, weights, "star")


def complete(size: int, weights: str = "metropolis") -> Network:
    """All agents linked to each other: W = 11'/K and rho = 0 (1/4 with lazy weights).

    Args:
        size: the number of agents K.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.complete(4).matrix[0]
        array([0.25, 0.25, 0.25, 0.25])
    """
    size = whole(size, "The number of agents of a complete graph")
    if size > DENSE_LIMIT:
        raise NetworkError(
            f"A complete graph of {size:,} agents has {size * (size - 1) // 2:,} links and would "
            f"take {12e-9 * size**2:.0f} GB. exponential({size}) mixes well with "
            f"{2 * (size - 1).bit_length()} links or fewer an agent."
        )
    rows, cols = np.triu_indices(size, 1)
    return Network._from_edges(size, rows, cols, weights, "complete")
