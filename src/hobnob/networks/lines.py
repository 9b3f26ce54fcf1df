"""Networks where each agent talks to the one before and the one after."""

from __future__ import annotations

import numpy as np

from hobnob.core.network import Network
from hobnob.networks._size import whole


def ring(size: int, weights: str = "metropolis") -> Network:
    """A circle. 1 - rho falls like 8 pi^2 / (3 K^2); rho = 0.29, 0.76, 0.94 for K = 5, 10, 20.

    With three agents or more, every weight is the paper's 1/3. Two agents have one link, not two,
    so their weights are 1/2 and they agree after one round.

    Args:
        size: the number of agents K.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.ring(5)
        Network('ring': 5 agents, 5 links, weights='metropolis', rho=0.29)
    """
    size = whole(size, "The number of agents of a ring")
    agents = np.arange(size)
    return Network._from_edges(size, agents, (agents + 1) % size, weights, "ring")


def path(size: int, weights: str = "metropolis") -> Network:
    """A ring with one link cut. 1 - rho falls like 2 pi^2 / (3 K^2), a quarter of a ring's.

    Args:
        size: the number of agents K.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.path(4).neighbours(1)
        [0, 2]
    """
    size = whole(size, "The number of agents of a path")
    agents = np.arange(size)
    return Network._from_edges(size, agents[:-1], agents[1:], weights, "path")
