"""Networks laid out as a grid."""

from __future__ import annotations

from math import isqrt

import numpy as np

from hobnob.core.network import Network
from hobnob.ground.errors import NetworkError
from hobnob.networks._size import whole


def torus(rows: int, columns: int | None = None, weights: str = "metropolis") -> Network:
    """A grid whose edges wrap round. 1 - rho falls like 8 pi^2 / (5 n^2), n the longer side.

    `torus(3, 4)` has three rows of four agents. `torus(12)` lays out 12 agents as squarely as
    possible, here three by four again.

    Args:
        rows: the number of rows, or of all agents if `columns` is not given.
        columns: the number of columns.
        weights: the weight rule, as in `Network`.

    Example:
        >>> import hobnob as hb
        >>> hb.torus(3, 4)
        Network('torus': 12 agents, 24 links, weights='metropolis', rho=0.36)
    """
    if columns is None:
        rows, columns = _squarest(whole(rows, "The number of agents of a torus"))
    rows, columns = whole(rows, "A torus's rows"), whole(columns, "A torus's columns")
    agents = np.arange(rows * columns).reshape(rows, columns)
    below, right = np.roll(agents, -1, axis=0), np.roll(agents, -1, axis=1)
    starts, ends = np.concatenate([agents, agents]), np.concatenate([below, right])
    return Network._from_edges(agents.size, starts.ravel(), ends.ravel(), weights, "torus")


def _squarest(size: int) -> tuple[int, int]:
    rows = next(r for r in range(isqrt(size), 0, -1) if size % r == 0)
    if rows == 1 and size > 3:
        raise NetworkError(
            f"{size} agents cannot be laid out as a torus: {size} is prime, so only a ring of "
            f"them is left. Use ring({size}), or {size + 1} agents."
        )
    return rows, size // rows
