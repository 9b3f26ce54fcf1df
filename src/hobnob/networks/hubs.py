"""Networks where someone talks to everyone."""

from __future__ import annotations

import numpy as np

from hobnob.core.network import DENSE_LIMIT, Network
from hobnob.ground.errors import NetworkError
from hobnob.networks._size import whole


def star(size: int, weights: str = "metropolis") -> Network:
    """Agent 0 in the middle, linked to all others: rho = (1 - 1/K)^2, worse the larger it is."""
    size = whole(size, "The number of agents of a star")
    others = np.arange(1, size)
    return Network._from_edges(size, np.zeros_like(others), others, weights, "star")


def complete(size: int, weights: str = "metropolis") -> Network:
    """Everyone linked to everyone: W = 11'/K and rho = 0 (1/4 with lazy weights)."""
    size = whole(size, "The number of agents of a complete graph")
    if size > DENSE_LIMIT:
        raise NetworkError(
            f"A complete graph of {size:,} agents has {size * (size - 1) // 2:,} links and would "
            f"take {12e-9 * size**2:.0f} GB. exponential({size}) mixes well with "
            f"{2 * (size - 1).bit_length()} links or fewer an agent."
        )
    rows, cols = np.triu_indices(size, 1)
    return Network._from_edges(size, rows, cols, weights, "complete")
