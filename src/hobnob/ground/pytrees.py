"""Conversion between a user's pytree and the flat vector that an algorithm works on.

A model's pytree may hold functions beside its numbers: an Equinox module has its activation as a
leaf. Functions are not part of the vector and are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class VectorLayout:
    """How the leaves of one pytree of arrays lie in a flat vector.

    Both directions keep leading axes, so a stack of vectors (one row per agent) unravels into a
    pytree whose leaves are stacks. `xp` is the array module, NumPy or jax.numpy.
    """

    def __init__(self, tree: Any):
        self.shapes = [np.shape(leaf) for leaf in numbers(tree)]
        self.size = sum(prod(shape) for shape in self.shapes)
        leaves, self.structure = jax.tree.flatten(tree)
        self._functions = {i: leaf for i, leaf in enumerate(leaves) if callable(leaf)}

    def ravel(self, tree: Any, xp: Any = np) -> Any:
        leaves = [
            xp.reshape(leaf, (*np.shape(leaf)[: max(np.ndim(leaf) - len(shape), 0)], -1))
            for leaf, shape in zip(numbers(tree), self.shapes, strict=True)
        ]
        return xp.concatenate(leaves, axis=-1)

    def unravel(self, flat: Any, xp: Any = jnp) -> Any:
        lead = np.shape(flat)[:-1]
        # One split has one concatenation as its derivative; each slice would have a full vector.
        ends = list(accumulate(prod(shape) for shape in self.shapes))
        parts = xp.split(flat, ends[:-1], axis=-1) if ends[1:] else [flat] * len(ends)
        leaves = [
            xp.reshape(part, lead + shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]
        for place, function in self._functions.items():  # in ascending order
            leaves.insert(place, function)
        return jax.tree.unflatten(self.structure, leaves)


def numbers(tree: Any) -> list[Any]:
    """The leaves that are not functions."""
    return [leaf for leaf in jax.tree.leaves(tree) if not callable(leaf)]


def map_numbers(change: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `change` to every leaf that is not a function."""
    return jax.tree.map(lambda leaf: leaf if callable(leaf) else change(leaf), tree)


def path_name(path: tuple[Any, ...]) -> str:
    """A leaf's place as text, such as `['images'][0]`, for messages."""
    return jax.tree_util.keystr(path) or "the array"
