"""Between a user's pytree and the flat vector that an algorithm works on."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Layout:
    """How the leaves of one pytree of arrays lie in a flat vector.

    Both directions keep leading axes, so a stack of vectors (one row an agent) unravels into a
    pytree whose leaves are stacks. `xp` is the array module to work with: NumPy or jax.numpy.
    """

    def __init__(self, tree: Any):
        leaves, self.structure = jax.tree.flatten(tree)
        self.shapes = [np.shape(leaf) for leaf in leaves]
        self.size = sum(prod(shape) for shape in self.shapes)

    def ravel(self, tree: Any, xp: Any = np) -> Any:
        leaves = [
            xp.reshape(leaf, (*np.shape(leaf)[: max(np.ndim(leaf) - len(shape), 0)], -1))
            for leaf, shape in zip(jax.tree.leaves(tree), self.shapes, strict=True)
        ]
        return xp.concatenate(leaves, axis=-1)

    def unravel(self, flat: Any, xp: Any = jnp) -> Any:
        lead = np.shape(flat)[:-1]
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + prod(shape)
            leaves.append(xp.reshape(flat[..., start:stop], lead + shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def path_name(path: tuple[Any, ...]) -> str:
    """A leaf's place in words: `batch['images'][0]` for a message."""
    return jax.tree_util.keystr(path) or "the array"
