"""W times a stack for many agents on a circle, who all hear those at the same distances.

A sum over thirty neighbours, row by row, reads thirty streams: more than a processor fetches ahead.
Neighbours within a few thousand places are one stream, which the cache holds for all of them. The
others are added afterwards, block by block: a block of sums stays in the cache meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.mixing_matrix import CSR, circulant_row

_FEWEST_AGENTS = 2**14  # fewer agents' messages stay in the cache anyway
_FEWEST, _MOST = 4, 64  # neighbours, the agent itself included
_NEAR = 2**11  # agents
_BLOCK = 2**15  # numbers
_STREAMS = 6  # neighbours that are added to a block at once


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["near", "near_weights", "far", "far_weights"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Circulant:
    """The distances at which agents hear each other, and their weights.

    Near distances have a sign. Far ones all go in one direction; they come in groups of equal
    size, filled up with weights of 0.
    """

    near: jax.Array
    near_weights: jax.Array
    far: jax.Array
    far_weights: jax.Array

    def mixed(self, stack: jax.Array) -> jax.Array:
        """W times a stack whose first axis is the agents: the stack, shifted by each distance."""
        flat = stack.reshape(-1).astype(jnp.result_type(stack, self.near_weights))
        if not flat.size:
            return flat.reshape(stack.shape)
        length, block, width = flat.size, min(_BLOCK, flat.size), flat.size // len(stack)
        before = _reach(len(stack)) * width
        after = max(before, block)  # the last block of a far neighbour goes past the end
        circle = jnp.pad(flat, (before, after))
        circle = circle.at[:before].set(circle[length : length + before])
        circle = circle.at[before + length :].set(circle[before : before + after])

        def shifted(by: jax.Array, size: int) -> jax.Array:
            return jax.lax.dynamic_slice(circle, (before + by,), (size,))

        near = zip(self.near, self.near_weights, strict=True)
        sums = reduce(jnp.add, (weight * shifted(by * width, length) for by, weight in near))
        shifts, weights = self.far * width, self.far_weights
        if not shifts.size:
            return sums.reshape(stack.shape)

        def add_far(start: Any, size: int, sums: jax.Array) -> jax.Array:
            def heard(shift: jax.Array) -> jax.Array:
                at = start - (length - shift)
                return shifted(jnp.where(at < 0, at + length, at), size)

            def add(group: jax.Array, total: jax.Array) -> jax.Array:
                streams = zip(shifts[group], weights[group], strict=True)
                return sum((weight * heard(shift) for shift, weight in streams), total)

            total = jax.lax.dynamic_slice(sums, (start,), (size,))
            total = jax.lax.fori_loop(0, len(shifts), add, total)
            return jax.lax.dynamic_update_slice(sums, total, (start,))

        blocks, rest = divmod(length, block)
        if rest:
            sums = add_far(jnp.int32(length - rest), rest, sums)
        sums = jax.lax.fori_loop(
            0, blocks, lambda i, sums: add_far((i * block).astype(jnp.int32), block, sums), sums
        )
        return sums.reshape(stack.shape)


def circulant(W: CSR, dtype: Any) -> Circulant | None:
    """W by distances, if it is circulant and has so many agents that this pays."""
    agents, longest = W.shape[0], int(np.diff(W.indptr).max())
    if agents < _FEWEST_AGENTS or not _FEWEST <= longest <= _MOST:
        return None
    row = circulant_row(W)
    return None if row is None else by_distances(row, dtype)


def by_distances(row: np.ndarray, dtype: Any) -> Circulant:
    """The circulant matrix with this first row."""
    size, heard = len(row), row != 0
    ways = np.arange(size) - np.where(2 * np.arange(size) > size, size, 0)
    close = abs(ways) <= _reach(size)
    heard[0] = True  # the agent itself, even without a weight
    near, far = np.flatnonzero(heard & close), np.flatnonzero(heard & ~close)
    groups = -(-len(far) // _STREAMS)
    shape = groups, -(-len(far) // max(groups, 1))
    weights = np.zeros(shape)
    weights.flat[: len(far)] = row[far]
    return Circulant(
        jnp.asarray(ways[near], jnp.int32),
        jnp.asarray(row[near], dtype),
        jnp.asarray(np.resize(far, shape), jnp.int32),
        jnp.asarray(weights, dtype),
    )


def _reach(agents: int) -> int:
    return min(_NEAR, agents // 2)
