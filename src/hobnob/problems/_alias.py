"""Draws from a table of probabilities in two lookups, whatever its size: Walker's alias method.

A row of n probabilities is cut into n boxes of the same weight. Box i holds i up to `share[i]` and
one other state, `other[i]`, above. A uniform number picks a box and a height in it.
(Walker, "An efficient method for generating discrete random variables with general distributions",
1977; filled as in Vose, "A linear algorithm for generating random numbers with a given
distribution", 1991.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.ground.barrier import materialised


class Boxes:
    """One row of boxes for each row of probabilities; a row sums to 1, to rounding."""

    def __init__(self, probabilities: np.ndarray):
        self._rows, self._size = probabilities.shape
        filled = [_filled(row / row.sum()) for row in np.asarray(probabilities, np.float64)]
        # One flat array, so that a single index is enough.
        self.share, self.other = (np.concatenate(part) for part in zip(*filled, strict=True))

    def draw(self, uniform: jax.Array) -> jax.Array:
        """For each row, the column that its uniform number in [0, 1) picks."""
        last = self._size - 1
        scaled = uniform * self._size
        box = jnp.minimum(scaled.astype(jnp.int32), last)  # a product may round up to the size
        at = np.arange(self._rows, dtype=np.int32) * self._size + box
        own = scaled - box < jnp.asarray(self.share)[at].astype(uniform.dtype)
        return materialised(jnp.where(own, box, jnp.asarray(self.other)[at]))


def _filled(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = (row * len(row)).tolist()
    share, other = np.ones(len(row)), np.arange(len(row), dtype=np.int32)
    small = [i for i, weight in enumerate(weights) if weight < 1]
    large = [i for i, weight in enumerate(weights) if weight >= 1]
    while small and large:
        least, most = small.pop(), large[-1]
        share[least], other[least] = weights[least], most
        weights[most] -= 1 - weights[least]
        if weights[most] < 1:
            small.append(large.pop())
    return share, other  # boxes left over weigh 1, to rounding
